"""Scores given texts: log-probabilities of a prompt's own tokens, for `echo` with `logprobs` and for `prompt_logprobs`.

    log p(t_i | t_0 … t_{i-1})    none for the first token

Evaluation harnesses compare answers by it. The engine scores a prompt while it reads it (inference/scoring.py), in its batch
among the answers of other requests; a few prompts of one request are in it at a time, so that others do not wait for all.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from ingot.inference.request import Request as EngineRequest
from ingot.inference.runner import EngineRunner
from ingot.serve.openai.errors import ApiError, as_api_error
from ingot.workspace.errors import IngotError

AT_ONCE = 8  # prompts
LONGEST_SCORING = 300.0  # seconds that a prompt may take, the wait for its turn included
Score = tuple[float | None, list[tuple[int, float]]]  # of a token; of the likeliest at its position
NO_SCORE: Score = (None, [])  # of the first token


async def score_prompts(runner: EngineRunner, prompts: Sequence[Sequence[int]], likeliest: int) -> list[list[Score]]:
    """For each prompt: the log-probability of each token after those before it, and the likeliest at its position."""
    scores: list[list[Score]] = []
    try:
        with runner.visit() as visit:
            for start in range(0, len(prompts), AT_ONCE):
                few = prompts[start : start + AT_ONCE]
                handles = [visit.score(tokens, likeliest) if len(tokens) > 1 else None for tokens in few]
                waits = [asyncio.wrap_future(handle.done) for handle in handles if handle is not None]
                done = iter(await asyncio.wait_for(asyncio.gather(*waits), LONGEST_SCORING))
                scores += [[NO_SCORE, *([] if handle is None else _by_token(next(done)))] for handle in handles]
    except (IngotError, RuntimeError, TimeoutError) as error:
        raise as_api_error(error) from error
    return scores


def _by_token(request: EngineRequest) -> list[Score]:
    if request.finish != "scored" or request.scoring is None:
        raise ApiError(503, "the server is shutting down", code="draining")
    return [*request.scoring.by_token()]
