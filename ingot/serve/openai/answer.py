"""Answers a request that generates: the one way from a checked body to an answer, whole or as a stream, for every endpoint.

An endpoint says how its body is read (`read`) and what a choice makes of tokens (`Choice`); what is between is here. A whole
answer is the sum of what a stream would have sent, by the same code.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from starlette.requests import Request
from starlette.responses import Response

from ingot.inference.runner import Chunk
from ingot.inference.sampling import Sampling
from ingot.serve.openai.errors import ApiError, JsonAnswer
from ingot.serve.openai.generation import Choice, EventStream, RunningGeneration, collect, unless_gone
from ingot.serve.openai.options import constrained
from ingot.serve.openai.replies import DONE, Heading, event, usage
from ingot.serve.openai.requests import Generating
from ingot.serve.openai.service import Service
from ingot.serve.openai.structures import Structure


@dataclass
class SamplingPlan:
    """What is to be sampled for a request: choice i goes on from `prompts[i]`; `each` choices share a prompt."""

    prompts: list[list[int]]
    samplings: list[Sampling]
    structure: Structure | None = None  # to be compiled and added to the samplings
    each: int = 1

    @property
    def asked(self) -> list[list[int]]:
        """The prompts that were sent, each once, however many choices it has."""
        return self.prompts[:: self.each]


class ApiEndpoint(ABC):
    """One request to an endpoint that generates."""

    prefix: ClassVar[str]  # of the answer's id
    kind: ClassVar[str]  # what the answer is called

    def __init__(self, service: Service, model: str | None, options: Generating) -> None:
        self.service, self.model, self.options = service, model, options

    @abstractmethod
    def read(self) -> SamplingPlan:
        """What is to be sampled. Encoding takes time, so this runs in a thread, outside of the event loop."""

    async def prepare(self, plan: SamplingPlan, request: Request) -> None:
        """What the prompts need before choices are made of them."""
        return

    @abstractmethod
    def choice(self, plan: SamplingPlan, heading: Heading, index: int) -> Choice:
        """The choice of this number, before its first token."""

    def generates(self) -> bool:
        """False where nothing is to be sampled."""
        return True

    def finished(self, whole: dict[str, Any]) -> dict[str, Any]:
        """The whole answer, with what this endpoint adds."""
        return whole


async def answer(endpoint: ApiEndpoint, request: Request) -> Response:
    """Answer a request."""
    service = endpoint.service
    service.check_model(endpoint.model)
    plan = await asyncio.to_thread(endpoint.read)
    if plan.structure is not None:
        plan.samplings = constrained(plan.samplings, await service.constraint(plan.structure))
    await endpoint.prepare(plan, request)
    heading = Heading(service, endpoint.prefix, endpoint.kind)
    choices = [endpoint.choice(plan, heading, index) for index in range(len(plan.prompts))]
    if not endpoint.generates():
        request.state.tally.read += sum(map(len, plan.asked))
        for choice in choices:
            choice.take(Chunk(finish="length"))
        return _whole(endpoint, plan, heading, choices, None)
    generation = RunningGeneration(service, request, plan.prompts, plan.samplings)
    if endpoint.options.stream:
        with generation.closing_on_error():
            await unless_gone(request, generation.begin())
        return EventStream(_events(endpoint, plan, heading, choices, generation), generation, service)
    with generation:
        await unless_gone(request, collect(choices, generation))
        return _whole(endpoint, plan, heading, choices, generation)


def _whole(
    endpoint: ApiEndpoint,
    plan: SamplingPlan,
    heading: Heading,
    choices: Sequence[Choice],
    generation: RunningGeneration | None,
) -> Response:
    found = heading.whole([choice.whole() for choice in choices], _usage(plan, choices, generation))
    return JsonAnswer(endpoint.finished(found))


async def _events(
    endpoint: ApiEndpoint,
    plan: SamplingPlan,
    heading: Heading,
    choices: Sequence[Choice],
    generation: RunningGeneration,
) -> AsyncIterator[bytes]:
    """The answer as server-sent events: what each choice gets, why it ended, and the counts if asked for."""
    options = endpoint.options.stream_options
    counts = bool(options and options.include_usage)
    always = bool(options and options.continuous_usage_stats)

    def sent(entry: dict[str, Any]) -> bytes:
        now = _usage(plan, choices, generation) if always else None
        return event(heading.piece([entry], now, counts or always))

    try:
        for choice in choices:
            for entry in choice.opening():
                yield sent(entry)
        async for index, chunk in generation.chunks():
            entries = choices[index].take(chunk)
            if choices[index].finish is not None:
                generation.stop(index)
            for entry in entries:
                yield sent(entry)
        if counts:
            yield event(heading.piece([], _usage(plan, choices, generation), True))
        yield DONE
    except ApiError as error:  # the status is sent already
        yield event(error.body())


def _usage(plan: SamplingPlan, choices: Sequence[Choice], generation: RunningGeneration | None) -> dict[str, Any]:
    return usage(
        prompt=sum(map(len, plan.asked)),
        completion=sum(choice.tokens for choice in choices),
        cached=sum(generation.shared_tokens(index) for index in range(0, len(choices), plan.each)) if generation else 0,
        reasoning=sum(choice.reasoning_tokens for choice in choices),
    )
