"""Work beside the sampling: tools, rewards and hooks of environments, each with a deadline; no episode waits for another.

Coroutines run on an event loop in one thread; when a deadline passes they are cancelled. Plain functions run in threads of that
loop: a thread cannot be stopped, so a function that may not end belongs into a child process (tools/children.py) or a sandbox.
"""

from __future__ import annotations

import asyncio
import inspect
import queue
import threading
from collections.abc import Awaitable, Callable, Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from ingot.envs.errors import EnvironmentFailed

Owner = TypeVar("Owner")
Work = Callable[[], Awaitable[Any]]
THREADS = 256  # plain functions that run at the same time, with room for some that never end
END_SECONDS = 10.0  # for what was cancelled to end


async def call(function: Callable[..., Any], *arguments: Any) -> Any:
    """The result of a function of the user's, plain (in a thread) or `async`. What it raises is a failure of the environment."""
    with named_failures(function):
        if inspect.iscoroutinefunction(function):
            return await function(*arguments)
        return await asyncio.to_thread(function, *arguments)


@contextmanager
def named_failures(function: Callable[..., Any]) -> Iterator[None]:
    """Makes what a function of the user's raises a failure of the environment, with the function's name."""
    try:
        yield
    except EnvironmentFailed:
        raise
    except Exception as error:
        name = getattr(function, "__qualname__", repr(function))
        raise EnvironmentFailed(f"{name} raised {type(error).__name__}: {error}") from error


@dataclass(eq=False)
class _Item(Generic[Owner]):
    """Work for an owner. The loop's thread makes `task`."""

    owner: Owner
    work: Work
    seconds: float
    what: str
    task: asyncio.Task[None] | None = None

    @property
    def ended(self) -> bool:
        """Whether its result has arrived, or it was cancelled."""
        return self.task is not None and self.task.done()


class BackgroundWork(Generic[Owner]):
    """Running background work, keyed by the episode that waits for it.

    Only the thread that begins work may use it; `with` ends all of it.

    What was begun is handed to the loop by the next `ended`, all at once: waking its thread for each of hundreds of items would
    cost a change of threads every time.
    """

    def __init__(self) -> None:
        self._due: list[_Item[Owner]] = []  # begun, and not handed over yet
        self._running: set[_Item[Owner]] = set()
        self._arrived: queue.SimpleQueue[tuple[Owner, Any, EnvironmentFailed | None]] = queue.SimpleQueue()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def __bool__(self) -> bool:
        """Whether anything is running."""
        self._running = {each for each in self._running if not each.ended}
        return bool(self._running or self._due)

    def __enter__(self) -> BackgroundWork[Owner]:
        return self

    def __exit__(self, *exception: object) -> None:
        if self._loop is not None and self._thread is not None:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(END_SECONDS)

    def begin(self, owner: Owner, work: Work, seconds: float, what: str) -> None:
        """Begin work for an owner, at the next `ended`; `what` names it in the message when its time is over."""
        self._due.append(_Item(owner, work, seconds, what))

    def ended(self, wait: float) -> list[tuple[Owner, Any, EnvironmentFailed | None]]:
        """What has ended since the last time: (owner, result, None) or (owner, None, failure); waits so long for the first."""
        self._hand_over()
        found = []
        try:
            if wait > 0 and self:
                found.append(self._arrived.get(timeout=wait))
            while True:
                found.append(self._arrived.get_nowait())
        except queue.Empty:
            return found

    def cancel(self, keep: Collection[Owner] = ()) -> None:
        """Cancel work whose owner is not in `keep`."""
        self._due = [each for each in self._due if each.owner in keep]
        given_up = [each for each in self._running if each.owner not in keep]
        self._running.difference_update(given_up)
        if self._loop is not None and given_up:
            self._loop.call_soon_threadsafe(self._cancel, given_up)

    def _hand_over(self) -> None:
        """Let the loop begin what is due."""
        if not self._due:
            return
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            self._loop.set_default_executor(ThreadPoolExecutor(THREADS, thread_name_prefix="ingot-hook"))
            self._thread = threading.Thread(target=self._run, args=(self._loop,), name="ingot-beside", daemon=True)
            self._thread.start()
        due, self._due = self._due, []
        self._running.update(due)
        self._loop.call_soon_threadsafe(self._start, due)

    # ---- in the loop's thread

    def _start(self, due: list[_Item[Owner]]) -> None:
        for each in due:
            each.task = asyncio.get_running_loop().create_task(self._finish(each))

    @staticmethod
    def _cancel(given_up: list[_Item[Owner]]) -> None:
        for each in given_up:
            if each.task is not None:
                each.task.cancel()

    async def _finish(self, item: _Item[Owner]) -> None:
        result, failure = None, None
        try:
            async with asyncio.timeout(item.seconds):
                result = await item.work()
        except TimeoutError:
            failure = EnvironmentFailed(f"{item.what} did not end in {item.seconds:g} seconds")
        except EnvironmentFailed as error:
            failure = error
        except (Exception, SystemExit) as error:  # noqa: BLE001 - other people's code: counted and shown; an exit would end this thread
            failure = EnvironmentFailed(f"{item.what} raised {type(error).__name__}: {error}")
        self._arrived.put((item.owner, result, failure))

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
