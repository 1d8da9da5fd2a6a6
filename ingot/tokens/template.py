"""Renders any model's chat template so that no message can forge structure.

A Jinja template mixes its own text with what messages and tools hold, and models' templates do it in every possible way:
`'<|im_start|>' + message.role + '\\n' + message.content`. So the values are made harmless before they go in. Every
special token has a first and a last sign (`<` and `>` of `<|im_end|>`); in all values from outside these signs are
replaced by characters that occur nowhere, and after rendering they are put back. From this follows:

* A special token is special only where the template itself spells its signs. The same letters in a message, a tool's
  name or a JSON argument stay ordinary text, whatever they are.
* Otherwise a template works as in `transformers`: lengths, trimming, splitting at blanks, macros, filters. Only a test
  for a special token *inside* a message comes out as "not there".

Templates may use what `transformers` offers: loop controls, `tojson`, `raise_exception`, `strftime_now` and generation
blocks, in Jinja's sandbox.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from functools import lru_cache
from typing import Any, NoReturn

from jinja2 import Template, TemplateError, nodes, pass_context
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.runtime import Context, LoopContext
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace

from ingot.workspace.errors import ArtifactError, DataError

DISGUISE = "ingot_disguise"
PRIVATE = range(0x100000, 0x10FFFE)  # characters that Unicode gives no meaning to
SIGN = re.compile(r"[^\w\s]")
WORD = re.compile(r"\w+")
DICT_ATTRIBUTES = frozenset(dir(dict))
PLAIN = frozenset({str, list, dict, Namespace, LoopContext})  # types whose objects do not claim to be of another


class Disguise:
    """Hides the signs of special tokens in values, and shows them again in the rendered text."""

    def __init__(self, names: Iterable[str], values: Any) -> None:
        used = set("".join(_strings(values)))
        free = (chr(code) for code in PRIVATE if chr(code) not in used)
        self._hide = {ord(sign): next(free) for sign in _signs(tuple(names))}
        self._show = {ord(character): chr(sign) for sign, character in self._hide.items()}

    def __eq__(self, other: object) -> bool:
        """Whether both hide every sign in the same way."""
        return isinstance(other, Disguise) and self._hide == other._hide

    __hash__ = None  # type: ignore[assignment]  # nothing keeps them in a set

    def hide(self, value: Any) -> Any:
        """The value with every string in it disguised; keys that are plain words stay as templates ask for them."""
        return _translated(value, self._hide)

    def show(self, value: Any) -> Any:
        """The inverse of `hide`."""
        return _translated(value, self._show)


class Sandbox(ImmutableSandboxedEnvironment):
    """Jinja's sandbox with a memory: what it allows of a plain type is asked once, and a dict's own keys are looked up at once.

    A template reads some fifty attributes for a few turns, so most of its time went into the same answers.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._safe: dict[tuple[type, str], bool] = {}

    def getattr(self, obj: Any, attribute: str) -> Any:
        """The attribute, or else the key, as Jinja has it."""
        if type(obj) is dict and attribute not in DICT_ATTRIBUTES:
            return obj[attribute] if attribute in obj else self.undefined(obj=obj, name=attribute)
        return super().getattr(obj, attribute)

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        """By the type of the object, where Jinja's rules look at nothing else."""
        if type(obj) not in PLAIN:
            return super().is_safe_attribute(obj, attr, value)
        asked = type(obj), attr
        if asked not in self._safe:
            self._safe[asked] = super().is_safe_attribute(obj, attr, value)
        return self._safe[asked]


class GenerationBlock(Extension):
    """`{% generation %} … {% endgeneration %}`, a mark of `transformers`: prints its body."""

    tags = {"generation"}  # noqa: RUF012 - declared so by the base class

    def parse(self, parser: Parser) -> list[nodes.Node]:
        """The body of the block."""
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class ChatTemplate:
    """A compiled chat template."""

    def __init__(self, source: str) -> None:
        try:
            self._template = _compiled(source)
        except TemplateError as error:
            raise ArtifactError(
                f"the chat template is not valid Jinja: {error}", fix="mend chat_template.jinja in the tokenizer folder"
            ) from error

    def render(self, disguise: Disguise, values: Mapping[str, Any], trusted: Mapping[str, Any]) -> str:
        """The rendered text, with `values` in disguise; `trusted` values are part of the template."""
        return self.render_hidden(disguise, disguise.hide(values), trusted)

    def render_hidden(self, disguise: Disguise, hidden: Mapping[str, Any], trusted: Mapping[str, Any]) -> str:
        """The same of values that are in disguise already: those of one conversation are rendered several times."""
        try:
            return self._template.render({**trusted, **hidden, DISGUISE: disguise})
        except (TemplateError, TypeError) as error:  # TypeError: the template adds a text and nothing
            raise DataError(f"the chat template cannot render these messages: {error}") from error


@lru_cache(maxsize=32)
def _compiled(source: str) -> Template:
    """Compiled once a process: as slow as many turns, and every stage, suite and engine makes a format of its own."""
    environment = Sandbox(
        trim_blocks=True,
        lstrip_blocks=True,
        extensions=[GenerationBlock, "jinja2.ext.loopcontrols"],
        finalize=_printed,
    )
    environment.filters |= {"tojson": _to_json, "format": _format, "string": _string}
    environment.globals |= {"raise_exception": _raise_exception, "strftime_now": _strftime_now}
    return environment.from_string(source)


@lru_cache(maxsize=32)
def _signs(names: tuple[str, ...]) -> list[str]:
    """The first and the last sign of each name."""
    return sorted({sign for name in names for sign in (SIGN.findall(name)[0], SIGN.findall(name)[-1])})


def can_be_structure(name: str) -> bool:
    """Whether a special token's name has a sign that can be hidden; a plain word or a blank has none."""
    return SIGN.search(name) is not None


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _strings(key)
            yield from _strings(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _strings(inner)


def _translated(value: Any, table: dict[int, str]) -> Any:
    if isinstance(value, str):
        return value.translate(table)
    if isinstance(value, Mapping):
        return {
            key if not isinstance(key, str) or WORD.fullmatch(key) else key.translate(table): _translated(inner, table)
            for key, inner in value.items()
        }
    if isinstance(value, list | tuple):
        return [_translated(inner, table) for inner in value]
    return value


@pass_context
def _printed(context: Context, value: object) -> object:
    """A printed list or mapping, or one made a string, is spelt by Python, which would escape the disguise."""
    if isinstance(value, Mapping | list | tuple):
        disguise: Disguise = context[DISGUISE]
        return disguise.hide(str(disguise.show(value)))
    return value


@pass_context
def _string(context: Context, value: object) -> str:
    """Jinja's own filter: anything as text."""
    printed = _printed(context, value)
    return printed if isinstance(printed, str) else str(printed)


@pass_context
def _to_json(
    context: Context,
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """JSON as models should read it: Jinja's own filter would escape for HTML."""
    disguise: Disguise = context[DISGUISE]
    text = json.dumps(
        disguise.show(value), ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )
    return str(disguise.hide(text))


@pass_context
def _format(context: Context, form: str, *values: Any) -> str:
    """Jinja's own filter, on the values as they are: `%r` would spell the disguise as an escape."""
    disguise: Disguise = context[DISGUISE]
    return str(disguise.hide(disguise.show(form) % tuple(disguise.show(value) for value in values)))


def _raise_exception(message: str) -> NoReturn:
    raise TemplateError(message)


def _strftime_now(form: str) -> str:
    return datetime.now().strftime(form)
