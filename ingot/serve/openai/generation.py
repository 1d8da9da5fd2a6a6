"""The samples of one HTTP request: submitted, received and cancelled together.

Several choices, of one prompt or more, share an inbox. Chunks that came while the loop was busy are merged into one
per choice, so that a slow client or a busy loop costs larger events, not more of them.

Invariant: when a generation is closed, by its end, an error or a client that went away, nothing of it stays in the engine.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Protocol, TypeVar

from starlette.requests import Request
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from ingot.inference.runner import Chunk, Handle, Inbox
from ingot.inference.sampling import Sampling
from ingot.serve.openai.errors import ApiError, as_api_error
from ingot.serve.openai.service import Service
from ingot.workspace.errors import IngotError

Result = TypeVar("Result")


class ClientGone(Exception):
    """The client closed the connection before its answer was there."""


def check_count(service: Service, choices: int) -> None:
    """Refuse a request for more choices than the server takes at once."""
    if choices > service.runner.limit:
        message = f"{choices} choices in all; this server takes {service.runner.limit} at once"
        raise ApiError(400, message, param="n", code="invalid_value")


class RunningGeneration:
    """Samples `prompts[i]` by `samplings[i]` as choice i, from construction until `close`."""

    def __init__(
        self, service: Service, request: Request, prompts: Sequence[list[int]], samplings: Sequence[Sampling]
    ) -> None:
        check_count(service, len(prompts))
        self._tally = request.state.tally
        self._tally.read += sum({id(prompt): len(prompt) for prompt in prompts}.values())  # of several choices once
        self._metrics = service.metrics
        self._inbox: Inbox = asyncio.Queue()
        self._first: list[tuple[Handle, Chunk]] = []  # what `begin` has seen
        self._handles: list[Handle] = []
        self._began = time.monotonic()
        self._last = [0.0] * len(prompts)  # when each choice got its last token
        self._left = set(range(len(prompts)))
        try:
            for prompt, sampling in zip(prompts, samplings, strict=True):
                self._handles.append(service.runner.submit(prompt, sampling, service.deadline, self._inbox))
        except IngotError as error:
            self.close()
            raise as_api_error(error) from error

    def __enter__(self) -> RunningGeneration:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def shared_tokens(self, choice: int) -> int:
        """How many tokens of this choice's prompt need not be read."""
        return self._handles[choice].shared_tokens

    def stop(self, choice: int) -> None:
        """This choice needs no more tokens."""
        if choice in self._left:
            self._left.discard(choice)
            self._metrics.whole.observe(time.monotonic() - self._began)
        self._handles[choice].cancel()

    def close(self) -> None:
        """Give up what still runs."""
        for handle in self._handles:
            handle.cancel()

    @contextmanager
    def closing_on_error(self) -> Iterator[None]:
        """Give up if the block fails; if not, the caller closes it later."""
        try:
            yield
        except BaseException:
            self.close()
            raise

    async def begin(self) -> None:
        """Wait for the first tokens: an error before them can still be the status of the answer."""
        handle, chunk = await self._inbox.get()
        _check(chunk)
        self._first = [(handle, chunk)]

    async def chunks(self) -> AsyncIterator[tuple[int, Chunk]]:
        """The chunks of each choice, until all have ended."""
        number = {handle: choice for choice, handle in enumerate(self._handles)}
        while self._left:
            news: dict[int, Chunk] = {}
            arrived = self._first or [await self._inbox.get()]
            self._first = []
            while not self._inbox.empty():
                arrived.append(self._inbox.get_nowait())
            for handle, chunk in arrived:
                choice = number[handle]
                news[choice] = _merged(news[choice], chunk) if choice in news else chunk
            for choice, chunk in news.items():
                if choice not in self._left:
                    continue
                _check(chunk)
                self._measure(choice, chunk)
                if chunk.last:
                    self._left.discard(choice)
                yield choice, chunk

    def _measure(self, choice: int, chunk: Chunk) -> None:
        now, count = time.monotonic(), len(chunk.tokens)
        self._tally.written += count
        if count and not self._last[choice]:
            self._metrics.first_token.observe(now - self._began)
            for _ in range(count - 1):  # those that came with it
                self._metrics.between_tokens.observe(0.0)
        elif count:
            for _ in range(count):
                self._metrics.between_tokens.observe((now - self._last[choice]) / count)
        self._last[choice] = now
        if chunk.last:
            self._metrics.whole.observe(now - self._began)


def _check(chunk: Chunk) -> None:
    """Raise the error that ended a request, if there was one."""
    if chunk.error is not None:
        raise as_api_error(chunk.error) from chunk.error
    if chunk.finish == "cancelled":
        raise ApiError(503, "the server is shutting down", code="draining")


def _merged(first: Chunk, second: Chunk) -> Chunk:
    return Chunk(
        first.tokens + second.tokens,
        first.logprobs + second.logprobs,
        first.top_logprobs + second.top_logprobs,
        second.finish,
        second.error,
    )


class Choice(Protocol):
    """One answer as it comes; `finish` is set when it needs no more tokens."""

    finish: str | None

    @property
    def tokens(self) -> int:
        """Tokens of the answer so far."""

    @property
    def reasoning_tokens(self) -> int:
        """Tokens of them that are thinking."""

    def opening(self) -> Iterable[dict[str, Any]]:
        """The entries of a stream before its first token."""

    def take(self, chunk: Chunk) -> Iterable[dict[str, Any]]:
        """The entries of a stream for some more tokens."""

    def whole(self) -> dict[str, Any]:
        """The choice in one piece."""


async def collect(choices: Sequence[Choice], generation: RunningGeneration) -> None:
    """Give every choice its tokens, up to the end of the last one."""
    async for index, chunk in generation.chunks():
        choices[index].take(chunk)
        if choices[index].finish is not None:
            generation.stop(index)


async def unless_gone(request: Request, work: Awaitable[Result]) -> Result:
    """The result of `work`; if the client goes away before, it is cancelled."""
    working, gone = asyncio.ensure_future(work), asyncio.ensure_future(_gone(request))
    try:
        await asyncio.wait({working, gone}, return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            return working.result()
        raise ClientGone
    finally:
        working.cancel()
        gone.cancel()


async def _gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


class EventStream(StreamingResponse):
    """Server-sent events; whatever becomes of the connection, the generation is closed."""

    def __init__(self, events: AsyncIterator[bytes], generation: RunningGeneration, service: Service) -> None:
        headers = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}  # proxies must not hold events back
        super().__init__(events, media_type="text/event-stream", headers=headers)
        self._generation, self._metrics = generation, service.metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the events until the last one, or until the client goes away."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._metrics.abandoned.inc(bool(self._generation._left))
            self._generation.close()
