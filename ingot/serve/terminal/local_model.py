"""Chats with a model in this process: it writes the assistant's turns of a conversation.

Sampled tokens are never encoded again: the tokens up to the end of each of the model's turns are kept, and as long as a
conversation goes on from there, only what came after is encoded and appended. Otherwise it is encoded anew.
"""

from __future__ import annotations

import json
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

from ingot.inference.engine import Engine
from ingot.inference.load import load_to_sample
from ingot.inference.sampling import Sampling
from ingot.serve.terminal.conversation import Piece
from ingot.tokens.call_reader import TurnPart
from ingot.tokens.chat import ChatFormat, Message
from ingot.tokens.turn import TurnReader
from ingot.workspace.errors import ArtifactError, IngotError

LONGEST = 16_384  # tokens of a conversation: a cache for the whole of a long context would take gigabytes at once


def load_local_model(path: Path, adapter: Path | None = None) -> LocalModel:
    """The model at `path`: a checkpoint, a stage's folder, a Hugging Face folder or a GGUF file."""
    model = load_to_sample(path, adapter=adapter)
    if model.tokenizer is None:
        raise ArtifactError("the checkpoint has no tokenizer", place=str(path), fix="use a checkpoint that Ingot wrote")
    engine = Engine(model, slots=1, length=min(model.config.context, LONGEST))
    return LocalModel(engine, ChatFormat(model.tokenizer))


class LocalModel:
    """One conversation with the model of an engine."""

    def __init__(self, engine: Engine, chat: ChatFormat) -> None:
        self.engine, self.chat = engine, chat
        self.calls_tools = chat.syntax.calls
        parameters = sum(parameter.numel() for parameter in engine.model.parameters()) / 1e6
        self.about = f"{parameters:.1f}M parameters, chat format {chat.syntax.label}"
        self._forget()

    def _forget(self) -> None:
        self._said: Message | None = None
        self._messages: list[Message] = []  # those that `_tokens` spell
        self._tokens: list[int] = []
        self._ends: dict[int, int] = {}  # number of messages up to an assistant's turn → number of tokens
        self._tools: list[dict[str, Any]] = []

    def said(self) -> Message | None:
        """The turn that the last `reply` gave, as far as it went; None if nothing was said."""
        return self._said

    def tokens(self) -> tuple[int, int | None]:
        """How many tokens the conversation has, and how many it may have."""
        return len(self._tokens), self.engine.length

    def reply(
        self, messages: Sequence[Message], tools: Sequence[dict[str, Any]], thinking: bool, sampling: Sampling
    ) -> Generator[Piece, None, None]:
        """The next turn, piece by piece; closing the generator stops it. A turn that is cut off gets its end."""
        self._said = None
        prompt = self._prompt(messages, list(tools), thinking)
        if len(prompt) >= self.engine.length:
            ways = ["say less"]
            ways += ["begin again with /reset"] if any(each.role == "assistant" for each in messages) else []
            ways += ["offer no tools (--tools none)"] if tools else []
            raise IngotError(
                f"the conversation would have {len(prompt)} tokens, the model holds {self.engine.length}",
                place="chat",
                fix=", or ".join(ways),
            )
        sampled: list[int] = []
        opened = self.chat.opens_trace(prompt)
        reader = PieceReader(self.chat, opened, tools)
        stops = self.chat.stop_tokens
        try:
            with closing(self.engine.stream(prompt, replace(sampling, stop_tokens=stops))) as stream:
                for token in stream:
                    if token in self.chat.turn_ends or token not in stops:
                        sampled.append(token)
                    yield from reader.push(token)
            yield from reader.finish()
        finally:
            if sampled:
                self._said = self.chat.parse(sampled, in_thinking=opened, tools=tools)
                if sampled[-1] not in self.chat.turn_ends:
                    sampled.append(self.chat.turn_end)
                self._tokens = prompt + sampled
                self._messages = [*messages, self._said]
                self._ends[len(self._messages)] = len(self._tokens)

    def _prompt(self, messages: Sequence[Message], tools: list[dict[str, Any]], thinking: bool) -> list[int]:
        same = 0
        while same < min(len(messages), len(self._messages)) and messages[same] == self._messages[same]:
            same += 1
        if tools != self._tools:
            same, self._tools = 0, tools
        self._ends = {count: size for count, size in self._ends.items() if count <= same}
        traces = thinking and self.chat.syntax.thinks
        known = max(self._ends, default=0)
        new = [message if traces else message.without_thinking() for message in messages[known:]]
        if known:
            before = self._messages[known - 1]
            return self._tokens[: self._ends[known]] + self.chat.continuation(new, thinking, after=before)
        return self.chat.prompt(new, tools, thinking)


class PieceReader:
    """Sampled tokens to pieces: text comes when its characters are complete; the end of a call is an empty piece.

    A call is shown as JSON, however the model wrote it.
    """

    def __init__(
        self, chat: ChatFormat, in_thinking: bool = False, tools: Sequence[dict[str, Any]] | None = None
    ) -> None:
        self._reader = TurnReader(chat.tokenizer, chat.syntax, in_thinking=in_thinking, tools=tools)

    def push(self, token: int) -> Iterator[Piece]:
        """The pieces that can be shown after `token`."""
        yield from self._pieces(self._reader.push(token))

    def finish(self) -> Iterator[Piece]:
        """The rest, with a character that was never completed."""
        yield from self._pieces(self._reader.finish())

    def _pieces(self, parts: Iterator[TurnPart]) -> Iterator[Piece]:
        for part in parts:
            if part.section in ("content", "thinking"):
                yield from [Piece(part.section, part.text)] if part.text else []
            elif part.outcome is not None:
                yield Piece("call", "}") if part.section == "arguments" else Piece("content", part.outcome.written)
                yield Piece("call", "")
            elif part.section == "call":
                yield Piece("call", f'{{"name": {json.dumps(part.text, ensure_ascii=False)}, "arguments": ')
            else:
                yield Piece("call", part.text)
