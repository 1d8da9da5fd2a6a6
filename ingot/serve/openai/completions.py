"""POST /v1/completions: continues a text without a chat template, whole or as a stream.

The prompt is a text, several, or token ids. Choice j of prompt i has the number i·n + j. With `echo` the prompt comes
before the answer, and with `logprobs` too its own tokens are scored; `max_tokens: 0` then asks for the scores alone.
`prompt_logprobs` (vLLM's) gives the likeliest tokens by their ids: pieces of text cannot tell all tokens apart.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from ingot.inference.runner import Chunk
from ingot.inference.sampling import Sampling
from ingot.inference.text import TextStream
from ingot.serve.openai.errors import ApiError, JsonAnswer, as_api_error
from ingot.serve.openai.generation import EventStream, Generation, check_count, collect, unless_gone
from ingot.serve.openai.logprobs import TextLogprobs, prompt_entries
from ingot.serve.openai.options import constrained, make_samplings
from ingot.serve.openai.replies import DONE, Heading, event, usage
from ingot.serve.openai.requests import CompletionRequest
from ingot.serve.openai.scores import Score, prompt_scores
from ingot.serve.openai.service import Service
from ingot.serve.openai.structures import Structure, answer_structure
from ingot.workspace.errors import IngotError

DEFAULT_TOKENS = 16  # OpenAI's default of max_tokens on this endpoint
LONGEST_SCORING = 300.0  # seconds that the scoring of a prompt may take, the wait for its turn included


@dataclass
class Plan:
    """What is to be sampled for a request: a prompt, a sampling and perhaps scores for each choice."""

    body: CompletionRequest
    prompts: list[list[int]]
    samplings: list[Sampling]
    scores: list[list[Score]]
    structure: Structure | None  # to be compiled and added to the samplings

    @property
    def asked(self) -> list[list[int]]:
        """The prompts that were sent, each once, however many choices it has."""
        return self.prompts[:: self.body.n or 1]


def make_plan(service: Service, body: CompletionRequest) -> Plan:
    """Read the request; runs in a thread, outside of the event loop."""
    if body.stream_options is not None and not body.stream:
        raise ApiError(400, "stream_options needs stream: true", param="stream_options", code="invalid_value")
    if body.stream and body.prompt_logprobs is not None:
        raise ApiError(400, "prompt_logprobs needs stream: false", param="prompt_logprobs", code="invalid_value")
    scores_only = body.max_tokens == 0
    if scores_only and not body.echo:
        raise ApiError(400, "max_tokens is 0: nothing to do without echo", param="max_tokens", code="invalid_value")
    given = split_prompts(body.prompt)
    if not scores_only:
        check_count(service, len(given) * (body.n or 1))
    asked = [encode_prompt(service, prompt, "prompt") for prompt in given]
    plan = Plan(body, [], [], [], answer_structure(body.response_format, body.structured_outputs))
    for tokens in asked:
        service.check_length(len(tokens), "prompt", answer=0 if scores_only else 1)
        plan.prompts += [tokens] * (body.n or 1)
        plan.samplings += make_samplings(
            service,
            body,
            room=max(1, service.length - len(tokens)),
            wanted=DEFAULT_TOKENS if body.max_tokens is None else max(1, body.max_tokens),
            ends=service.ends,
            top_logprobs=body.logprobs or 0,
        )
    return plan


async def add_scores(service: Service, plan: Plan) -> None:
    """Score the prompts, one between two steps, so that other requests go on meanwhile."""
    runner, each = service.runner, plan.body.n or 1
    likeliest = max(plan.body.logprobs or 0, plan.body.prompt_logprobs or 0)
    try:
        with runner.visit():
            for tokens in plan.asked:
                score = partial(prompt_scores, runner.engine.model, tokens, likeliest)
                scores = await asyncio.wait_for(asyncio.wrap_future(runner.begin(score)), LONGEST_SCORING)
                plan.scores += [scores] * each
    except (IngotError, RuntimeError, TimeoutError) as error:
        raise as_api_error(error) from error


def split_prompts(prompt: str | list[str] | list[int] | list[list[int]]) -> list[str | list[int]]:
    """A list of prompts, whichever way they were sent."""
    if isinstance(prompt, str):
        return [prompt]
    ids = [item for item in prompt if isinstance(item, int)]
    return [ids] if ids else [item for item in prompt if not isinstance(item, int)]


def encode_prompt(service: Service, prompt: str | list[int], param: str) -> list[int]:
    """The tokens of a prompt; an empty text begins a document."""
    if isinstance(prompt, str):
        return [*service.tokenizer.opening, *service.tokenizer.encode(prompt)] or list(service.ends[:1])
    wrong = [token for token in prompt if token >= service.vocabulary]
    if wrong:
        message = f"token {wrong[0]} is not in the vocabulary of {service.vocabulary}"
        raise ApiError(400, message, param=param, code="invalid_value")
    return prompt


class TextChoice:
    """One text as it comes."""

    def __init__(self, service: Service, plan: Plan, index: int) -> None:
        self.plan, self.index, self._tokenizer = plan, index, service.tokenizer
        self.tokens = 0
        self.finish: str | None = None
        self._text = TextStream(service.tokenizer, plan.body.stops)
        self._pieces: list[str] = []
        self._shown = 0  # characters
        prompt = plan.prompts[index]
        echoed = service.tokenizer.decode(prompt, skip_special=True) if plan.body.echo else ""
        self._echo, self._offset = echoed, len(echoed)
        self._logprobs: TextLogprobs | None = None
        if plan.body.logprobs is not None:
            self._logprobs = TextLogprobs(service.tokenizer, plan.body.logprobs)
            before = TextStream(service.tokenizer)
            for token, score in zip(prompt, plan.scores[index], strict=True) if plan.body.echo else ():
                before.push(token)
                self._logprobs.add(token, before.start, *score)

    def take(self, chunk: Chunk) -> str:
        """The text of some more tokens; `finish` says whether they were the last."""
        text, self._echo = self._echo, ""
        for number, token in enumerate(chunk.tokens):
            at_end = chunk.finish == "stop" and number == len(chunk.tokens) - 1
            self.tokens += 1
            if at_end and token in self.plan.samplings[self.index].stop_tokens:
                break
            text += self._text.push(token)
            if self._logprobs is not None:
                top = next(iter(chunk.top_logprobs[number:]), ())
                self._logprobs.add(token, self._offset + self._text.start, chunk.logprobs[number], top)
            if self._text.stopped:
                break
        if chunk.last or self._text.stopped:
            text += self._text.finish()
            self.finish = "stop" if self._text.stopped or chunk.finish == "stop" else "length"
        self._pieces.append(text)
        self._shown += len(text)
        return text

    def entry(self, text: str) -> dict[str, Any]:
        """The choice with this piece of its text."""
        everything = self.finish is not None and not self._text.stopped
        logprobs = self._logprobs.take(None if everything else self._shown) if self._logprobs is not None else None
        return {"index": self.index, "text": text, "logprobs": logprobs, "finish_reason": self.finish}

    def whole(self) -> dict[str, Any]:
        """The choice with all of its text."""
        entry = self.entry("".join(self._pieces))
        if self.plan.body.prompt_logprobs is None:
            return entry
        prompt, scores = self.plan.prompts[self.index], self.plan.scores[self.index]
        return entry | {"prompt_logprobs": prompt_entries(self._tokenizer, prompt, scores)}


async def completion(service: Service, body: CompletionRequest, request: Request) -> Response:
    """Answer a request."""
    service.check_model(body.model)
    plan = await asyncio.to_thread(make_plan, service, body)
    if plan.structure is not None:
        plan.samplings = constrained(plan.samplings, await service.constraint(plan.structure))
    if (body.echo and body.logprobs is not None) or body.prompt_logprobs is not None:
        await unless_gone(request, add_scores(service, plan))
    heading = Heading(service, "cmpl", "text_completion")
    choices = [TextChoice(service, plan, index) for index in range(len(plan.prompts))]
    if body.max_tokens == 0:
        request.state.tally.read += sum(map(len, plan.asked))
        for choice in choices:
            choice.take(Chunk(finish="length"))
        return JsonAnswer(heading.whole([choice.whole() for choice in choices], _usage(plan, choices, None)))
    generation = Generation(service, request, plan.prompts, plan.samplings)
    if body.stream:
        with generation.closing_on_error():
            await unless_gone(request, generation.begin())
        return EventStream(_events(plan, heading, choices, generation), generation, service)
    with generation:
        await unless_gone(request, collect(choices, generation))
        return JsonAnswer(heading.whole([choice.whole() for choice in choices], _usage(plan, choices, generation)))


async def _events(
    plan: Plan, heading: Heading, choices: Sequence[TextChoice], generation: Generation
) -> AsyncIterator[bytes]:
    """The texts as server-sent events, and the counts if asked for."""
    options = plan.body.stream_options
    counts = bool(options and options.include_usage)
    always = bool(options and options.continuous_usage_stats)
    try:
        async for index, chunk in generation.chunks():
            choice = choices[index]
            text = choice.take(chunk)
            if choice.finish is not None:
                generation.stop(index)
            if text or choice.finish is not None:
                now = _usage(plan, choices, generation) if always else None
                yield event(heading.piece([choice.entry(text)], now, counts or always))
        if counts:
            yield event(heading.piece([], _usage(plan, choices, generation), True))
        yield DONE
    except ApiError as error:  # the status is sent already
        yield event(error.body())


def _usage(plan: Plan, choices: Sequence[TextChoice], generation: Generation | None) -> dict[str, Any]:
    each = plan.body.n or 1
    return usage(
        prompt=sum(map(len, plan.asked)),
        completion=sum(choice.tokens for choice in choices),
        cached=sum(generation.shared_tokens(index) for index in range(0, len(choices), each)) if generation else 0,
        reasoning=0,
    )
