"""POST /inference/v1/generate: tokens in, tokens out.

What trains a model must see exactly the tokens that the model saw and wrote; text that is encoded again may have others. The
form is vLLM's, which `verifiers` and prime-rl speak: token ids, sampling options in a mapping of their own, and for each token
that was written its id and its log-probability at temperature 1. The stop token is among them, if one was drawn.
"""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from ingot.inference.runner import Chunk
from ingot.serve.openai.errors import ApiError, JsonAnswer
from ingot.serve.openai.generation import Generation, unless_gone
from ingot.serve.openai.options import make_samplings
from ingot.serve.openai.replies import Heading, usage
from ingot.serve.openai.requests import GenerateRequest
from ingot.serve.openai.service import Service

DEFAULT_TOKENS = 16  # vLLM's default of max_tokens


async def generate(service: Service, body: GenerateRequest, request: Request) -> Response:
    """Go on from tokens."""
    service.check_model(body.model)
    if wrong := [token for token in body.token_ids if token >= service.vocabulary]:
        message = f"token {wrong[0]} is not in the vocabulary of {service.vocabulary}"
        raise ApiError(400, message, param="token_ids", code="invalid_value")
    service.check_length(len(body.token_ids), "token_ids")
    options = body.sampling_params
    samplings = make_samplings(
        service,
        options,
        room=service.length - len(body.token_ids),
        wanted=DEFAULT_TOKENS if options.max_tokens is None else max(1, options.max_tokens),
        ends=service.ends,
        top_logprobs=0,
    )
    written = [Chunk() for _ in samplings]
    with Generation(service, request, [body.token_ids] * len(samplings), samplings) as generation:

        async def collect() -> None:
            async for index, chunk in generation.chunks():
                written[index].tokens += chunk.tokens
                written[index].logprobs += chunk.logprobs
                written[index].finish = chunk.finish or written[index].finish

        await unless_gone(request, collect())
        cached = generation.shared_tokens(0)
    heading = Heading(service, "gen", "generate")
    counts = usage(len(body.token_ids), sum(len(each.tokens) for each in written), cached, 0)
    whole = heading.whole([_choice(index, each) for index, each in enumerate(written)], counts)
    return JsonAnswer(whole | {"request_id": whole["id"], "prompt_token_ids": body.token_ids})


def _choice(index: int, written: Chunk) -> dict[str, Any]:
    """A choice; a token stands there by its id, since a piece of a character is no text."""
    entries: list[dict[str, Any]] = [
        {"token": f"token_id:{token}", "logprob": logprob, "bytes": None, "top_logprobs": []}
        for token, logprob in zip(written.tokens, written.logprobs, strict=True)
    ]
    finish = "stop" if written.finish == "stop" else "length"
    return {"index": index, "token_ids": written.tokens, "logprobs": {"content": entries}, "finish_reason": finish}
