"""Work beside the sampling: tools, rewards and hooks of environments, each with a deadline; no episode waits for another.

Coroutines run on an event loop in one thread; when a deadline passes they are cancelled. Plain functions run in threads of that
loop: a thread cannot be stopped, so a function that may not end belongs into a child process (tools/children.py) or a sandbox.
"""

from __future__ import annotations

import asyncio
import inspect
import queue
import threading
from collections.abc import Awaitable, Callable, Collection
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Generic, TypeVar

from ingot.envs.errors import EnvironmentFailed

Owner = TypeVar("Owner")
Work = Callable[[], Awaitable[Any]]
THREADS = 256  # plain functions that run at the same time, with room for some that never end
END_SECONDS = 10.0  # for what was cancelled to end


async def call(function: Callable[..., Any], *arguments: Any) -> Any:
    """The result of a function of the user's, plain or `async`. What it raises is a failure of the environment."""
    name = getattr(function, "__qualname__", repr(function))
    try:
        if inspect.iscoroutinefunction(function):
            return await function(*arguments)
        return await asyncio.to_thread(function, *arguments)
    except EnvironmentFailed:
        raise
    except Exception as error:
        raise EnvironmentFailed(f"{name} raised {type(error).__name__}: {error}") from error


class Beside(Generic[Owner]):
    """Work that is running, by who waits for it. Only the thread that begins work may use it; `with` ends all of it."""

    def __init__(self) -> None:
        self._running: dict[Future[None], Owner] = {}
        self._arrived: queue.SimpleQueue[tuple[Owner, Any, EnvironmentFailed | None]] = queue.SimpleQueue()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def __bool__(self) -> bool:
        """Whether anything is running."""
        self._running = {each: owner for each, owner in self._running.items() if not each.done()}
        return bool(self._running)

    def __enter__(self) -> Beside[Owner]:
        return self

    def __exit__(self, *exception: object) -> None:
        if self._loop is not None and self._thread is not None:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(END_SECONDS)

    def begin(self, owner: Owner, work: Work, seconds: float, what: str) -> None:
        """Begin work for an owner; `what` names it in the message when its time is over."""
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            self._loop.set_default_executor(ThreadPoolExecutor(THREADS, thread_name_prefix="ingot-hook"))
            self._thread = threading.Thread(target=self._run, args=(self._loop,), name="ingot-beside", daemon=True)
            self._thread.start()
        running = asyncio.run_coroutine_threadsafe(self._finish(owner, work, seconds, what), self._loop)
        self._running[running] = owner

    def ended(self, wait: float) -> list[tuple[Owner, Any, EnvironmentFailed | None]]:
        """What has ended since the last time: (owner, result, None) or (owner, None, failure); waits so long for the first."""
        found = []
        try:
            if wait > 0 and self:
                found.append(self._arrived.get(timeout=wait))
            while True:
                found.append(self._arrived.get_nowait())
        except queue.Empty:
            return found

    def cancel(self, keep: Collection[Owner] = ()) -> None:
        """Cancel what is running for others than these: nobody waits for it any more."""
        for each in [each for each, owner in self._running.items() if owner not in keep]:
            each.cancel()
            del self._running[each]

    async def _finish(self, owner: Owner, work: Work, seconds: float, what: str) -> None:
        result, failure = None, None
        try:
            async with asyncio.timeout(seconds):
                result = await work()
        except TimeoutError:
            failure = EnvironmentFailed(f"{what} did not end in {seconds:g} seconds")
        except EnvironmentFailed as error:
            failure = error
        except Exception as error:  # noqa: BLE001 - the work of other people's code: it is counted and shown as what it is
            failure = EnvironmentFailed(f"{what} raised {type(error).__name__}: {error}")
        self._arrived.put((owner, result, failure))

    @staticmethod
    def _run(loop: asyncio.AbstractEventLoop) -> None:
        try:
            loop.run_forever()
        finally:
            tasks = asyncio.all_tasks(loop)
            for task in tasks:
                task.cancel()
            loop.run_until_complete(asyncio.wait(tasks, timeout=END_SECONDS) if tasks else asyncio.sleep(0))
            loop.close()
