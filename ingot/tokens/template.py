"""Rendering a chat template so that no message can forge structure.

A Jinja template mixes its own text with values from outside. Here the two never meet in one string: each value that an
expression prints is put aside and a numbered mark is printed in its place, so the rendered string holds the template's
own text and marks only. From this follow the two properties that matter:

* A special token is special only where the template's own text spells it. The same letters in a message, a role, a
  tool's name or a JSON argument stay ordinary text, whatever they are.
* `{% generation %}` blocks (the convention of `transformers`) give exact boundaries of what the model writes.

The price: a template may not print special tokens from expressions, nor catch printed text in macros, set-blocks or
filter-blocks. Such a template is refused with the reason.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

from jinja2 import TemplateError, nodes, pass_context
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment

from ingot.workspace.errors import ArtifactError, DataError

MARK = "\x00"
VALUES = "ingot_printed_values"
CAPTURING_NODES = (nodes.Macro, nodes.CallBlock, nodes.FilterBlock, nodes.AssignBlock)
_MARKS = re.compile(MARK + r"(?:([0-9]+);|([<>]))")


@dataclass(frozen=True)
class Run:
    """A stretch of a rendered conversation. `literal` text is the template's own, other text came from outside."""

    text: str
    literal: bool
    generated: bool


class GenerationBlock(Extension):
    """`{% generation %} … {% endgeneration %}`: marks what the model writes; prints its body unchanged."""

    tags = {"generation"}  # noqa: RUF012 - declared so by the base class

    def parse(self, parser: Parser) -> list[nodes.Node]:
        """Put a mark before and after the block's body."""
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        start = nodes.Output([nodes.TemplateData(MARK + "<")], lineno=line)
        end = nodes.Output([nodes.TemplateData(MARK + ">")], lineno=line)
        return [start, *body, end]


class ChatTemplate:
    """A compiled chat template. `render` gives runs of text in order."""

    def __init__(self, source: str) -> None:
        if MARK in source:
            raise ArtifactError("the chat template holds a NUL character", fix="remove it from the template")
        environment = ImmutableSandboxedEnvironment(
            trim_blocks=True,
            lstrip_blocks=True,
            extensions=[GenerationBlock, "jinja2.ext.loopcontrols"],
            finalize=_put_aside,
        )
        environment.filters["tojson"] = _to_json
        environment.globals["raise_exception"] = _raise_exception
        try:
            tree = environment.parse(source)
            for node in tree.find_all(CAPTURING_NODES):
                raise ArtifactError(
                    f"line {node.lineno} of the chat template catches printed text ({type(node).__name__})",
                    fix="write the text where it is printed: only then can it be told apart from what messages hold",
                )
            self._template = environment.from_string(source)
        except TemplateError as error:
            raise ArtifactError(
                f"the chat template is not valid Jinja: {error}", fix="mend chat_template.jinja in the tokenizer folder"
            ) from error

    def render(self, variables: Mapping[str, Any]) -> list[Run]:
        """The rendered text as runs, in order: literal text between values, values as they were given."""
        values: list[str] = []
        try:
            text = self._template.render({**variables, VALUES: values})
        except TemplateError as error:
            raise DataError(f"the chat template cannot render these messages: {error}") from error
        runs: list[Run] = []
        generated, position = False, 0
        for mark in _MARKS.finditer(text):
            if mark.start() > position:
                runs.append(Run(text[position : mark.start()], True, generated))
            position = mark.end()
            if mark[1] is not None:
                runs.append(Run(values[int(mark[1])], False, generated))
            else:
                generated = mark[2] == "<"
        if position < len(text):
            runs.append(Run(text[position:], True, generated))
        return runs


@pass_context  # a finalizer that takes the context is never run at compile time, so constants are put aside as well
def _put_aside(context: Context, value: object) -> str:
    values: list[str] = context[VALUES]
    values.append(str(value))
    return f"{MARK}{len(values) - 1};"


def _to_json(value: Any, **options: Any) -> str:
    """JSON as models should read it: Jinja's own filter would escape for HTML."""
    return json.dumps(value, ensure_ascii=False, **options)


def _raise_exception(message: str) -> NoReturn:
    raise TemplateError(message)
