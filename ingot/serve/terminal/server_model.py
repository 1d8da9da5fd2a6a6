"""Chats with a model behind an OpenAI-compatible server: it writes the assistant's turns of a conversation."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import closing
from typing import Any

from ingot.inference.client import Client
from ingot.inference.sampling import Sampling
from ingot.serve.terminal.conversation import Piece
from ingot.tokens.chat import Message
from ingot.tokens.openai_messages import read_call, to_openai
from ingot.workspace.errors import DataError, IngotError

THINKING = ("reasoning_content", "reasoning")  # servers disagree on the name
LENGTHS = ("context_length", "max_model_len", "max_context_length")


class ServerModel:
    """`model` is the name by which the server knows it; None: the first that it lists."""

    calls_tools = True

    def __init__(self, client: Client, model: str | None = None) -> None:
        listed = client.models()
        found = [entry for entry in listed if model in (None, entry.get("id"))]
        if not found:
            names = ", ".join(str(entry.get("id")) for entry in listed) or "none"
            raise IngotError(f"the server has no model {model or ''}", place=client.url, fix=f"it has: {names}")
        self.client, self.model = client, str(found[0]["id"])
        self.about = f"{self.model} at {client.url}"
        self._limit = next((int(found[0][name]) for name in LENGTHS if found[0].get(name)), None)
        self._used = 0
        self._turn: _Turn | None = None

    def said(self) -> Message | None:
        """The turn that the last `reply` gave, as far as it went; None if nothing was said."""
        return self._turn.message() if self._turn is not None else None

    def tokens(self) -> tuple[int, int | None]:
        """How many tokens the server counted last, and how many it may have if the server says."""
        return self._used, self._limit

    def reply(
        self, messages: Sequence[Message], tools: Sequence[dict[str, Any]], thinking: bool, sampling: Sampling
    ) -> Generator[Piece, None, None]:
        """The next turn, piece by piece; closing the generator hangs up, which stops the server."""
        self._turn = None
        body: dict[str, Any] = {
            "model": self.model,
            "messages": to_openai(messages),
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "seed": sampling.seed,
            "max_tokens": sampling.max_new_tokens,
        }
        if tools:
            body["tools"] = [{"type": "function", "function": schema} for schema in tools]
        if not thinking:  # no field of OpenAI's own: sent only when it says something
            body["chat_template_kwargs"] = {"enable_thinking": False}
        with closing(self.client.stream(body)) as chunks:
            for chunk in chunks:
                if usage := chunk.get("usage"):
                    self._used = int(usage["total_tokens"])
                for choice in chunk.get("choices", ()):
                    self._turn = self._turn or _Turn()
                    yield from self._turn.add(choice)


class _Turn:
    """An assistant's turn that is put together from the pieces of a stream."""

    def __init__(self) -> None:
        self.thinking: list[str] = []
        self.content: list[str] = []
        self.calls: list[dict[str, str]] = []
        self.finish: str | None = None

    def add(self, choice: dict[str, Any]) -> Generator[Piece, None, None]:
        delta = choice.get("delta") or {}
        if text := next((delta[name] for name in THINKING if delta.get(name)), ""):
            self.thinking.append(text)
            yield Piece("thinking", text)
        if text := delta.get("content"):
            self.content.append(text)
            yield Piece("content", text)
        for part in delta.get("tool_calls") or ():
            yield from self._add_call(part)
        self.finish = choice.get("finish_reason") or self.finish

    def _add_call(self, part: dict[str, Any]) -> Generator[Piece, None, None]:
        function = part.get("function") or {}
        if part.get("index", 0) >= len(self.calls):
            if self.calls:
                yield Piece("call", "")
            self.calls.append({"name": "", "arguments": ""})
            yield Piece("call", f"{function.get('name', '')} ")
        call = self.calls[part.get("index", 0)]
        call["name"] += function.get("name") or ""
        call["arguments"] += function.get("arguments") or ""
        if function.get("arguments"):
            yield Piece("call", function["arguments"])

    def message(self) -> Message | None:
        """The turn so far. A tool call that is cut off or not valid JSON is listed under `problems`."""
        if not (self.thinking or self.content or self.calls or self.finish):
            return None
        message = Message("assistant", "".join(self.content), "".join(self.thinking) if self.thinking else None)
        for call in self.calls:
            try:
                message.tool_calls.append(read_call(call, call["name"]))
            except DataError as error:
                message.problems.append(error.problem)
        if self.finish in (None, "length"):
            message.problems.append("the turn is cut off")
        return message
