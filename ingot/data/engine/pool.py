"""Pools carry out calls: in this process, in processes of this machine (local_pool.py), or on a Ray cluster (ray_pool.py).

A pool takes calls and gives answers, in any order. It decides nothing: Work (work.py) says what is called, calls again
what was lost, and notices when no answer comes.

After a call a process gives free memory back to the system (workspace/memory.py). Cycles are not collected: with a compiler's
objects around, that takes longer than many a call.
"""

from __future__ import annotations

import pickle
import traceback
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Any, NoReturn

from ingot.workspace.errors import IngotError
from ingot.workspace.memory import release_memory


@dataclass(frozen=True)
class PoolCall:
    """`function(*arguments)`; the function is at the top of a module and everything can be pickled."""

    number: int
    function: Callable[..., Any]
    arguments: tuple[Any, ...]


@dataclass(frozen=True)
class CallResult:
    """What became of a call: done, an error that it raised, or `lost` (why its process is gone)."""

    number: int
    value: Any = None
    error: BaseException | None = None
    trace: str = ""  # where the error was raised, if that is a programmer's concern
    lost: str = ""

    def fail(self) -> NoReturn:
        """Raise the error of the call."""
        assert self.error is not None
        raise self.error from (FarError(self.trace) if self.trace else None)


class FarError(Exception):
    """The traceback of another process, shown as the cause of the error that was raised here."""

    def __str__(self) -> str:
        return f"\n{self.args[0]}"


def answer(call: PoolCall) -> CallResult:
    """Carry out a call in this process. Every error is an answer, else a pool would wait for ever."""
    try:
        return CallResult(call.number, value=call.function(*call.arguments))
    except Exception as error:  # noqa: BLE001  - raised again where the call came from
        trace = "" if isinstance(error, IngotError) else traceback.format_exc()
        return CallResult(call.number, error=portable(error), trace=trace)
    finally:
        release_memory()


def portable(error: BaseException) -> BaseException:
    """The error if it can be sent to another process, else a plain one with the same text."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:  # noqa: BLE001  - a class that cannot be pickled may fail in any way
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error


class WorkPool(ABC):
    """Use as a context manager."""

    width: int = 1
    """How many calls to have under way at once."""

    @property
    def running(self) -> bool:
        """Whether there are processes that only wait for calls."""
        return True

    @abstractmethod
    def start(self) -> None:
        """Start the processes, if there are none; else the first calls do."""

    @abstractmethod
    def submit(self, call: PoolCall) -> None:
        """Begin a call."""

    @abstractmethod
    def wait(self, seconds: float) -> list[CallResult]:
        """Answers that have come; waits up to `seconds` for the first."""

    @abstractmethod
    def close(self) -> None:
        """End all calls that are under way, and the processes of the pool. It may be used again."""

    def __enter__(self) -> WorkPool:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class SerialPool(WorkPool):
    """One call after the other, in this process."""

    def __init__(self) -> None:
        self.calls: deque[PoolCall] = deque()

    def start(self) -> None:
        pass

    def submit(self, call: PoolCall) -> None:
        self.calls.append(call)

    def wait(self, seconds: float) -> list[CallResult]:
        return [answer(self.calls.popleft())] if self.calls else []

    def close(self) -> None:
        self.calls.clear()
