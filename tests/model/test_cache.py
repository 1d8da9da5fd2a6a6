"""Sampling with the cache: any order of slots, positions and row lengths gives the logits of the full pass."""

from __future__ import annotations

import random

import pytest
import torch

from ingot.model.config import ModelConfig
from ingot.model.mixers.cache import CacheShape, TokenCache
from tests.model.tiny import attention, config, mixed_config, random_model, random_tokens

SHAPES = {"plain": config(), "window": config(attention(window=3)), "mixed": mixed_config()}


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES.keys())
@torch.no_grad()
def test_pieces_of_any_size_in_any_slot_equal_the_full_pass(shape: ModelConfig) -> None:
    model, rng = random_model(shape), random.Random(1)
    slots, longest, piece = 5, 20, 4
    texts = [random_tokens(rng.randrange(8, longest), seed=slot) for slot in range(slots)]
    expected = [model(text[None])[0] for text in texts]
    caches = model.make_caches(CacheShape(slots=slots, length=longest + piece))
    for cache in caches:
        assert isinstance(cache, TokenCache)
        for stream in cache.streams.values():
            stream.fill_(9.0)  # whatever a slot held before must never be seen
    done, worst = [0] * slots, 0.0
    while any(count < len(text) for count, text in zip(done, texts, strict=True)):
        open_slots = [slot for slot in range(slots) if done[slot] < len(texts[slot])]
        chosen = rng.sample(open_slots, rng.randint(1, len(open_slots)))
        sizes = [min(rng.choice((1, 1, 2, piece)), len(texts[slot]) - done[slot]) for slot in chosen]
        width = max(sizes)
        tokens = random_tokens(len(chosen), width, seed=rng.randrange(99))  # garbage fills the shorter rows
        for row, (slot, size) in enumerate(zip(chosen, sizes, strict=True)):
            tokens[row, :size] = texts[slot][done[slot] : done[slot] + size]
        positions = torch.tensor([[done[slot] + place for place in range(width)] for slot in chosen])
        logits = model.head(model.hidden(tokens, positions, caches=caches, slots=torch.tensor(chosen)))
        for row, (slot, size) in enumerate(zip(chosen, sizes, strict=True)):
            target = expected[slot][done[slot] : done[slot] + size]
            worst = max(worst, float((logits[row, :size] - target).abs().max()))
            done[slot] += size
    assert worst < 2e-5


@torch.no_grad()
def test_a_larger_reach_changes_nothing() -> None:
    model = random_model(mixed_config())
    tokens = random_tokens(2, 6)
    results = []
    for reach in (None, 6, 17):
        caches = model.make_caches(CacheShape(slots=4, length=17))
        results.append(model.hidden(tokens, caches=caches, slots=torch.tensor([3, 1]), reach=reach))
    torch.testing.assert_close(results[1], results[0], rtol=0, atol=0)
    torch.testing.assert_close(results[2], results[0], rtol=1e-5, atol=1e-5)


@torch.no_grad()
def test_copies_of_a_slot_go_on_from_its_prefix() -> None:
    model = random_model(mixed_config())
    prefix, ends = random_tokens(5), [random_tokens(4, seed=7), random_tokens(4, seed=8)]
    caches = model.make_caches(CacheShape(slots=4, length=12))
    model.hidden(prefix[None], caches=caches, slots=torch.tensor([2]))
    for cache in caches:
        assert cache is not None
        cache.copy_slots(torch.tensor([2, 2]), torch.tensor([0, 3]))
    positions = torch.arange(5, 9).expand(2, 4)
    logits = model.head(model.hidden(torch.stack(ends), positions, caches=caches, slots=torch.tensor([0, 3])))
    for row, end in enumerate(ends):
        full = model(torch.cat((prefix, end))[None])[0, 5:]
        torch.testing.assert_close(logits[row], full, rtol=1e-5, atol=1e-5)
