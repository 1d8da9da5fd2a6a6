"""How a model writes the parts of an assistant turn, its trace, its tool calls and its answer: one row of `formats.yaml`.

A row is a table of states and marks. It is found by the strings of the chat template, so that a model from outside needs no
setting; a row of one's own is written into the model's folder (`ingot model template MODEL FOLDER --format FILE`).

A mark is a special token where the tokenizer has one of this name. Otherwise it is plain text, which any text can spell: a
model without these tokens learns the format, but its answers can forge it.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Container, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, Literal, get_args

import yaml

from ingot.workspace.errors import ArtifactError
from ingot.workspace.nearest import suggestion

State = Literal[
    "content",
    "thinking",
    "header",
    "calls",
    "skip",
    "name",
    "arguments",
    "key",
    "value",
    "text",
    "json",
    "string",
    "call",
    "list",
]
STATES: tuple[State, ...] = get_args(State)
TEXTS: frozenset[State] = frozenset({"content", "thinking", "header"})  # not part of a call
KEYS = {"models", "example", "found", "begins", "states", "bare", "name", "ids", "padding"}
TABLE = Path(__file__).with_name("formats.yaml")
Next = State | tuple[tuple[str, State], ...]


@dataclass(frozen=True)
class Syntax:
    """One format. `origin` says how it was found."""

    label: str = "plain"
    models: str = ""
    example: str = ""  # of a call: f(k=1)
    states: Mapping[State, Mapping[str, Next]] = field(default_factory=dict)
    begins: State = "content"
    bare: Literal["json", "python"] | None = None
    name: str = r"\s*(.*?)\s*"
    ids: str | None = None
    padding: str = ""
    found: tuple[tuple[str, ...], ...] = ()
    origin: str = ""

    @classmethod
    def of(cls, source: str, special: Container[str] = ()) -> Syntax:
        """The format of a template; tags that are special tokens count even if the template itself prints none."""
        for syntax in formats().values():
            group = next((group for group in syntax.found if all(text in source for text in group)), None)
            if group is not None:
                return replace(syntax, origin=f"the chat template has {' and '.join(group)}")
        return formats()["tags"]._present(source, special)

    def _present(self, source: str, special: Container[str]) -> Syntax:
        """Without the parts whose marks are neither in the template nor in the tokenizer."""
        there = {mark: next for mark, next in self.states["content"].items() if mark in source or mark in special}
        states = {state: marks for state, marks in self.states.items() if state in there.values()}
        origin = f"the chat template or the tokenizer has {' and '.join(there)}" if there else "no mark was found"
        return replace(self, label=self.label if there else "plain", states={"content": there, **states}, origin=origin)

    @cached_property
    def thinks(self) -> bool:
        """Whether a turn can have a trace."""
        return "thinking" in self.states

    @cached_property
    def calls(self) -> bool:
        """Whether a turn can call tools."""
        return self.bare is not None or bool(self.openers) or self.channels

    @cached_property
    def channels(self) -> bool:
        """Whether a turn is made of messages, each with a header."""
        return self.begins == "header"

    @cached_property
    def think(self) -> tuple[str, str] | None:
        """The marks around a trace, where it has such a pair."""
        opening = [mark for mark, next in self.marks("content").items() if next in ("thinking", "header")]
        closing = [mark for mark, next in self.marks("thinking").items() if next == "content"]
        return (opening[0], closing[0]) if opening and closing else None

    @cached_property
    def call(self) -> tuple[str, str] | None:
        """The marks around a whole call, where it has such a pair."""
        opening = [mark for mark, next in self.marks("content").items() if next == "call"]
        closing = [mark for mark, next in self.marks("call").items() if next == "content"]
        return (opening[0], closing[0]) if opening and closing else None

    @cached_property
    def openers(self) -> tuple[str, ...]:
        """The marks with which a call begins, behind the answer."""
        return tuple(mark for mark, next in self.marks("content").items() if next not in TEXTS)

    @cached_property
    def json_path(self) -> tuple[list[str], list[str], list[str]] | None:
        """The marks before a call's name, between it and its arguments in JSON, and behind; None: written otherwise."""
        if len(self.openers) != 1 or any(state in self.states for state in ("key", "string", "header")):
            return None
        before, state = [self.openers[0]], self.marks("content")[self.openers[0]]
        if state == "calls":
            steps = [mark for mark, to in self.marks("calls").items() if to == "name"]
            before, state = before + steps[:1], "name" if steps else state
        between = [mark for mark, to in self.marks("name").items() if to == "arguments"]
        if state != "name" or not between or "\n" in between[0]:
            return None
        end = [mark for mark, to in self.marks("arguments").items() if to in ("calls", "content")]
        section = [mark for mark, to in self.marks("calls").items() if to == "content"]
        return before, between[:1], end[:1] + section[:1]

    @cached_property
    def call_marks(self) -> frozenset[str]:
        """The marks in and around calls."""
        inside = (mark for state, marks in self.states.items() if state not in TEXTS for mark in marks)
        return frozenset([*self.openers, *inside])

    @cached_property
    def inner_marks(self) -> frozenset[str]:
        """The marks inside of a call, which neither begin nor end one."""
        outer = {*self.openers, *self.marks("calls")}
        steps = [
            step for state, marks in self.states.items() if state not in (*TEXTS, "calls") for step in marks.items()
        ]
        return frozenset(mark for mark, to in steps if to not in ("content", "header", "calls") and mark not in outer)

    @cached_property
    def outer_marks(self) -> frozenset[str]:
        """The marks of answers and traces, and those that end a call: between calls they have a meaning or are stray."""
        ends = (mark for marks in self.states.values() for mark, to in marks.items() if to == "content")
        return frozenset([*self.marks("content"), *self.marks("thinking"), *ends])

    @cached_property
    def ends(self) -> frozenset[str]:
        """The marks that end a message and, where no other follows, the turn (harmony)."""
        if not self.channels:
            return frozenset()
        steps = [step for state, marks in self.states.items() if state != "header" for step in marks.items()]
        return frozenset(mark for mark, to in steps if to == "header")

    def inside_marks(self, special: Collection[str]) -> frozenset[str]:
        """The special tokens that are a part of a mark: DeepSeek's ｜DSML｜ in the invoke mark."""
        spelt = [mark for marks in self.states.values() for mark in marks if mark not in special]
        return frozenset(name for name in special if any(name in mark for mark in spelt))

    def closes(self, state: State) -> str | None:
        """The mark that ends a trace, a call, or a section of calls."""
        steps = self.marks(state).items()
        ends = [mark for mark, to in steps if to in ("content", "header", "calls", "arguments") and state != "name"]
        return next(iter(ends), None) or (self.closes("arguments") if state in ("name", "key", "skip") else None)

    def marks(self, state: State) -> Mapping[str, Next]:
        """The marks that count in a state, and where they lead."""
        return self.states.get(state, {})


@lru_cache(maxsize=1)
def formats() -> dict[str, Syntax]:
    """The table: every format that Ingot knows, by name."""
    return read_formats(TABLE.read_text(encoding="utf-8"), str(TABLE))


def read_formats(text: str, place: str) -> dict[str, Syntax]:
    """The formats of a YAML file."""
    try:
        rows = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ArtifactError(f"not YAML: {error}", place=place, fix="mend the file") from error
    if not isinstance(rows, dict) or not rows:
        raise ArtifactError(
            "no chat formats", place=place, fix="write NAME: {states: {…}}, as in docs/guides/chat-formats.md"
        )
    return {str(label): read_format(str(label), row, f"{place}, {label}") for label, row in rows.items()}


def read_format(label: str, row: Any, place: str) -> Syntax:
    """One declared format; what is wrong with it is named."""
    if not isinstance(row, Mapping):
        raise ArtifactError("a chat format is a mapping", place=place, fix="write {states: {content: {MARK: STATE}}}")
    for key in row:
        if key not in KEYS:
            raise ArtifactError(
                f"a chat format has no key {key!r}", place=place, fix=suggestion(key, sorted(KEYS), "its keys")
            )
    declared = row.get("states") or {}
    states: dict[State, dict[str, Next]] = {
        state: {str(mark): _next(next, place) for mark, next in marks.items()} for state, marks in declared.items()
    }
    reached = {
        "content",
        row.get("begins", "content"),
        *(state for marks in states.values() for next in marks.values() for state in _targets(next)),
    }
    for state in (*states, *reached):
        if state not in STATES:
            raise ArtifactError(
                f"a chat format has no state {state!r}", place=place, fix=suggestion(state, STATES, "the states")
            )
    for state in states:
        if state not in reached:
            raise ArtifactError(
                f"no mark leads to {state!r}", place=place, fix="let a mark lead there, or leave it out"
            )
        marks = states.get(state, {})
        if pair := next(((one, two) for one in marks for two in marks if one != two and two.startswith(one)), None):
            problem = f"in the state {state}, the mark {pair[0]!r} begins another mark, {pair[1]!r}"
            raise ArtifactError(problem, place=place, fix="let no mark of a state be the beginning of another")
    if row.get("bare") not in (None, "json", "python"):
        raise ArtifactError(f"bare is {row['bare']!r}", place=place, fix="write json, python, or leave it out")
    given = {key: row[key] for key in ("models", "example", "begins", "bare", "name", "ids", "padding") if key in row}
    _check_pattern(given.get("name", ""), place)
    try:
        str(given.get("ids", "")).format(name="f", number=0)
    except (KeyError, IndexError, ValueError) as error:
        fix = "write it of {name} and {number}: call_{number}"
        raise ArtifactError(f"ids is {given['ids']!r}, which has no {error}", place=place, fix=fix) from error
    found = tuple(tuple(group) for group in row.get("found", ()))
    return Syntax(label, states=states, found=found, **given)


def _next(next: Any, place: str) -> Next:
    if isinstance(next, Mapping):
        for pattern in next:
            _check_pattern(pattern, place)
        return tuple(next.items())
    found: State = next
    return found


def _targets(next: Next) -> Iterator[str]:
    yield from (next,) if isinstance(next, str) else (state for _, state in next)


def _check_pattern(pattern: str, place: str) -> None:
    try:
        re.compile(pattern)
    except re.error as error:
        raise ArtifactError(f"{pattern!r} is no regular expression: {error}", place=place, fix="mend it") from error
