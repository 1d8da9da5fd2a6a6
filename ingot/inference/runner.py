"""The thread that owns an engine: takes requests from any thread, and delivers their tokens.

An engine belongs to one thread. The runner is that thread:

    loop: run what was handed in (new requests, cancellations, calls)  →  engine.step()  →  deliver the tokens

* An asyncio consumer gets its tokens by one `call_soon_threadsafe` per event loop and step, whatever the number of
  requests; a thread waits for the end of a request on a future. Nothing polls, and an idle runner sleeps.
* At most `limit` requests are running or queued. One more is refused at once (`QueueFull`), with the time after which a retry
  should succeed: a request that waits in vain costs more than one that is refused.
* `drain` takes nothing new, lets running requests end, and cuts off those that have not ended by the deadline.
* A step that fails ends the requests that were in the engine with its error; the runner goes on with the next ones. After
  `FAILURES` failed steps in a row the engine is given up and `failure` says why.
* `begin` and `call` run a function between two steps, `paused` holds the engine between two steps: weights may be changed
  there. What is handed in meanwhile waits for the step after: however much is called, the requests go on.

Invariant: whatever happens, every handle comes to an end exactly once: with a finish, or with an error.
"""

from __future__ import annotations

import asyncio
import logging
import math
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import TypeVar

from ingot.inference.engine import Engine
from ingot.inference.request import Finish, Request
from ingot.inference.sampling import Sampling
from ingot.inference.stats import Stats
from ingot.workspace.errors import IngotError

FAILURES = 3  # failed steps in a row after which the engine is given up
LONGEST_GAP = 10.0  # seconds between two ends of requests; a longer gap means that there were no requests
LONGEST_PAUSE = 600.0  # seconds for which `paused` may hold the engine
Result = TypeVar("Result")
log = logging.getLogger(__name__)


class QueueFull(IngotError):
    """`limit` requests are running or queued; a retry after `retry_after` seconds should succeed."""

    def __init__(self, limit: int, retry_after: int) -> None:
        super().__init__(f"{limit} requests are running or waiting", fix=f"try again in {retry_after} seconds")
        self.retry_after = retry_after


class NotTaking(IngotError):
    """The runner is draining, closed, or its engine has failed for good."""


@dataclass
class Chunk:
    """The tokens that a request got in one or more steps. `finish` and `error` come with the last chunk."""

    tokens: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    top_logprobs: list[list[tuple[int, float]]] = field(default_factory=list)
    finish: Finish | None = None
    error: Exception | None = None

    @property
    def last(self) -> bool:
        """Whether the request has come to its end."""
        return self.finish is not None or self.error is not None


Inbox = asyncio.Queue[tuple["Handle", Chunk]]


class Handle:
    """A request on its way. `done` resolves to the engine's request at its end; several handles may share an inbox."""

    def __init__(self, runner: EngineRunner, loop: asyncio.AbstractEventLoop | None, inbox: Inbox | None) -> None:
        self.done: Future[Request] = Future()
        self.done.set_running_or_notify_cancel()  # cancelling the future is refused: use `cancel`
        self.inbox = inbox
        self._runner, self._loop = runner, loop
        self._request: Request | None = None  # once the engine has taken it
        self._told = 0  # tokens that were sent to the inbox

    def cancel(self) -> None:
        """Free what the request holds, before the next step. Of one that has ended nothing is left to free."""
        if not self.done.done():
            with suppress(NotTaking):  # the thread has ended, and the request with it
                self._runner._hand_in(lambda: self._runner._cancel(self))

    @property
    def shared_tokens(self) -> int:
        """How many tokens of the prompt need not be read, because another request had read them."""
        return self._request.shared_tokens if self._request is not None else 0

    async def chunks(self) -> AsyncIterator[Chunk]:
        """The tokens as they come; raises the error that the request ended with. For a handle with its own inbox."""
        assert self.inbox is not None, "a handle that was made outside an event loop has no inbox"
        try:
            while True:
                _, chunk = await self.inbox.get()
                if chunk.error is not None:
                    raise chunk.error
                yield chunk
                if chunk.last:
                    return
        finally:
            self.cancel()


class Visit:
    """Work that counts towards `limit` as one request, whatever it hands in; at its end nothing of it stays in the engine."""

    def __init__(self, runner: EngineRunner) -> None:
        self._runner = runner
        self._handles: list[Handle] = []

    def score(self, tokens: Sequence[int], likeliest: int) -> Handle:
        """Hand in tokens to be scored from the second on; `done` has the request with its `scoring`."""
        runner = self._runner
        handle = Handle(runner, None, None)
        runner._hand_in(
            lambda: runner._enter(handle, lambda: runner.engine.submit_scoring(tokens, 1, likeliest=likeliest))
        )
        self._handles.append(handle)
        return handle

    def cancel(self) -> None:
        """Give up what it has handed in."""
        for handle in self._handles:
            handle.cancel()


class EngineRunner:
    """Owns `engine` from construction until `close`."""

    def __init__(self, engine: Engine, *, limit: int = 1024) -> None:
        if limit < 1:
            raise IngotError(f"a runner that takes {limit} requests", place="runner", fix="give a limit of 1 or more")
        self.engine, self.limit = engine, limit
        self.stats: Stats = replace(engine.stats)  # as they were after the last step
        self.failure: Exception | None = None
        self._changed = threading.Condition(threading.RLock())  # guards what follows
        self._jobs: deque[Callable[[], None]] = deque()
        self._open: set[Handle | Visit] = set()  # taken and not at their end
        self._taking, self._closing, self._ended = True, False, False
        self._pace, self._last_end = 1.0, time.monotonic()  # seconds from one request's end to the next one's
        self._inside: list[Handle] = []  # handles whose requests are in the engine; the thread's own
        self._failures = 0
        self._thread = threading.Thread(target=self._run, name="ingot-engine", daemon=True)
        self._thread.start()

    def __enter__(self) -> EngineRunner:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    # ---- what callers use, from any thread

    @property
    def taking(self) -> bool:
        """Whether a new request would be looked at."""
        return self._taking and self.failure is None

    @property
    def open(self) -> int:
        """How many requests are running or waiting."""
        return len(self._open)

    def submit(
        self, prompt: Sequence[int], sampling: Sampling, deadline: float | None = None, inbox: Inbox | None = None
    ) -> Handle:
        """Hand in a request; `deadline` in seconds from now. What the engine refuses is the handle's error.

        Called inside an event loop, the tokens arrive in `inbox` (or an own one) of that loop.
        """
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            loop = None
        handle = Handle(self, loop, inbox or (asyncio.Queue() if loop else None))
        with self._changed:
            self._check_limit()
            self._hand_in(lambda: self._enter(handle, lambda: self.engine.submit(prompt, sampling, deadline=deadline)))
            self._open.add(handle)
        return handle

    @contextmanager
    def visit(self) -> Iterator[Visit]:
        """The body counts as a request: it is refused as one is, and a drain waits for its end."""
        visit = Visit(self)
        with self._changed:
            self._check_limit()
            self._open.add(visit)
        try:
            yield visit
        finally:
            visit.cancel()
            with self._changed:
                self._open.discard(visit)
                self._changed.notify_all()

    def call(self, function: Callable[[], Result], timeout: float = 60.0) -> Result:
        """Run `function` in the engine's thread between two steps and give what it returns or raises."""
        future = self.begin(function)
        try:
            return future.result(timeout)
        finally:
            future.cancel()  # too late: it must not run after the caller has gone on

    def begin(self, function: Callable[[], Result]) -> Future[Result]:
        """A future of `function`, which runs in the engine's thread between two steps; until then it can be cancelled."""
        future: Future[Result] = Future()

        def job() -> None:
            if not future.set_running_or_notify_cancel():
                return
            try:
                future.set_result(function())
            except BaseException as error:  # it belongs to the caller, whatever it is
                future.set_exception(error)
                if not isinstance(error, Exception):
                    raise

        self._hand_in(job)
        return future

    @contextmanager
    def paused(self, timeout: float = 60.0, longest: float = LONGEST_PAUSE) -> Iterator[Engine]:
        """Hold the engine between two steps while the body runs; the engine is the caller's for that time.

        A body that takes more than `longest` seconds costs the runner its engine: a step might run with half of the
        new weights. All requests end with the error that the body ends with, and no new ones are taken.
        """
        reached, go_on = threading.Event(), threading.Event()
        overdue = IngotError(
            f"the engine was held for more than {longest:g} seconds", place="runner", fix="hold it for a shorter time"
        )

        def hold() -> None:
            reached.set()
            go_on.wait(longest)
            with self._changed:
                if go_on.is_set():
                    return
                self.failure = overdue
            inside, self._inside = self._inside, []
            self._send({handle: Chunk(error=overdue) for handle in inside})  # the engine itself is not touched

        self._hand_in(hold)
        try:
            if not reached.wait(timeout):
                raise IngotError(f"the engine's step has not ended within {timeout:g} seconds", place="runner")
            yield self.engine
        finally:
            with self._changed:
                go_on.set()
        if self.failure is overdue:
            raise overdue

    def stop_taking(self) -> None:
        """Refuse new requests from now on."""
        with self._changed:
            self._taking = False

    def drain(self, timeout: float) -> bool:
        """Take nothing new and wait for what runs; what has not ended in `timeout` seconds is cut off (then: False)."""
        self.stop_taking()
        end = time.monotonic() + timeout
        with self._changed:
            while self._open and (left := end - time.monotonic()) > 0:
                self._changed.wait(left)
            late = list(self._open)
        for handle in late:
            handle.cancel()
        return not late

    def close(self, timeout: float = 30.0) -> None:
        """Cut off what runs and end the thread."""
        self.drain(0)
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        self._thread.join(timeout)

    # ---- the thread

    def _hand_in(self, job: Callable[[], None]) -> None:
        with self._changed:
            if self._ended:
                raise NotTaking("the engine's thread has ended", place="runner", fix="make a new runner")
            self._jobs.append(job)
            self._changed.notify_all()

    def _run(self) -> None:
        try:
            while self._wait_for_work():
                self._do_jobs()
                if self._inside:
                    self._step()
                self.stats = replace(self.engine.stats)  # before the step's tokens are delivered
                self._tell()
        finally:  # also after an unforeseen error: no consumer may wait for ever
            self.failure = self.failure or NotTaking("the engine's thread has ended", place="runner")
            with self._changed:
                self._ended = True  # so that this is the last round
            self._do_jobs()
            self._end_all(self.failure)

    def _wait_for_work(self) -> bool:
        """Sleep until there is something to do; false when the runner is to end."""
        with self._changed:
            while not (self._jobs or self._inside or self._closing):
                self._changed.wait(LONGEST_PAUSE)
            return bool(self._jobs or self._inside or not self._closing)

    def _do_jobs(self) -> None:
        """One round: what is handed in meanwhile waits for the next one, since there may be no end to it."""
        for _ in range(len(self._jobs)):
            with self._changed:
                job = self._jobs.popleft()
            job()

    def _enter(self, handle: Handle, submit: Callable[[], Request]) -> None:
        if self.failure is not None:
            self._send({handle: Chunk(error=self.failure)})
            return
        try:
            handle._request = submit()
        except IngotError as error:
            self._send({handle: Chunk(error=error)})
        except Exception as error:  # a bug, which is this request's alone
            log.exception("the engine could not take a request")
            self._send({handle: Chunk(error=error)})
        else:
            self._inside.append(handle)

    def _cancel(self, handle: Handle) -> None:
        if handle in self._inside and handle._request is not None:
            self.engine.cancel(handle._request)
            self._inside.remove(handle)
            self._send({handle: self._news(handle, handle._request.finish or "cancelled")})

    def _step(self) -> None:
        try:
            self.engine.step()
        except Exception as error:  # of any kind: what one request brings about must not end all later ones
            log.exception("a step of the engine failed")
            self._failures += 1
            if self._failures >= FAILURES:
                self.failure = error
            self._end_all(error)
        else:
            self._failures = 0

    def _tell(self) -> None:
        """Deliver the tokens of the step."""
        news = {}
        for handle in self._inside:
            request = handle._request
            if request is not None and (request.finish is not None or len(request.tokens) > handle._told):
                news[handle] = self._news(handle, request.finish)
        self._inside = [handle for handle in self._inside if handle not in news or not news[handle].last]
        self._send(news)

    @staticmethod
    def _news(handle: Handle, finish: Finish | None) -> Chunk:
        request = handle._request
        assert request is not None
        start, handle._told = handle._told, len(request.tokens)
        news = request.tokens[start:], request.logprobs[start:], request.top_logprobs[start:]
        return Chunk(*news, finish, request.problem)

    def _end_all(self, error: Exception) -> None:
        """End every request in the engine with `error`."""
        inside, self._inside = self._inside, []
        self._send({handle: Chunk(error=error) for handle in inside})  # first: a broken engine may refuse the rest
        for handle in inside:
            if handle._request is not None:
                self.engine.cancel(handle._request)

    def _send(self, news: dict[Handle, Chunk]) -> None:
        """Deliver chunks, by one call per event loop; handles with a last chunk are closed."""
        ended = [handle for handle, chunk in news.items() if chunk.last]
        if ended:
            with self._changed:
                self._open.difference_update(ended)
                now = time.monotonic()
                since = min(now - self._last_end, LONGEST_GAP)
                self._pace += 0.1 * (since / len(ended) - self._pace)
                self._last_end = now
                self._changed.notify_all()
        by_loop: dict[asyncio.AbstractEventLoop, list[tuple[Handle, Chunk]]] = {}
        for handle, chunk in news.items():
            if handle._loop is not None:
                by_loop.setdefault(handle._loop, []).append((handle, chunk))
        for loop, items in by_loop.items():
            try:
                loop.call_soon_threadsafe(_deliver, items)
            except RuntimeError:  # the loop is closed: no consumer is left
                for handle, _ in items:
                    handle.cancel()
        for handle in ended:
            error = news[handle].error
            if error is not None:
                handle.done.set_exception(error)
            elif handle._request is not None:
                handle.done.set_result(handle._request)

    def _check_taking(self) -> None:
        if self.failure is not None:
            raise NotTaking(f"the engine has failed: {self.failure}", place="runner", fix="start the server again")
        if not self._taking:
            raise NotTaking("no new requests are taken: shutting down", place="runner")

    def _check_limit(self) -> None:
        self._check_taking()
        if len(self._open) >= self.limit:
            raise QueueFull(self.limit, self._retry_after())

    def _retry_after(self) -> int:
        """Seconds until a retry should succeed: the recent time between two ends of requests, between a second and a minute."""
        return min(60, max(1, math.ceil(self._pace)))


def _deliver(items: list[tuple[Handle, Chunk]]) -> None:
    for handle, chunk in items:
        assert handle.inbox is not None
        handle.inbox.put_nowait((handle, chunk))
