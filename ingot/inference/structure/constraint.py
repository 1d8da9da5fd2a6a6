"""Constraints on sampled text, compiled once and shared by all requests.

    constraint = compile_schema({"type": "object", "properties": {"age": {"type": "integer"}}}, tokenizer)
    state = constraint.start()
    while not done:
        token = sample(logits, allowed=state.mask())   # and the stop tokens, where state.complete
        state = state.advance(token)

Invariants. The mask of a state holds exactly the tokens after which the text can still be completed, and in a state that is
not complete it holds at least one: every byte that a constraint may ask for is a token. A mask depends on the text alone,
not on how it was cut into tokens.

A pattern or schema is compiled in a few milliseconds (in any thread) and kept, for the same tokenizer, among the last
CONSTRAINTS_KEPT. States are cheap to hold, compare and hash, and never change.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from ingot.inference.structure.automaton import DEAD, Automaton
from ingot.inference.structure.characters import Alphabet
from ingot.inference.structure.errors import StructureError
from ingot.inference.structure.grammar import Grammar, Node
from ingot.inference.structure.pattern import parse_pattern
from ingot.inference.structure.schema import schema_node
from ingot.inference.structure.vocabulary import Vocabulary, vocabulary_of
from ingot.tokens.tokenizer import Tokenizer

CONSTRAINTS_KEPT = 64


class State:
    """Where a text stands in its constraint. Equal states allow the same continuations."""

    __slots__ = ("_automaton", "_constraint", "_number", "complete")

    def __init__(self, constraint: Constraint, automaton: Automaton, number: int) -> None:
        self._constraint, self._automaton, self._number = constraint, automaton, number
        self.complete: bool = automaton.complete(number)
        """Whether the text may end here, so that the stop tokens are allowed."""

    def mask(self) -> NDArray[np.uint8]:
        """1 for each token of the tokenizer that may come next, else 0. Cached; not to be changed."""
        vocabulary = self._constraint.vocabulary
        with vocabulary.lock:
            return vocabulary.mask(self._automaton, self._automaton.near(self._number))

    def advance(self, token: int) -> State:
        """The state after one more token."""
        vocabulary = self._constraint.vocabulary
        piece = vocabulary.bytes_of[token] if 0 <= token < vocabulary.size else b""
        with vocabulary.lock:
            automaton, number = self._constraint.renew(self._automaton, self._number)
            for byte in piece:
                number = automaton.step(number, byte)
                if number == DEAD:
                    break
            if not piece or number == DEAD:
                raise StructureError(
                    f"token {token} ({piece!r}) is not allowed here",
                    place="constrained text",
                    fix="sample only where mask() is 1",
                )
            return State(self._constraint, automaton, number)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, State) and (self._automaton, self._number) == (other._automaton, other._number)

    def __hash__(self) -> int:
        return hash((id(self._automaton), self._number))


class Constraint:
    """A compiled structure over a tokenizer's vocabulary."""

    def __init__(self, root: Node, vocabulary: Vocabulary) -> None:
        self.vocabulary = vocabulary
        self._automaton = Automaton(root, vocabulary.longest)

    def start(self) -> State:
        """The state before the first token."""
        with self.vocabulary.lock:
            return State(self, *self.renew(self._automaton, self._automaton.start))

    def renew(self, automaton: Automaton, number: int) -> tuple[Automaton, int]:
        """The state in an automaton with room for more: long texts of nested values would fill the memory otherwise."""
        if not automaton.full:
            return automaton, number
        if self._automaton.full:
            self._automaton = Automaton(automaton.root, automaton.reach)
        return self._automaton, self._automaton.adopt(automaton, number)


def compile_regex(pattern: str, tokenizer: Tokenizer) -> Constraint:
    """Text that matches the whole of a regular expression (pattern.py says which part of `re` is understood)."""
    return _compile(
        "regex", pattern, tokenizer, lambda alphabet: parse_pattern(pattern, alphabet.grammar, alphabet.plain)
    )


def compile_schema(schema: dict[str, Any] | bool, tokenizer: Tokenizer) -> Constraint:
    """JSON that is valid under a JSON schema (schema.py says which keywords are understood)."""
    try:
        text = json.dumps(schema, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise StructureError(f"the schema is not JSON: {error}", place="#", fix="give a plain JSON schema") from error
    return _compile("schema", text, tokenizer, lambda alphabet: schema_node(json.loads(text), alphabet))


def compile_json(tokenizer: Tokenizer) -> Constraint:
    """Any JSON object."""
    return compile_schema({"type": "object"}, tokenizer)


def compile_choice(choices: Sequence[str], tokenizer: Tokenizer) -> Constraint:
    """One of these texts."""
    text = json.dumps(list(choices))
    return _compile("choice", text, tokenizer, lambda alphabet: alphabet.literals(choices))


_kept: WeakKeyDictionary[Tokenizer, OrderedDict[tuple[str, str], Constraint]] = WeakKeyDictionary()


def _compile(kind: str, text: str, tokenizer: Tokenizer, build: Callable[[Alphabet], Node]) -> Constraint:
    """The constraint of a text, from those kept or new; its first mask is made here, outside the engine's thread."""
    vocabulary = vocabulary_of(tokenizer)
    with vocabulary.lock:
        kept = _kept.setdefault(tokenizer, OrderedDict())
        if (kind, text) in kept:
            kept.move_to_end((kind, text))
            return kept[kind, text]
    grammar = Grammar(vocabulary.single_bytes)
    place = f"{kind} {text if len(text) < 80 else text[:80] + '…'}"
    try:
        root = grammar.prune(build(Alphabet(grammar, vocabulary.characters)))
    except RecursionError as error:
        raise StructureError("nested too deeply", place=place, fix="give a simpler one") from error
    if root is grammar.nothing:
        fix = "loosen it, or use a tokenizer that has all its characters"
        raise StructureError("no text satisfies it", place=place, fix=fix)
    constraint = Constraint(root, vocabulary)
    constraint.start().mask()
    with vocabulary.lock:
        kept[kind, text] = constraint
        if len(kept) > CONSTRAINTS_KEPT:
            kept.popitem(last=False)
    return constraint
