"""Drafts that are right as often as a test needs: the known text, spoilt here and there."""

from __future__ import annotations

import random
from collections.abc import Sequence

from ingot.inference.engine import Engine
from ingot.inference.memory import simple_caches
from ingot.inference.request import Completion, Request
from ingot.inference.sampling import Sampling
from ingot.inference.speculate.config import Speculation
from ingot.inference.speculate.ngram import NgramDrafter
from ingot.model.mixers.cache import CacheShape
from ingot.model.transformer import Transformer

TOKENS = 4


def bytes_of(model: Transformer, pages: int, length: int) -> int:
    """The size of a cache with so many pages."""
    caches = model.make_caches(CacheShape(slots=1, length=length, pages=1, piece=32))
    if model.multi_token is not None:
        weight = model.embedding.weight
        caches.append(
            model.multi_token.make_cache(CacheShape(slots=1, length=length, pages=1), weight.dtype, weight.device)
        )
    parts = [part for cache in caches for part in simple_caches(cache) if part.in_pages]
    return pages * sum(tensor.numel() * tensor.element_size() for part in parts for tensor in part.tensors())


class Oracle(NgramDrafter):
    """Proposes 0 to 4 tokens of the text that is known for the request, half of the times with one of them wrong."""

    def __init__(self, texts: dict[tuple[tuple[int, ...], Sampling], list[int]], vocabulary: int) -> None:
        self._texts, self._vocabulary, self._chance = texts, vocabulary, random.Random(0)

    def propose(self, request: Request, count: int) -> list[int]:
        text = self._texts[tuple(request.prompt), request.sampling]
        draft = text[len(request.tokens) :][: self._chance.randint(0, TOKENS)]
        if draft and self._chance.random() < 0.5:
            draft[self._chance.randrange(len(draft))] = self._chance.randrange(self._vocabulary)
        return draft[:count]


def with_oracle(
    model: Transformer,
    prompts: Sequence[list[int]],
    samplings: Sequence[Sampling],
    completions: Sequence[Completion],
    **options: int,
) -> Engine:
    """An engine whose drafts come from these completions."""
    engine = Engine(model, speculate=Speculation("ngram", tokens=TOKENS), **options)  # type: ignore[arg-type]
    texts = {
        (tuple(prompt), sampling): one.tokens
        for prompt, sampling, one in zip(prompts, samplings, completions, strict=True)
    }
    assert engine._speculator is not None
    engine._speculator._drafter = Oracle(texts, model.config.vocabulary_size or 0)
    return engine
