"""A conversation with a model, turn by turn: streams what it writes and answers its tool calls.

The conversation is kept as tokens. What the model sampled stays as it was sampled; what the user and the tools say is
encoded once and put behind it. A tool is a schema that the model reads and a function from arguments to text.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from contextlib import closing
from dataclasses import replace
from typing import Any

from ingot.inference.engine import Engine
from ingot.inference.sampling import Sampling
from ingot.tokens.chat import ChatFormat, Message, ToolCall
from ingot.workspace.errors import IngotError

Tool = tuple[dict[str, Any], Callable[[dict[str, Any]], str]]
CALL_ROUNDS = 8  # a model that keeps calling tools is stopped here


class Conversation:
    """The tokens so far. `sampling.seed` is the seed of the first turn; later turns count up from it."""

    def __init__(
        self,
        engine: Engine,
        chat: ChatFormat,
        sampling: Sampling,
        tools: Mapping[str, Tool] | None = None,
        thinking: bool = True,
    ) -> None:
        self.engine, self.chat, self.tools, self.thinking = engine, chat, dict(tools or {}), thinking
        self._turn_end = chat.turn_end
        self._sampling = replace(sampling, stop_tokens=chat.stop_tokens)
        self.tokens: list[int] = []
        self._turns = 0

    def reset(self) -> None:
        """Begin again."""
        self.tokens, self._turns = [], 0

    def say(self, text: str) -> Generator[int | Message, None, None]:
        """What comes back for the user's `text`: sampled tokens one by one, tool results as messages in between.

        Closing the iterator stops the model; the unfinished turn is ended there and the conversation goes on from it.
        """
        self._extend([Message("user", text)])
        for _ in range(CALL_ROUNDS):
            start = len(self.tokens)
            yield from self._turn()
            calls = self.chat.parse(self.tokens[start:]).tool_calls
            if not calls:
                return
            results = [Message("tool", self._call(call)) for call in calls]
            self._extend(results)
            yield from results

    def _extend(self, messages: list[Message]) -> None:
        if self.tokens:
            added = self.chat.continuation(messages, thinking=self.thinking)
        else:
            added = self.chat.prompt(messages, [schema for schema, _ in self.tools.values()], self.thinking)
        if len(self.tokens) + len(added) >= self.engine.length:
            raise IngotError(
                f"the conversation would have {len(self.tokens) + len(added)} tokens, the model holds "
                f"{self.engine.length}",
                place="chat",
                fix="begin again with /reset, or say less",
            )
        self.tokens += added

    def _turn(self) -> Generator[int, None, None]:
        """Sample one assistant turn into `tokens`. A turn that was cut off gets its end, so that the next can begin."""
        sampling = replace(self._sampling, seed=self._sampling.seed + self._turns)
        self._turns += 1
        prompt = list(self.tokens)
        try:
            with closing(self.engine.stream(prompt, sampling)) as stream:
                for token in stream:
                    if token == self._turn_end or token not in self._sampling.stop_tokens:
                        self.tokens.append(token)
                        yield token
        finally:
            if len(self.tokens) == len(prompt) or self.tokens[-1] != self._turn_end:
                self.tokens.append(self._turn_end)

    def _call(self, call: ToolCall) -> str:
        if call.name not in self.tools:
            return f"error: there is no tool {call.name}"
        return self.tools[call.name][1](call.arguments)
