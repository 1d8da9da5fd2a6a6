"""A conversation, turn by turn: it streams the answers and runs the tools that they call.

The answers come from a `ChatModel`: a model in this process (`local_model.py`) or an OpenAI-compatible server
(`server_model.py`).

Invariant: `messages` always is a conversation that can go on. An answer that is stopped ends there and stays; a call
whose tool did not run has an answer that says so; a message without an answer is taken back, and `retry` sends it.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol

from ingot.envs.tools.tool import REFUSED, Tool, call_tool, schemas
from ingot.inference.sampling import Sampling
from ingot.tokens.chat import Message, ToolCall
from ingot.workspace.errors import IngotError

CALL_ROUNDS = 8  # a model that keeps calling tools is stopped here
STOPPED = "error: the user stopped the call"
Kind = Literal["thinking", "content", "call"]


@dataclass(frozen=True)
class Piece:
    """Some text of an assistant's turn, on its way to the screen. A call is text too; an empty piece ends one."""

    kind: Kind
    text: str


class ChatModel(Protocol):
    """Writes the assistant's turns."""

    calls_tools: bool
    about: str  # what it is, for the user

    def reply(
        self, messages: Sequence[Message], tools: Sequence[dict[str, Any]], thinking: bool, sampling: Sampling
    ) -> Generator[Piece, None, None]:
        """The next turn, piece by piece; closing the generator stops it."""

    def said(self) -> Message | None:
        """The turn that the last `reply` gave, as far as it went; None if nothing was said."""

    def tokens(self) -> tuple[int, int | None]:
        """How many tokens the conversation has, and how many it may have if that is known."""


class TerminalConversation:
    """The messages so far. `sampling.seed` is the seed of the first turn; later turns count up from it.

    `allow` decides on calls of tools that ask first.
    """

    def __init__(
        self,
        model: ChatModel,
        sampling: Sampling,
        tools: Mapping[str, Tool] | None = None,
        thinking: bool = True,
        allow: Callable[[ToolCall], bool] = lambda call: False,
    ) -> None:
        self.model, self.sampling, self.tools, self.thinking, self.allow = model, sampling, tools, thinking, allow
        self.messages: list[Message] = []
        self._unsent: str | None = None
        self._turns = 0

    @property
    def system(self) -> str:
        """The system prompt, empty if there is none."""
        return self.messages[0].content if self.messages[:1] and self.messages[0].role == "system" else ""

    @system.setter
    def system(self, text: str) -> None:
        others = [message for message in self.messages if message.role != "system"]
        self.messages = ([Message("system", text)] if text else []) + others

    def reset(self) -> None:
        """Begin again, with the same system prompt."""
        self.messages = [message for message in self.messages if message.role == "system"]
        self._unsent, self._turns = None, 0

    def load(self, messages: Sequence[Message]) -> None:
        """Go on with another conversation; if the user had the last word, `retry` answers it."""
        self.messages, self._unsent, self._turns = list(messages), None, 0
        if self.messages and self.messages[-1].role == "user":
            self._unsent = self.messages.pop().content

    def say(self, text: str) -> Generator[Piece | Message, None, None]:
        """The answer to the user's `text`: pieces of the assistant's turns, tool results as messages in between."""
        self.messages.append(Message("user", text))
        self._unsent, kept = text, len(self.messages)
        try:
            yield from self._rounds()
        finally:
            if len(self.messages) == kept:
                self.messages.pop()
            else:
                self._unsent = None

    def retry(self) -> Generator[Piece | Message, None, None]:
        """Answer the user's last message once more, from another seed; or send again what could not be sent."""
        text = self._unsent
        if text is None:
            asked = [number for number, message in enumerate(self.messages) if message.role == "user"]
            if not asked:
                raise IngotError("nothing has been said yet", place="/retry", fix="say something first")
            text = self.messages[asked[-1]].content
            del self.messages[asked[-1] :]
        return self.say(text)

    def _rounds(self) -> Generator[Piece | Message, None, None]:
        for _ in range(CALL_ROUNDS):
            yield from self._turn()
            calls = self.messages[-1].tool_calls
            if not calls:
                return
            yield Piece("call", "")  # so that what follows, a question perhaps, begins on a line of its own
            end = len(self.messages) + len(calls)
            try:
                for call in calls:
                    self.messages.append(Message("tool", self._answer(call)))
                    yield self.messages[-1]
            finally:
                self.messages += [Message("tool", STOPPED)] * (end - len(self.messages))

    def _turn(self) -> Generator[Piece, None, None]:
        sampling = replace(self.sampling, seed=self.sampling.seed + self._turns)
        self._turns += 1
        offered = schemas((self.tools or {}).values())
        try:
            with closing(self.model.reply(self.messages, offered, self.thinking, sampling)) as pieces:
                yield from pieces
        finally:
            said = self.model.said()
            if said is not None:
                self.messages.append(said)
        if said is None:
            raise IngotError("the model said nothing", place="chat", fix="/retry, or say it in other words")

    def _answer(self, call: ToolCall) -> str:
        tools = self.tools or {}
        if call.name in tools and tools[call.name].asks and not self.allow(call):
            return REFUSED
        return call_tool(tools, call)
