"""Converts the options of a request to a `Sampling`; missing ones come from the model's files, else OpenAI's defaults.

Differences from the engine's own defaults: log-probabilities are those at temperature 1, as OpenAI's API reports them, and
without a seed a new one is drawn. The seed of choice i is seed + i, so the first of n choices is the same as a single one.
The engine gets no stop strings: they count in the content only, which the parser finds.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ingot.inference.sampling import Sampling, TextConstraint
from ingot.serve.openai.errors import ApiError, refused
from ingot.serve.openai.requests import Generating
from ingot.serve.openai.service import Service
from ingot.workspace.errors import IngotError

BAN = -100.0  # what logit_bias takes from a token that must not be drawn


def make_samplings(
    service: Service,
    body: Generating,
    *,
    room: int,
    wanted: int | None,
    ends: tuple[int, ...],
    top_logprobs: int,
    banned: tuple[int, ...] = (),
) -> list[Sampling]:
    """One sampling for each of `n` choices; at most `wanted` tokens, and never more than there is `room` for."""
    stops = tuple(dict.fromkeys([*(() if body.ignore_eos else ends), *(body.stop_token_ids or ())]))
    _check_ids(service, body.stop_token_ids or (), "stop_token_ids")
    bias = {int(token): value for token, value in (body.logit_bias or {}).items()}
    _check_ids(service, bias, "logit_bias")
    seed = secrets.randbits(63) if body.seed is None else body.seed
    try:
        return [
            Sampling(
                max_new_tokens=min(room, room if wanted is None else wanted),
                min_new_tokens=body.min_tokens or 0,
                temperature=_chosen(service, body, "temperature", 1.0),
                top_p=_chosen(service, body, "top_p", 1.0),
                top_k=max(0, int(_chosen(service, body, "top_k", 0))),
                min_p=_chosen(service, body, "min_p", 0.0),
                repetition_penalty=_chosen(service, body, "repetition_penalty", 1.0),
                frequency_penalty=body.frequency_penalty or 0.0,
                presence_penalty=body.presence_penalty or 0.0,
                logit_bias=tuple((bias | dict.fromkeys(banned, BAN)).items()),
                stop_tokens=stops,
                seed=seed + choice,
                top_logprobs=top_logprobs,
                raw_logprobs=True,
            )
            for choice in range(body.n or 1)
        ]
    except IngotError as error:
        raise refused(error) from error


def constrained(samplings: Sequence[Sampling], constraint: TextConstraint) -> list[Sampling]:
    """The same samplings with a constraint."""
    return [replace(sampling, constraint=constraint) for sampling in samplings]


def _chosen(service: Service, body: Generating, name: str, default: float) -> Any:
    asked = getattr(body, name)
    return asked if asked is not None else service.defaults.get(name, default)


def _check_ids(service: Service, ids: Any, param: str) -> None:
    size = min(service.vocabulary, service.tokenizer.vocabulary_size)
    if wrong := [id for id in ids if id >= size]:
        raise ApiError(400, f"token {wrong[0]} is not in the vocabulary of {size}", param=param, code="invalid_value")
