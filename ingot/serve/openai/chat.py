"""POST /v1/chat/completions: messages in, a message out, whole or as a stream of deltas.

A whole answer is the sum of the deltas that a stream would have sent, by the same code.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from ingot.inference.runner import Chunk
from ingot.inference.sampling import Sampling
from ingot.serve.openai.calls import Delta
from ingot.serve.openai.errors import ApiError, JsonAnswer
from ingot.serve.openai.generation import EventStream, Generation, collect, unless_gone
from ingot.serve.openai.logprobs import Pending, chat_entry
from ingot.serve.openai.options import constrained, make_samplings
from ingot.serve.openai.parser import TurnParser
from ingot.serve.openai.prompts import Prompt, make_prompt, served_syntax, wants_thinking
from ingot.serve.openai.replies import DONE, Heading, event, usage
from ingot.serve.openai.requests import ChatRequest, Tool
from ingot.serve.openai.service import Service
from ingot.serve.openai.structures import Structure, offered_tools, turn_structure
from ingot.tokens.syntax import Syntax
from ingot.tokens.tokenizer import TOOL_CALL_START


@dataclass
class Plan:
    """What is to be sampled for a request."""

    body: ChatRequest
    prompt: Prompt
    tools: list[Tool]
    samplings: list[Sampling]
    syntax: Syntax
    structure: Structure | None  # to be compiled and added to the samplings


def make_plan(service: Service, body: ChatRequest) -> Plan:
    """Read the request: encoding a long conversation takes time, so this runs in a thread, outside of the event loop."""
    if service.chat is None:
        raise ApiError(400, "the model has no chat template; use /v1/completions", param="messages")
    if body.top_logprobs and not body.logprobs:
        raise ApiError(400, "top_logprobs needs logprobs: true", param="top_logprobs", code="invalid_value")
    if body.stream_options is not None and not body.stream:
        raise ApiError(400, "stream_options needs stream: true", param="stream_options", code="invalid_value")
    tools = offered_tools(body)
    prompt = make_prompt(service.chat, body.messages, tools, wants_thinking(body))
    service.check_length(len(prompt.tokens), "messages")
    mark = next(iter(service.chat.syntax.call or ()), None)
    forbids = body.tool_choice == "none" and mark in service.tokenizer.special
    wanted = body.max_completion_tokens if body.max_completion_tokens is not None else body.max_tokens
    samplings = make_samplings(
        service,
        body,
        room=service.length - len(prompt.tokens),
        wanted=wanted,
        ends=service.chat.stop_tokens,
        top_logprobs=(body.top_logprobs or 0) if body.logprobs else 0,
        banned=(service.tokenizer.special[TOOL_CALL_START],) if forbids else (),
    )
    syntax = served_syntax(service.chat)
    return Plan(body, prompt, tools, samplings, syntax, turn_structure(service.tokenizer, syntax, body, tools, prompt))


class ChatChoice:
    """One of `n` answers as it comes."""

    def __init__(self, service: Service, plan: Plan, heading: Heading, index: int) -> None:
        tokenizer = service.tokenizer
        self.tokenizer, self.plan, self.index = tokenizer, plan, index
        self.parser = TurnParser(
            tokenizer,
            plan.syntax,
            stop_strings=plan.body.stops,
            in_thinking=plan.prompt.in_thinking,
            calls=bool(plan.tools),
        )
        self.tokens = 0
        self.finish: str | None = None
        self._deltas: list[Delta] = []
        self._pending = Pending()
        self._heading, self._calls = heading, 0

    def take(self, chunk: Chunk) -> list[Delta]:
        """The deltas of some more tokens; `finish` says whether they were the last."""
        deltas: list[Delta] = []
        for number, token in enumerate(chunk.tokens):
            self.tokens += 1
            at_end = chunk.finish == "stop" and number == len(chunk.tokens) - 1
            if at_end and token in self.plan.samplings[self.index].stop_tokens:
                break
            is_content = self.parser.section == "content"
            deltas += self.parser.push(token)
            if self.plan.body.logprobs and is_content:
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
            wanted = self.plan.body.top_logprobs or 0
            entry = chat_entry(self.tokenizer, token, logprob, top[0] if top else (), wanted)
            self._pending.add(entry, self.parser.start)

    def logprobs(self) -> list[dict[str, Any]]:
        """The entries whose text was released since the last time."""
        everything = self.finish is not None and not self.parser.stopped
        return self._pending.take(None if everything else self.parser.released)

    def fields(self, delta: Delta) -> dict[str, Any]:
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

    def message(self) -> dict[str, Any]:
        """The answer as a whole."""
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


async def chat_completion(service: Service, body: ChatRequest, request: Request) -> Response:
    """Answer a request."""
    service.check_model(body.model)
    plan = await asyncio.to_thread(make_plan, service, body)
    if plan.structure is not None:
        plan.samplings = constrained(plan.samplings, await service.constraint(plan.structure))
    heading = Heading(service, "chatcmpl", "chat.completion")
    generation = Generation(service, request, [plan.prompt.tokens] * len(plan.samplings), plan.samplings)
    choices = [ChatChoice(service, plan, heading, index) for index in range(len(plan.samplings))]
    if body.stream:
        with generation.closing_on_error():
            await unless_gone(request, generation.begin())
        return EventStream(_events(plan, heading, choices, generation), generation, service)
    with generation:
        await unless_gone(request, collect(choices, generation))
        answers = [
            {
                "index": choice.index,
                "message": choice.message(),
                "logprobs": {"content": choice.logprobs()} if body.logprobs else None,
                "finish_reason": choice.finish,
            }
            for choice in choices
        ]
        return JsonAnswer(heading.whole(answers, _usage(plan, choices, generation)))


async def _events(
    plan: Plan, heading: Heading, choices: Sequence[ChatChoice], generation: Generation
) -> AsyncIterator[bytes]:
    """The answer as server-sent events: the role, the deltas, why each choice ended, and the counts if asked for."""
    options = plan.body.stream_options
    counts = bool(options and options.include_usage)
    always = bool(options and options.continuous_usage_stats)

    def sent(choice: ChatChoice, delta: dict[str, Any], finish: str | None = None, logprobs: Any = None) -> bytes:
        entry = {"index": choice.index, "delta": delta, "logprobs": logprobs, "finish_reason": finish}
        now = _usage(plan, choices, generation) if always else None
        return event(heading.piece([entry], now, counts or always))

    try:
        for choice in choices:
            yield sent(choice, {"role": "assistant", "content": ""})
        async for index, chunk in generation.chunks():
            choice = choices[index]
            deltas = choice.take(chunk)
            if choice.finish is not None:
                generation.stop(index)
            for delta in deltas:
                entries = choice.logprobs() if plan.body.logprobs and delta.kind == "content" else []
                yield sent(choice, choice.fields(delta), logprobs={"content": entries} if entries else None)
            if choice.finish is not None:
                entries = choice.logprobs() if plan.body.logprobs else []
                yield sent(choice, {}, choice.finish, {"content": entries} if entries else None)
        if counts:
            yield event(heading.piece([], _usage(plan, choices, generation), True))
        yield DONE
    except ApiError as error:  # the status is sent already
        yield event(error.body())


def _usage(plan: Plan, choices: Sequence[ChatChoice], generation: Generation) -> dict[str, Any]:
    return usage(
        prompt=len(plan.prompt.tokens),
        completion=sum(choice.tokens for choice in choices),
        cached=generation.shared_tokens(0),
        reasoning=sum(choice.parser.reasoning_tokens for choice in choices),
    )
