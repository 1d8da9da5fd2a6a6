"""Rendering: values cannot spell special tokens, templates see what transformers would show them otherwise."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from transformers.utils.chat_template_utils import render_jinja_template

from ingot.tokens.template import ChatTemplate, Disguise, can_be_structure
from ingot.workspace.errors import ArtifactError, DataError

NAMES = ["<|im_start|>", "<|im_end|>", "[INST]", "</s>", "｜end｜"]


def render(source: str, values: dict[str, Any]) -> tuple[str, Disguise]:
    """The rendered text, still in disguise."""
    disguise = Disguise(NAMES, values)
    return ChatTemplate(source).render(disguise, values, {}), disguise


hostile = st.lists(
    st.one_of(st.sampled_from([*NAMES, "<", "|im_end|>", "\U00100000", "\U00100001"]), st.text(max_size=4))
).map("".join)


@given(first=hostile, second=hostile)
@example(first="<|im_", second="end|>")
@example(first="\U00100000|im_end|\U00100001", second="")
def test_values_come_back_and_spell_nothing(first: str, second: str) -> None:
    values = {"x": first, "list": [{"<key>": second}]}
    text, disguise = render("{{ x }}{{ list[0] | tojson }}{{ x + list[0].values() | first }}{{ list }}", values)
    assert not any(name in text for name in NAMES)
    plain = ChatTemplate("{{ x }}{{ list[0] | tojson }}{{ x + list[0].values() | first }}{{ list }}")
    assert disguise.show(text) == plain.render(Disguise([], values), values, {})


def test_the_template_spells_special_tokens_in_any_way() -> None:
    text, disguise = render("<|im_start|>{{ '</s>' + x + '<|' ~ 'im_end|>' }}", {"x": "<|im_end|>"})
    assert text.startswith("<|im_start|></s>") and text.endswith("<|im_end|>")
    assert text.count("<|im_end|>") == 1
    assert disguise.show(text) == "<|im_start|></s><|im_end|><|im_end|>"


SOURCES = [
    "{% macro turn(m) %}[{{ m.role }}]{{ m.content | trim }}{% endmacro %}{% for m in messages %}{{ turn(m) }}{% endfor %}",
    "{% set x %}{{ messages[0].content }}{% endset %}{{ x | length }}{{ x.split(' ')[0] }}{{ x[:3] | upper }}",
    "{% for m in messages %}{% if loop.index0 == 1 %}{% break %}{% endif %}{{ m.content }}{% endfor %}",
    "{% for m in messages %}{{ m | tojson(indent=2) }}{{ m | tojson(ensure_ascii=true, sort_keys=true) }}{% endfor %}",
    "{{ messages }}{{ messages[0].missing }}{{ strftime_now('%Y') }}{% generation %}a{% endgeneration %}",
    "{%- set ns = namespace(n=0) -%}{% for m in messages %}{% set ns.n = ns.n + 1 %}{% endfor %}{{ ns.n }}",
]


@pytest.mark.parametrize("source", SOURCES)
def test_equal_to_transformers(source: str) -> None:
    messages = [{"role": "user", "content": " a <b> é [c] "}, {"role": "assistant", "content": "<|im_end|>d"}]
    [[expected], _] = render_jinja_template([messages], chat_template=source)
    text, disguise = render(source, {"messages": messages})
    assert disguise.show(text) == expected


def test_broken_templates() -> None:
    with pytest.raises(ArtifactError, match="not valid Jinja"):
        ChatTemplate("{% if %}")
    with pytest.raises(DataError, match="wrong order"):
        render("{{ raise_exception('wrong order') }}", {})
    with pytest.raises(DataError, match="cannot render"):
        render("{{ x.y.z }}", {})
    with pytest.raises(DataError, match="cannot render"):
        render("{{ 'a' + x }}", {"x": None})


def test_the_sandbox_holds() -> None:
    for attack in ("''.__class__.__mro__", "messages.append(1)", "raise_exception.__globals__.x"):
        with pytest.raises(DataError, match="cannot render"):
            render("{{ " + attack + " }}", {"messages": []})


def test_names_without_signs_are_no_structure() -> None:
    assert can_be_structure("<|im_end|>") and can_be_structure("｜")
    assert not can_be_structure("madeupword0000") and not can_be_structure(" \n")
