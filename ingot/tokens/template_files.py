"""The chat templates that come with Ingot, by name, and their options.

| name | layout |
|---|---|
| ingot | Ingot's own: ChatML with tokens for traces and tools |
| chatml | ChatML (OpenAI 2023) with the tools of Hermes 2 Pro and Qwen 2.5 |
| llama3 | Llama 3.1 |
| qwen3 | Qwen 3 |
| harmony | gpt-oss |
| smollm3 | SmolLM 3 |
| hermes4 | Hermes 4; `assistant` renames the role of the model |

Base models that have never seen a chat get a plain prompt (RL-Zero), which ends with the model's own end of a text
(add_tokens.py::with_template):

| name | prompt |
|---|---|
| plain | the question and a line break |
| r1_zero | DeepSeek-R1-Zero's: a paragraph, `User: …`, `Assistant:`; an answer is `<think> … </think> <answer> … </answer>` |

An option is a line at the head of the file, `{%- set NAME = NAME | default(VALUE) %}`: code that calls `apply_chat_template`
may give it, and `template_text` writes another value into the file, so that the model's folder keeps it wherever it goes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ingot.workspace.errors import RecipeError
from ingot.workspace.nearest import suggestion

FOLDER, PROMPTS = (Path(__file__).parent / name for name in ("templates", "prompts"))
OPTION = re.compile(r"^(\{%-? set (\w+) = \2 \| default\()(.*)(\) -?%\})$", re.MULTILINE)


def template_names() -> list[str]:
    """The names of the templates, Ingot's own first."""
    return sorted((path.stem for path in FOLDER.glob("*.jinja")), key=lambda name: (name != "ingot", name))


def prompt_names() -> list[str]:
    """The names of the plain prompts."""
    return sorted(path.stem for path in PROMPTS.glob("*.jinja"))


def template_text(name: str = "ingot", options: Mapping[str, Any] | None = None) -> str:
    """The text of a template or prompt by its name or its file, or Jinja itself, with other values for its options."""
    if is_jinja(name):
        return with_options(name, _known(name, options or {}, "of the recipe"))
    path = Path(name)
    if name in template_names():
        path = FOLDER / f"{name}.jinja"
    elif name in prompt_names():
        path = PROMPTS / f"{name}.jinja"
    elif not path.is_file():
        raise RecipeError(
            f"no chat template {name!r}",
            place="template",
            fix=f"use one of {', '.join([*template_names(), *prompt_names()])}, or the path of a Jinja file",
        )
    text = path.read_text(encoding="utf-8")
    return with_options(text, _known(text, options or {}, name))


def is_jinja(text: str) -> bool:
    """Whether this is a template itself, not the name of one."""
    return "{{" in text or "{%" in text


def _known(text: str, options: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """The options, all of which the template must have."""
    known = template_options(text)
    for option in options:
        if option not in known:
            raise RecipeError(
                f"the chat template {name} has no option {option!r}",
                place="template",
                fix=suggestion(option, known, "its options"),
            )
    return options


def with_options(text: str, options: Mapping[str, Any]) -> str:
    """A template with other values for its options."""
    return OPTION.sub(lambda found: _with_value(found, options), text)


def template_options(text: str) -> dict[str, Any]:
    """The options of a template and their values."""
    return {found[2]: json.loads(found[3]) for found in OPTION.finditer(text)}


def _with_value(found: re.Match[str], options: Mapping[str, Any]) -> str:
    value = json.dumps(options[found[2]], ensure_ascii=False) if found[2] in options else found[3]
    return f"{found[1]}{value}{found[4]}"
