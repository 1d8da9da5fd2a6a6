"""POST /v1/chat/completions: messages in, a message out, whole or as a stream of deltas (answer.py)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Any, ClassVar

from ingot.inference.runner import Chunk
from ingot.serve.openai.answer import ApiEndpoint, SamplingPlan
from ingot.serve.openai.errors import ApiError
from ingot.serve.openai.logprobs import Pending, chat_entry
from ingot.serve.openai.options import make_samplings
from ingot.serve.openai.parser import Delta, TurnParser
from ingot.serve.openai.prompts import make_prompt, served_syntax, wants_thinking
from ingot.serve.openai.replies import Heading
from ingot.serve.openai.requests import ChatRequest
from ingot.serve.openai.service import Service
from ingot.serve.openai.structures import offered_tools, turn_structure


class ChatEndpoint(ApiEndpoint):
    """One request for a message."""

    prefix: ClassVar[str] = "chatcmpl"
    kind: ClassVar[str] = "chat.completion"

    def __init__(self, service: Service, body: ChatRequest) -> None:
        super().__init__(service, body.model, body)
        self.body = body

    def read(self) -> SamplingPlan:
        service, body = self.service, self.body
        if service.chat is None:
            raise ApiError(400, "the model has no chat template; use /v1/completions", param="messages")
        if body.top_logprobs and not body.logprobs:
            raise ApiError(400, "top_logprobs needs logprobs: true", param="top_logprobs", code="invalid_value")
        if body.stream_options is not None and not body.stream:
            raise ApiError(400, "stream_options needs stream: true", param="stream_options", code="invalid_value")
        self.tools = offered_tools(body)
        self.prompt = make_prompt(service.chat, body.messages, self.tools, wants_thinking(body))
        service.check_length(len(self.prompt.tokens), "messages")
        openers = [mark for mark in service.chat.syntax.openers if mark in service.tokenizer.special]
        forbidden = openers if body.tool_choice == "none" else []
        wanted = body.max_completion_tokens if body.max_completion_tokens is not None else body.max_tokens
        samplings = make_samplings(
            service,
            body,
            room=service.length - len(self.prompt.tokens),
            wanted=wanted,
            ends=service.chat.stop_tokens,
            top_logprobs=(body.top_logprobs or 0) if body.logprobs else 0,
            banned=tuple(service.tokenizer.special[mark] for mark in forbidden),
        )
        self.syntax = served_syntax(service.chat)
        structure = turn_structure(service.tokenizer, self.syntax, body, self.tools, self.prompt)
        return SamplingPlan([self.prompt.tokens] * len(samplings), samplings, structure, each=len(samplings))

    def choice(self, plan: SamplingPlan, heading: Heading, index: int) -> ChatChoiceStream:
        return ChatChoiceStream(self, plan, heading, index)


class ChatChoiceStream:
    """One of `n` answers as it comes."""

    def __init__(self, endpoint: ChatEndpoint, plan: SamplingPlan, heading: Heading, index: int) -> None:
        self.tokenizer, self.body, self.index = endpoint.service.tokenizer, endpoint.body, index
        self.parser = TurnParser(
            self.tokenizer,
            endpoint.syntax,
            stop_strings=self.body.stops,
            in_thinking=endpoint.prompt.in_thinking,
            calls=bool(endpoint.tools),
            tools=[tool.function.model_dump() for tool in endpoint.tools] or None,
        )
        self._ends = plan.samplings[index].stop_tokens
        self.tokens = 0
        self.finish: str | None = None
        self._deltas: list[Delta] = []
        self._pending = Pending()
        self._shown: list[dict[str, Any]] = []  # entries of log-probabilities
        self._heading, self._calls = heading, 0

    @property
    def reasoning_tokens(self) -> int:
        return self.parser.reasoning_tokens

    def opening(self) -> list[dict[str, Any]]:
        return [self._entry({"role": "assistant", "content": ""})]

    def take(self, chunk: Chunk) -> list[dict[str, Any]]:
        """The deltas of some more tokens, and why the choice has ended, if it has."""
        entries = []
        for delta in self._deltas_of(chunk):
            logprobs = self._logprobs() if self.body.logprobs and delta.kind == "content" else []
            entries.append(self._entry(self._fields(delta), logprobs=logprobs))
        if self.finish is not None:
            entries.append(self._entry({}, self.finish, self._logprobs() if self.body.logprobs else []))
        return entries

    def _entry(
        self, delta: dict[str, Any], finish: str | None = None, logprobs: Sequence[dict[str, Any]] = ()
    ) -> dict[str, Any]:
        content = {"content": logprobs} if logprobs else None
        return {"index": self.index, "delta": delta, "logprobs": content, "finish_reason": finish}

    def _deltas_of(self, chunk: Chunk) -> list[Delta]:
        deltas: list[Delta] = []
        for number, token in enumerate(chunk.tokens):
            self.tokens += 1
            at_end = chunk.finish == "stop" and number == len(chunk.tokens) - 1
            if at_end and token in self._ends:
                break
            is_content = self.parser.section == "content"
            deltas += self.parser.push(token)
            if self.body.logprobs and is_content:
                self._note(token, chunk.logprobs[number], chunk.top_logprobs[number : number + 1])
            if self.parser.stopped:
                break
        if chunk.last or self.parser.stopped:
            deltas += self.parser.finish()
            ended = self.parser.stopped or chunk.finish == "stop"
            self.finish = ("tool_calls" if self.parser.calls else "stop") if ended else "length"
        deltas = _joined(deltas)
        self._deltas += deltas
        return deltas

    def _note(self, token: int, logprob: float, top: Sequence[Sequence[tuple[int, float]]]) -> None:
        if token not in self.tokenizer.special.values():
            wanted = self.body.top_logprobs or 0
            entry = chat_entry(self.tokenizer, token, logprob, top[0] if top else (), wanted)
            self._pending.add(entry, self.parser.start)

    def _logprobs(self) -> list[dict[str, Any]]:
        """The entries whose text was released since the last time."""
        everything = self.finish is not None and not self.parser.stopped
        taken = self._pending.take(None if everything else self.parser.released)
        self._shown += taken
        return taken

    def _fields(self, delta: Delta) -> dict[str, Any]:
        """A delta as OpenAI's API streams it."""
        match delta.kind:
            case "content":
                return {"content": delta.text}
            case "reasoning":
                return {"reasoning_content": delta.text, "reasoning": delta.text}
            case "call":
                self._calls += 1
                function = {"name": delta.text, "arguments": ""}
                call = {"index": self._calls - 1, "id": self._call_id(self._calls - 1), "type": "function"}
                return {"tool_calls": [call | {"function": function}]}
            case "arguments":
                return {"tool_calls": [{"index": self._calls - 1, "function": {"arguments": delta.text}}]}

    def _call_id(self, number: int) -> str:
        return f"call_{self._heading.unique}_{self.index}_{number}"

    def whole(self) -> dict[str, Any]:
        logprobs = {"content": self._shown} if self.body.logprobs else None
        return {"index": self.index, "message": self._message(), "logprobs": logprobs, "finish_reason": self.finish}

    def _message(self) -> dict[str, Any]:
        texts = {
            kind: "".join(delta.text for delta in self._deltas if delta.kind == kind)
            for kind in ("content", "reasoning")
        }
        calls: list[dict[str, Any]] = []
        for delta in self._deltas:
            if delta.kind == "call":
                function = {"name": delta.text, "arguments": ""}
                calls.append({"id": self._call_id(len(calls)), "type": "function", "function": function})
            elif delta.kind == "arguments":
                calls[-1]["function"]["arguments"] += delta.text
        reasoning = texts["reasoning"] if self.parser.reasoning_tokens else None
        message: dict[str, Any] = {"role": "assistant", "content": texts["content"], "refusal": None}
        message |= {"reasoning_content": reasoning, "reasoning": reasoning}
        if calls:
            message |= {"content": texts["content"] or None, "tool_calls": calls}
        return message


def _joined(deltas: Iterable[Delta]) -> list[Delta]:
    """Neighbours of one kind become one; each call stays by itself."""
    joined: list[Delta] = []
    for kind, group in groupby(deltas, key=lambda delta: delta.kind):
        if kind == "call":
            joined += group
        else:
            joined.append(Delta(kind, "".join(delta.text for delta in group)))
    return joined
