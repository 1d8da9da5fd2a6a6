"""Tool calls beside the sampling: each runs in a thread of its own and has a deadline, so that no other trajectory waits for it.

The calls of one turn run one after the other, in their order; those of different trajectories at the same time. A call that
raises or is over its deadline is answered by a text that says so, which the model can read.

A thread cannot be stopped from outside: a call that is over its deadline goes on until it ends by itself, but its answer is
dropped, and it does not keep the process from ending. A tool that may run for ever should do so in a process (envs/tools/).
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from ingot.tokens.chat import Message, ToolCall

Tool = Callable[[Mapping[str, Any]], str]
Owner = TypeVar("Owner")
TEXT_LIMIT = 2000  # characters of a tool result that reach the model


@dataclass(eq=False)
class _Turn(Generic[Owner]):
    owner: Owner
    calls: Sequence[ToolCall]
    tools: Mapping[str, Tool]
    answers: list[Message] = field(default_factory=list)
    deadline: float = 0.0  # of the call that is running, by the monotonic clock


class ToolCalls(Generic[Owner]):
    """The calls that are running, `deadline` seconds each. Only the thread that begins turns may use it."""

    def __init__(self, deadline: float) -> None:
        self._deadline = deadline
        self._turns: list[_Turn[Owner]] = []
        self._arrived: queue.SimpleQueue[tuple[_Turn[Owner], int, str]] = queue.SimpleQueue()

    def __bool__(self) -> bool:
        """Whether any calls are running."""
        return bool(self._turns)

    def begin(self, owner: Owner, calls: Sequence[ToolCall], tools: Mapping[str, Tool]) -> None:
        """Begin the calls of a turn, for which there are these tools."""
        turn = _Turn(owner, calls, tools)
        self._turns.append(turn)
        self._call(turn)

    def ended(self, *, wait: bool) -> list[tuple[Owner, list[Message]]]:
        """Turns whose calls have all been answered since the last time; `wait`: until something has happened."""
        answers, now = self._answers(wait), time.monotonic()
        late = f"error: no answer in {self._deadline:g} seconds"
        answers += [(turn, len(turn.answers), late) for turn in self._turns if turn.deadline <= now]
        through = []
        for turn, place, text in answers:
            if place != len(turn.answers):  # it came after its deadline
                continue
            turn.answers.append(Message("tool", text))
            if len(turn.answers) < len(turn.calls):
                self._call(turn)
            else:
                self._turns.remove(turn)
                through.append((turn.owner, turn.answers))
        return through

    def _answers(self, wait: bool) -> list[tuple[_Turn[Owner], int, str]]:
        """All that have arrived; or the first that does before the next deadline."""
        answers = []
        try:
            if wait and self._turns:
                nearest = min(turn.deadline for turn in self._turns)
                answers.append(self._arrived.get(timeout=max(0.0, nearest - time.monotonic())))
            while True:
                answers.append(self._arrived.get_nowait())
        except queue.Empty:
            return answers

    def _call(self, turn: _Turn[Owner]) -> None:
        """Begin the turn's next call."""
        place, call = len(turn.answers), turn.calls[len(turn.answers)]
        turn.deadline = time.monotonic() + self._deadline

        def work() -> None:
            try:
                text: object = turn.tools[call.name](call.arguments)
                if not isinstance(text, str):
                    text = f"error: the tool gave {type(text).__name__} instead of a text"
            except BaseException as error:  # noqa: BLE001 - whatever a tool raises is what the model must read
                text = f"error: {type(error).__name__}: {error}"
            self._arrived.put((turn, place, str(text)[:TEXT_LIMIT]))

        if call.name in turn.tools:
            threading.Thread(target=work, name=f"ingot-tool-{call.name}", daemon=True).start()
        else:
            self._arrived.put((turn, place, "error: there is no such tool"))
