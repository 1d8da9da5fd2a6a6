"""YAML as a tree in which every value keeps its place (file and line).

The scalars follow YAML 1.2, without the traps of 1.1 that PyYAML has by default: `3e-4` is a number, `on`, `off`, `yes`
and `no` are text, `12:30` and `2024-01-01` are text, `010` is ten. A key that is written twice is a problem, not a
silent overwrite. Numbers are finite. `<<: *anchor` merges the entries of a mapping, as in YAML 1.1; entries written out
win.

Invariant: whatever the text is, reading it either gives a tree or adds to `problems`; nothing else is raised.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

import yaml

from ingot.recipe.problems import Problems
from ingot.workspace.errors import RecipeError
from ingot.workspace.outside import spec_in_program

MERGE = "<<"
MAXIMUM_NODES = 100_000  # a recipe has hundreds; aliases of aliases can make billions
_LINE_BREAKS = re.compile("[\x85\u2028\u2029\ufeff]")
Scalar = str | int | float | bool | None


@dataclass(frozen=True, slots=True)
class Node:
    """A value and its place: `file.yaml:LINE` (the line of its key) or `--set a.b=c`."""

    content: dict[str, Node] | list[Node] | Scalar
    place: str

    @property
    def entries(self) -> dict[str, Node]:
        """The entries of a mapping; nothing for anything else."""
        return self.content if isinstance(self.content, dict) else {}

    def plain(self) -> Any:
        """The value without places: dicts, lists and scalars."""
        if isinstance(self.content, dict):
            return {key: child.plain() for key, child in self.content.items()}
        if isinstance(self.content, list):
            return [child.plain() for child in self.content]
        return self.content


def to_node(value: Any, place: str) -> Node:
    """A plain value as a tree that came from one place."""
    if isinstance(value, dict):
        return Node({key: to_node(child, place) for key, child in value.items()}, place)
    if isinstance(value, list | tuple):
        return Node([to_node(child, place) for child in value], place)
    return Node(value, place)


class _RecipeYaml(yaml.SafeLoader):
    """PyYAML's reader with the scalar rules of YAML 1.2."""

    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012 PyYAML's own protocol


class _RecipeDumper(yaml.SafeDumper):
    """PyYAML's writer, which also quotes text that looks like a number to us."""


_TAG = "tag:yaml.org,2002:"
for _name, _pattern, _first in (
    ("null", r"^(?:~|null|Null|NULL|)$", ["~", "n", "N", ""]),
    ("bool", r"^(?:true|True|TRUE|false|False|FALSE)$", list("tTfF")),
    ("int", r"^(?:[-+]?[0-9][0-9_]*|0x[0-9a-fA-F]+)$", list("-+0123456789")),
    ("float", r"^[-+]?(?:[0-9][0-9_]*\.?[0-9_]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?$", list("-+.0123456789")),
):
    _RecipeYaml.add_implicit_resolver(_TAG + _name, re.compile(_pattern), _first)
    _RecipeDumper.add_implicit_resolver(_TAG + _name, re.compile(_pattern), _first)


def _is_unicode(text: str) -> bool:
    """False for half of a surrogate pair, which can be neither stored nor printed."""
    return not any("\ud800" <= character <= "\udfff" for character in text)


def _scalar(tag: str, text: str) -> Scalar:
    """The value of a scalar; raises ValueError if the text does not fit the tag."""
    if tag == _TAG + "str" and _is_unicode(text):
        return text
    if tag == _TAG + "null":
        return None
    if tag == _TAG + "bool":
        return {"true": True, "false": False}[text.lower()]
    if tag == _TAG + "int":
        return int(text, 16) if text.startswith("0x") else int(text)
    if tag == _TAG + "float":
        number = float(text)
        if not math.isfinite(number):
            raise ValueError("a number must be finite")
        return number
    raise ValueError(f"the tag {tag} is not supported")


class _Reader:
    """Turns PyYAML's nodes into ours."""

    def __init__(self, label: str, problems: Problems, *, lines: bool) -> None:
        self.label, self.problems, self.lines = label, problems, lines
        self.count = 0
        self.open: set[int] = set()  # nodes we are inside of: an alias to one of them has no end

    def place(self, mark: yaml.Mark | None) -> str:
        return f"{self.label}:{mark.line + 1}" if self.lines and mark is not None else self.label

    def node(self, node: yaml.Node, place: str) -> Node:
        self.count += 1
        if id(node) in self.open or self.count > MAXIMUM_NODES:
            if self.count <= MAXIMUM_NODES:
                self.problems.add("an alias that contains itself", place=place, fix="write the value out")
            return Node(None, place)
        self.open.add(id(node))
        result = self._content(node, place)
        self.open.discard(id(node))
        return result

    def _content(self, node: yaml.Node, place: str) -> Node:
        if isinstance(node, yaml.MappingNode):
            return Node(self._mapping(node), place)
        if isinstance(node, yaml.SequenceNode):
            return Node([self.node(item, self.place(item.start_mark)) for item in node.value], place)
        try:
            return Node(_scalar(node.tag, node.value), place)
        except (ValueError, KeyError):
            kind = node.tag.removeprefix(_TAG)
            self.problems.add(f"{_shortened(node.value)} cannot be read as a {kind}", place=place)
            return Node(None, place)

    def _mapping(self, node: yaml.MappingNode) -> dict[str, Node]:
        entries: dict[str, Node] = {}
        brought: dict[str, Node] = {}
        for key, value in node.value:
            place = self.place(key.start_mark)
            if not isinstance(key, yaml.ScalarNode):
                self.problems.add("a key must be a word, not a list or a mapping", place=place)
                continue
            if not _is_unicode(key.value):
                self.problems.add(f"{_shortened(key.value)} cannot be read as a key", place=place)
                continue
            if key.value == MERGE and key.style is None:  # in quotes it is a word
                brought = {**self._brought(value, place), **brought}
                continue
            if key.value in entries:
                first = entries[key.value].place
                self.problems.add(
                    f"the key {key.value} is written twice, first at {first}", place=place, fix="remove one"
                )
                continue
            entries[key.value] = self.node(value, place)
        return {**brought, **entries}

    def _brought(self, node: yaml.Node, place: str) -> dict[str, Node]:
        """The entries that `<<` merges: of a mapping, or of several, where the first that has a key counts."""
        entries: dict[str, Node] = {}
        for each in node.value if isinstance(node, yaml.SequenceNode) else [node]:
            if not isinstance(each, yaml.MappingNode):
                self.problems.add(
                    f"{MERGE} brings in mappings, and this is none",
                    place=place,
                    fix=f"write `{MERGE}: *name`, with `&name` in front of the mapping that is meant",
                )
                continue
            entries = {**self.node(each, place).entries, **entries}
        return entries


def _shortened(text: str) -> str:
    shown = ascii(text)
    return shown if len(shown) <= 60 else shown[:57] + "…'"


def _yaml_fix(reason: str) -> str | None:
    """The likely fix for a parser error."""
    if "'\\t'" in reason:
        return "indent with spaces, not with tabs"
    if "<block" in reason or "mapping values are not allowed" in reason:
        return "indent it as the lines around it, and put a space after each colon"
    return None


def parse_yaml(text: str, label: str, problems: Problems, *, lines: bool = True) -> Node:
    """The tree of a YAML text; `lines` adds line numbers to the label in each place."""
    reader = _Reader(label, problems, lines=lines)
    try:
        root = yaml.compose(text, Loader=_RecipeYaml)
        tree = Node(None, label) if root is None else reader.node(root, reader.place(root.start_mark))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        reason = ", ".join(part for part in (error.context, error.problem) if part)
        problems.add(f"not valid YAML: {reason}", place=reader.place(mark), fix=_yaml_fix(reason))
        return Node(None, label)
    except yaml.YAMLError as error:
        problems.add(f"not valid YAML: {_shortened(str(error))}", place=label)
        return Node(None, label)
    except RecursionError:
        problems.add("nested too deeply to read", place=label)
        return Node(None, label)
    if reader.count > MAXIMUM_NODES:
        problems.add(f"more than {MAXIMUM_NODES:,} values: aliases of aliases?", place=label, fix="write them out")
        return Node(None, label)
    return tree


def dump_yaml(value: Any) -> str:
    """Plain values as YAML that `parse_yaml` reads back unchanged."""
    breaks = _LINE_BREAKS.search(json.dumps(value, ensure_ascii=False)) is not None  # PyYAML loses these unescaped
    return yaml.dump(value, Dumper=_RecipeDumper, sort_keys=False, allow_unicode=not breaks, width=120)


def from_python(value: Any, place: str, problems: Problems) -> Node:
    """The tree of plain Python values (what `ingot.run(set=…)` is given); a function or class is `file.py:Name`."""
    if isinstance(value, PurePath):
        return Node(str(value), place)
    if callable(value):
        return Node(_spec(value, place, problems), place)
    if isinstance(value, Mapping):
        return Node(
            {_key(key, place, problems): from_python(child, place, problems) for key, child in value.items()}, place
        )
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return Node([from_python(child, place, problems) for child in value], place)
    finite = isinstance(value, float) and math.isfinite(value)
    if value is None or isinstance(value, int) or finite or (isinstance(value, str) and _is_unicode(value)):
        return Node(value, place)
    problems.add(f"{_shortened(str(value))} ({type(value).__name__}) cannot be part of a recipe", place=place)
    return Node(None, place)


def _key(key: Any, place: str, problems: Problems) -> str:
    return _spec(key, place, problems) if callable(key) else str(key)


def _spec(thing: Any, place: str, problems: Problems) -> str:
    """The name of a function or class; a problem if nothing could load it by one."""
    try:
        return spec_in_program(thing)
    except RecipeError as error:
        problems.add(error.problem, place=place, fix=error.fix)
        return ""


def merge(base: Node, over: Node) -> Node:
    """`over` laid over `base`: mappings are merged key by key, anything else is replaced."""
    if not isinstance(base.content, dict) or not isinstance(over.content, dict):
        return over
    merged = dict(base.content)
    for key, child in over.content.items():
        merged[key] = merge(merged[key], child) if key in merged else child
    return Node(merged, over.place)
