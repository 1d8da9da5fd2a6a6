"""Rendering: values stay apart from the template's text; templates that would mix them are refused."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ingot.tokens.template import ChatTemplate, Run
from ingot.workspace.errors import ArtifactError, DataError


@settings(deadline=None)  # a busy machine is no failure
@given(value=st.text())
def test_values_come_back_as_they_went_in(value: str) -> None:
    runs = ChatTemplate("<a>{{ x }}{% generation %}<b>{{ x }}{% endgeneration %}{{ '<c>' }}").render({"x": value})
    assert runs == [
        Run("<a>", True, False),
        Run(value, False, False),
        Run("<b>", True, True),
        Run(value, False, True),
        Run("<c>", False, False),
    ]


@pytest.mark.parametrize(
    ("source", "node"),
    [
        ("{% macro m() %}x{% endmacro %}{{ m() }}", "Macro"),
        ("\n{% set x %}y{% endset %}", "AssignBlock"),
        ("{% filter upper %}y{% endfilter %}", "FilterBlock"),
    ],
)
def test_templates_that_catch_text_are_refused(source: str, node: str) -> None:
    with pytest.raises(ArtifactError, match=f"catches printed text \\({node}\\)"):
        ChatTemplate(source)


def test_broken_templates() -> None:
    with pytest.raises(ArtifactError, match="not valid Jinja"):
        ChatTemplate("{% if %}")
    with pytest.raises(ArtifactError, match="NUL"):
        ChatTemplate("\x000;")
    with pytest.raises(DataError, match="wrong order"):
        ChatTemplate("{{ raise_exception('wrong order') }}").render({})
    with pytest.raises(DataError, match="cannot render"):
        ChatTemplate("{{ x.y.z }}").render({})


def test_the_sandbox_holds() -> None:
    with pytest.raises(DataError, match="unsafe"):
        ChatTemplate("{{ ''.__class__.__mro__ }}").render({})
