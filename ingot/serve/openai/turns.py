"""The form of a whole turn, put together from small constraints: thinking, then an answer or tool calls.

A constraint of `ingot.inference.structure` holds a text from its first token to its last. A turn of a chat has special
tokens around such texts, so turns are built from these parts:

    Token(id)            exactly this token                      Chain(a, b, …)   one after the other
    Anything(except)     any tokens but these, or none           Either(a, b)     the first that takes the first token
    Optional(a)          a or nothing                            Several(a)       a once or more often

For example a turn that must call a tool, of a model that may think first:

    thinking = Chain(Token(<think>), Anything, Token(</think>))
    turn = Chain(Optional(thinking), Several(Chain(Token(<tool_call>), schema, Token(</tool_call>))))

Where two parts could take a token, the earlier one gets it; the parts are chosen so that this is never a dead end: what
follows an open end begins with a special token or a sign that cannot stand there.

States are not changed, and a mask is put together once per state.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import cached_property, reduce

import numpy as np
from numpy.typing import NDArray

from ingot.inference.sampling import Constraint, ConstraintState
from ingot.workspace.errors import IngotError

Mask = NDArray[np.uint8]


class _Fixed:
    """A state with a known mask."""

    def __init__(self, mask: Mask, complete: bool, after: _Fixed | None = None) -> None:
        self._mask, self.complete = mask, complete
        self._after = after or self

    def mask(self) -> Mask:
        return self._mask

    def advance(self, token: int) -> ConstraintState:
        _check(self, token)
        return self._after


class Token:
    """Exactly one token, `id`, of a vocabulary of `size`."""

    def __init__(self, id: int, size: int) -> None:
        only = np.zeros(size, dtype=np.uint8)
        only[id] = 1
        self._start = _Fixed(only, complete=False, after=_Fixed(np.zeros(size, dtype=np.uint8), complete=True))

    def start(self) -> ConstraintState:
        """Before the token."""
        return self._start


class Anything:
    """Any number of tokens, but none of `excepted`."""

    def __init__(self, excepted: Collection[int], size: int) -> None:
        mask = np.ones(size, dtype=np.uint8)
        mask[list(excepted)] = 0
        self._start = _Fixed(mask, complete=True)

    def start(self) -> ConstraintState:
        """The only state."""
        return self._start


class Chain:
    """Its parts one after the other."""

    def __init__(self, *parts: Constraint) -> None:
        self.parts = parts

    def start(self) -> ConstraintState:
        """At the start of the first part."""
        return _InChain(self.parts[0].start(), self.parts[1:])


class Either:
    """One of its parts: the first that takes the first token."""

    def __init__(self, *parts: Constraint) -> None:
        self.parts = parts

    def start(self) -> ConstraintState:
        """Before the choice."""
        return _Choice([part.start() for part in self.parts], complete=False)


class Optional:
    """Its part, or nothing."""

    def __init__(self, part: Constraint) -> None:
        self.part = part

    def start(self) -> ConstraintState:
        """Before the choice."""
        return _Choice([self.part.start()], complete=True)


class Several:
    """Its part, once or more often."""

    def __init__(self, part: Constraint) -> None:
        self.part = part

    def start(self) -> ConstraintState:
        """In the first round."""
        return _InChain(self.part.start(), (_Again(self),))


class _Again:
    """Nothing, or another round; made when the round before it ends, so that the rounds are not counted."""

    def __init__(self, several: Several) -> None:
        self._several = several

    def start(self) -> ConstraintState:
        return _Round(self._several)


class _Round:
    def __init__(self, several: Several) -> None:
        self._several = several
        self.complete = True

    def mask(self) -> Mask:
        return self._several.part.start().mask()

    def advance(self, token: int) -> ConstraintState:
        return self._several.start().advance(token)


class _Choice:
    def __init__(self, options: list[ConstraintState], complete: bool) -> None:
        self._options = options
        self.complete = complete or any(option.complete for option in options)

    def mask(self) -> Mask:
        return self._mask

    @cached_property
    def _mask(self) -> Mask:
        return reduce(np.bitwise_or, (option.mask() for option in self._options))

    def advance(self, token: int) -> ConstraintState:
        _check(self, token)
        return next(option for option in self._options if option.mask()[token]).advance(token)


class _InChain:
    """Inside the first of the parts that are left."""

    def __init__(self, inner: ConstraintState, rest: tuple[Constraint, ...]) -> None:
        self._inner, self._rest = inner, rest

    @cached_property
    def _open(self) -> list[tuple[ConstraintState, tuple[Constraint, ...]]]:
        """Where the next token may go: on in this part, or into the ones behind it if this one may end here."""
        places = [(self._inner, self._rest)]
        while places[-1][0].complete and places[-1][1]:
            rest = places[-1][1]
            places.append((rest[0].start(), rest[1:]))
        return places

    @property
    def complete(self) -> bool:
        inner, rest = self._open[-1]
        return inner.complete and not rest

    def mask(self) -> Mask:
        return self._mask

    @cached_property
    def _mask(self) -> Mask:
        return reduce(np.bitwise_or, (inner.mask() for inner, _ in self._open))

    def advance(self, token: int) -> ConstraintState:
        _check(self, token)
        inner, rest = next(place for place in self._open if place[0].mask()[token])
        after = inner.advance(token)
        if after is self._inner and rest is self._rest:
            return self  # its mask is made already
        return _InChain(after, rest) if rest else after


def _check(state: ConstraintState, token: int) -> None:
    if not state.mask()[token]:
        raise IngotError(f"token {token} does not fit the form of the turn", place="constraint")
