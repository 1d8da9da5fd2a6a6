"""Chats with a model in this process: it writes the assistant's turns of a conversation.

Sampled tokens are never encoded again: the tokens up to the end of each of the model's turns are kept, and as long as a
conversation goes on from there, only what came after is encoded and appended. Otherwise it is encoded anew.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

from ingot.checkpoints.checkpoint import load_model
from ingot.inference.engine import Engine
from ingot.inference.sampling import Sampling
from ingot.inference.text import TextStream
from ingot.serve.terminal.conversation import Kind, Piece
from ingot.tokens.chat import ChatFormat, Message
from ingot.tokens.tokenizer import THINK_END, THINK_START, TOOL_CALL_END, TOOL_CALL_START, Tokenizer
from ingot.train.device import choose_device
from ingot.workspace.errors import ArtifactError, IngotError

LONGEST = 16_384  # tokens of a conversation: a cache for the whole of a long context would take gigabytes at once
KIND_AFTER: dict[str, Kind] = {
    THINK_START: "thinking",
    THINK_END: "content",
    TOOL_CALL_START: "call",
    TOOL_CALL_END: "content",
}


def load_local_model(path: Path) -> LocalModel:
    """The model at `path`: a checkpoint, a stage's folder, a Hugging Face folder or a GGUF file."""
    model = load_model(path, device=choose_device("auto"))
    if model.tokenizer is None:
        raise ArtifactError("the checkpoint has no tokenizer", place=str(path), fix="use a checkpoint that Ingot wrote")
    engine = Engine(model, slots=1, length=min(model.config.context, LONGEST))
    return LocalModel(engine, ChatFormat(model.tokenizer))


class LocalModel:
    """One conversation with the model of an engine."""

    def __init__(self, engine: Engine, chat: ChatFormat) -> None:
        self.engine, self.chat = engine, chat
        self._special = chat.tokenizer.special
        self.calls_tools = TOOL_CALL_START in self._special
        self.about = f"{sum(parameter.numel() for parameter in engine.model.parameters()) / 1e6:.1f}M parameters"
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
            raise IngotError(
                f"the conversation would have {len(prompt)} tokens, the model holds {self.engine.length}",
                place="chat",
                fix="begin again with /reset, or say less",
            )
        sampled: list[int] = []
        opening = self._opened(prompt)
        reader = PieceReader(self.chat.tokenizer, "thinking" if opening else "content")
        stops = self.chat.stop_tokens
        try:
            with closing(self.engine.stream(prompt, replace(sampling, stop_tokens=stops))) as stream:
                for token in stream:
                    if token == self.chat.turn_end or token not in stops:
                        sampled.append(token)
                    yield from reader.push(token)
            yield from reader.finish()
        finally:
            if sampled:
                self._said = self.chat.parse(opening + sampled)
                if sampled[-1] != self.chat.turn_end:
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
        traces = thinking and THINK_START in self._special
        known = max(self._ends, default=0)
        new = [message if traces else message.without_thinking() for message in messages[known:]]
        if known:
            return self._tokens[: self._ends[known]] + self.chat.continuation(new, thinking)
        return self.chat.prompt(new, tools, thinking)

    def _opened(self, prompt: Sequence[int]) -> list[int]:
        """The token that begins a trace, if the prompt ends inside one: some templates open it for the model."""
        start, end = self._special.get(THINK_START), self._special.get(THINK_END)
        for token in reversed(prompt):
            if token == end or token == self.chat.turn_end:
                break
            if token == start:
                return [token]
        return []


class PieceReader:
    """Sampled tokens to pieces: text comes when its characters are complete, special tokens change the kind."""

    def __init__(self, tokenizer: Tokenizer, kind: Kind = "content") -> None:
        self.tokenizer = tokenizer
        self._kinds: dict[int, Kind] = {
            tokenizer.special[name]: after for name, after in KIND_AFTER.items() if name in tokenizer.special
        }
        self._kind, self._text = kind, TextStream(tokenizer)

    def push(self, token: int) -> Iterator[Piece]:
        """The pieces that can be shown after `token`."""
        if token not in self._kinds:
            yield from self._piece(self._text.push(token))
            return
        yield from self.finish()
        if self._kind == "call":
            yield Piece("call", "")
        self._kind, self._text = self._kinds[token], TextStream(self.tokenizer)

    def finish(self) -> Iterator[Piece]:
        """The rest, with a character that was never completed."""
        yield from self._piece(self._text.finish())

    def _piece(self, text: str) -> Iterator[Piece]:
        if text:
            yield Piece(self._kind, text)
