"""The tokens of one request as they are sampled, for a reader in another thread."""

from __future__ import annotations

from collections.abc import Generator
from typing import Protocol

from ingot.inference.request import Request


class SteppedEngine(Protocol):
    """What a stream needs of the engine."""

    def step(self) -> object:
        """Go on with all requests."""

    def cancel(self, request: Request) -> object:
        """End a request, wherever it is."""


def stream_tokens(engine: SteppedEngine, request: Request) -> Generator[int, None, None]:
    """The tokens of a request of the engine; closing the iterator frees its slot."""
    tokens = _stream(engine, request)
    next(tokens)  # into its `try`: closing it before the first token frees its slot, too
    return tokens


def _stream(engine: SteppedEngine, request: Request) -> Generator[int, None, None]:
    try:
        yield 0  # for `stream_tokens` alone
        given = 0
        while request.finish is None or given < len(request.tokens):
            while given < len(request.tokens):
                given += 1
                yield request.tokens[given - 1]
            if request.finish is None:
                engine.step()
    finally:
        engine.cancel(request)
