"""Constraints on sampled text by llguidance (github.com/guidance-ai/llguidance): an Earley parser over a lexer of derivatives.

    constraint = compile_schema({"type": "object", "properties": {"age": {"type": "integer"}}}, tokenizer)
    state = constraint.start()
    while not done:
        token = sample(logits, allowed=state.mask())   # and the stop tokens, where state.complete
        state = state.advance(token)

Invariants. A mask allows only tokens after which the text is still the beginning of a valid one. A state that is not complete
allows at least one token, or asking for its mask is an error. States do not change, so one may be advanced twice.

A grammar is compiled in milliseconds (in any thread, without the GIL) and cached, as are the masks of the first tokens, where
requests of one grammar agree; vocabulary.py has the sizes. Compiling and masks have LIMITS: beyond them a structure is refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from itertools import count
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ingot.inference.structure.errors import NO_TOKEN, StructureError, refusal
from ingot.inference.structure.grammar import choice_rule, regex_rule, schema_rule
from ingot.inference.structure.library import library
from ingot.inference.structure.vocabulary import AllowedTokens, Vocabulary, known_vocabulary, vocabulary_of
from ingot.tokens.tokenizer import Tokenizer
from ingot.workspace.memory import release_memory

LONGEST_GRAMMAR = 1 << 20  # bytes
LARGE_GRAMMAR = 1 << 14
LIMITS = {
    "max_grammar_size": 20_000,  # symbols: some 1,000 optional properties; without a limit they take time by their square
    "max_items_in_row": 4_000,  # parser items at one position of the text: a mask takes up to some 10 ms
    "max_lexer_states": 50_000,  # of 1 to 2 kB
    "verbose_errors": False,
}
BYTES_OF_GRAMMAR = 64 << 10  # of memory for a small grammar, and
BYTES_OF_CHARACTER = 80  # for each character of a long one: 13 MB for 170 kB of optional properties
CACHED_DEPTH = 64  # tokens from the start of a text whose masks are cached
MASKS_AT_MOST = 20_000  # made by a grammar before it is compiled anew: its lexer keeps each state that it ever met


class State:
    """The state of a text in its constraint."""

    __slots__ = ("_before", "_constraint", "_length", "_look", "_run")

    def __init__(self, constraint: Constraint, before: tuple[int, int], length: int, run: _MatcherRun | None) -> None:
        self._constraint, self._before, self._length, self._run = constraint, before, length, run
        self._look: AllowedTokens | None = None

    @property
    def complete(self) -> bool:
        """Whether the text may end here, so that the stop tokens are allowed."""
        return self._looked().complete

    def mask(self) -> NDArray[np.uint8]:
        """1 for each token of the tokenizer that may come next, else 0. Not to be changed."""
        return self._looked().mask

    def advance(self, token: int) -> State:
        """The state after one more token."""
        run = self._current()
        if not (0 <= token < self._constraint.vocabulary.size and run.matcher.try_consume_tokens([token]) == 1):
            self._constraint.check(run)
            raise StructureError(
                f"token {token} is not allowed here", place="constrained text", fix="sample only where mask() is 1"
            )
        run.length += 1
        return State(self._constraint, (self._looked().number, token), self._length + 1, run)

    def _looked(self) -> AllowedTokens:
        if self._look is None:
            cache = self._constraint.vocabulary.masks
            self._look = cache.get(self._before) or self._constraint.look(self._current())
            if self._length < CACHED_DEPTH:
                cache.put(self._before, self._look, self._look.mask.nbytes + 200)
        return self._look

    def _current(self) -> _MatcherRun:
        """A matcher that has read the text up to here, and no more: another text may have gone on from here."""
        if self._run is None:
            self._run = _MatcherRun(self._constraint.matcher.deep_copy(), 0)
        elif self._run.length > self._length:
            ahead, self._run = self._run, _MatcherRun(self._run.matcher.deep_copy(), self._length)
            self._run.matcher.rollback(ahead.length - self._length)
        return self._run


class _MatcherRun:
    """llguidance's matcher of one text, and how many tokens it has read."""

    def __init__(self, matcher: Any, length: int) -> None:
        self.matcher, self.length = matcher, length


class Constraint:
    """A compiled grammar over a tokenizer's vocabulary. Copies of its matcher share its lexer."""

    def __init__(self, grammar: str, vocabulary: Vocabulary) -> None:
        self.vocabulary = vocabulary
        self.matcher = library().LLMatcher(vocabulary.tokens, grammar, log_level=0, limits=_limits())
        self.worn = False
        """Whether it should be compiled anew for the next text: its lexer is large, or has reached a limit."""
        self._number = next(_numbers)
        self._masks = 0
        if self.matcher.is_error():
            raise refusal(self.matcher.get_error())

    def start(self) -> State:
        """The state before the first token."""
        return State(self, (self._number, -1), 0, None)

    def look(self, run: _MatcherRun) -> AllowedTokens:
        """The mask of a state, and whether the text may end in it."""
        size, matcher = self.vocabulary.size, run.matcher
        complete = matcher.is_accepting()
        bits = np.frombuffer(matcher.compute_bitmask(), dtype=np.uint8)
        self.check(run)
        mask = np.unpackbits(bits, count=size, bitorder="little")
        if not complete and not mask.any():
            raise refusal(NO_TOKEN)
        mask.flags.writeable = False
        self._masks += 1
        self.worn |= self._masks > MASKS_AT_MOST
        return AllowedTokens(mask, complete, next(_numbers))

    def check(self, run: _MatcherRun) -> None:
        """An error if a limit was reached."""
        if run.matcher.is_error():
            self.worn = True
            raise refusal(run.matcher.get_error())


def compile_grammar(grammar: str, tokenizer: Tokenizer) -> Constraint:
    """Text that follows a grammar of llguidance; grammar.py makes their rules."""
    vocabulary = vocabulary_of(tokenizer)
    cached = cached_constraint(grammar, tokenizer)
    if cached is not None:
        return cached
    if len(grammar) > LONGEST_GRAMMAR:
        problem = f"{len(grammar):,} characters; at most {LONGEST_GRAMMAR:,} are compiled"
        raise StructureError(problem, place="structure", fix="give a smaller one")
    try:
        constraint = Constraint(grammar, vocabulary)
        _try_first(constraint)
    except StructureError as error:
        vocabulary.grammars.put(grammar, error, 2 * len(grammar) + 1000)
        raise
    vocabulary.grammars.put(grammar, constraint, BYTES_OF_GRAMMAR + BYTES_OF_CHARACTER * len(grammar))
    if len(grammar) > LARGE_GRAMMAR:
        release_memory()  # of those that the cache dropped for it
    return constraint


def cached_constraint(grammar: str, tokenizer: Tokenizer) -> Constraint | None:
    """The constraint of a grammar that was compiled before; its error if it was refused. Never waits."""
    vocabulary = known_vocabulary(tokenizer)
    cached = None if vocabulary is None else vocabulary.grammars.get(grammar)
    if isinstance(cached, StructureError):
        raise StructureError(cached.problem, place=cached.place, fix=cached.fix)
    return cached if isinstance(cached, Constraint) and not cached.worn else None


def compile_schema(schema: dict[str, Any] | bool, tokenizer: Tokenizer) -> Constraint:
    """JSON that is valid under a JSON schema."""
    return compile_grammar(f"start: {schema_rule(schema)}", tokenizer)


def compile_json(tokenizer: Tokenizer) -> Constraint:
    """Any JSON object."""
    return compile_schema({"type": "object"}, tokenizer)


def compile_regex(pattern: str, tokenizer: Tokenizer) -> Constraint:
    """Text that matches the whole of a regular expression."""
    return compile_grammar(f"start: {regex_rule(pattern)}", tokenizer)


def compile_choice(choices: Sequence[str], tokenizer: Tokenizer) -> Constraint:
    """One of these texts."""
    return compile_grammar(f"start: {choice_rule(choices)}", tokenizer)


def _try_first(constraint: Constraint) -> None:
    """Make the first masks here, outside the engine's thread; most structures that reach a limit reach it in the second."""
    state = constraint.start()
    allowed = np.flatnonzero(state.mask())
    if len(allowed):
        state.advance(int(allowed[0])).mask()


@cache
def _limits() -> Any:
    return library().LLParserLimits(**LIMITS)


_numbers = count()
