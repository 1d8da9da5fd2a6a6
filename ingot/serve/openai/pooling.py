"""POST /pooling: what a reward model gives, in vLLM's form. The route is there if the model has a reward head.

A text, or token ids, are judged at their last token; of a conversation, which must end with an answer, the last token is the one
that ends it. One pass without a cache for each, in the engine's thread between two steps, so that other requests go on meanwhile.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial

import torch
from starlette.requests import Request
from starlette.responses import Response

from ingot.model.transformer import REWARD_HEAD, Transformer
from ingot.serve.openai.completions import encode_prompt, split_prompts
from ingot.serve.openai.errors import ApiError, JsonAnswer, as_api_error
from ingot.serve.openai.generation import unless_gone
from ingot.serve.openai.prompts import make_conversation
from ingot.serve.openai.replies import Heading, usage
from ingot.serve.openai.requests import PoolingRequest
from ingot.serve.openai.scores import LONGEST_SCORING
from ingot.serve.openai.service import Service
from ingot.workspace.errors import IngotError


async def pooling(service: Service, body: PoolingRequest, request: Request) -> Response:
    """Judge the texts of a request."""
    service.check_model(body.model)
    texts = await asyncio.to_thread(_texts, service, body)
    request.state.tally.read += sum(map(len, texts))
    rewards: list[float] = []

    async def judge() -> None:
        runner = service.runner
        with runner.visit():
            for tokens in texts:
                work = runner.begin(partial(reward_at_end, runner.engine.model, tokens))
                rewards.append(await asyncio.wait_for(asyncio.wrap_future(work), LONGEST_SCORING))

    try:
        await unless_gone(request, judge())
    except (IngotError, RuntimeError, TimeoutError) as error:
        raise as_api_error(error) from error
    data = [{"index": index, "object": "pooling", "data": [reward]} for index, reward in enumerate(rewards)]
    answer = Heading(service, "pool", "list").whole([], usage(sum(map(len, texts)), 0, 0, 0))
    del answer["choices"]
    return JsonAnswer(answer | {"data": data})


def _texts(service: Service, body: PoolingRequest) -> list[list[int]]:
    if body.messages is not None:
        if service.chat is None:
            raise ApiError(400, "the model has no chat template; send an input", param="messages")
        texts, param = [make_conversation(service.chat, body.messages, body.tools or [])], "messages"
    else:
        assert body.input is not None
        texts, param = [encode_prompt(service, each, "input") for each in split_prompts(body.input)], "input"
    for tokens in texts:
        if not tokens:
            raise ApiError(400, "there is no token to judge", param=param, code="invalid_value")
        service.check_length(len(tokens), param, answer=0)
    return texts


@torch.inference_mode()
def reward_at_end(model: Transformer, tokens: Sequence[int]) -> float:
    """What the reward head gives at the last token."""
    states_1TD = model.hidden(torch.tensor([tokens], device=model.embedding.weight.device))
    return float(model.read_head(REWARD_HEAD, states_1TD[0, -1]))
