"""The engine under pressure: few pages, prompts in pieces, requests that come, go and are dropped at any time."""

from __future__ import annotations

import random
import time

import pytest
import torch

from ingot.inference.engine import Engine
from ingot.inference.memory import size_caches
from ingot.inference.request import Request
from ingot.inference.sampling import Sampling
from ingot.model.mixers.cache import CacheShape
from ingot.model.transformer import Transformer
from ingot.workspace.errors import IngotError
from tests.inference.conftest import VOCABULARY, tiny_model
from tests.inference.test_engine_mixers import check, finish, make_model, short_mini, text
from tests.slow import first_fast

LENGTH = 96
KINDS = (
    "llama-3.1-8b-mini",
    "qwen3-next-80b-a3b-mini",
    "gemma3-4b-mini",
    "deepseek-v3.2-mini",
    "falcon-h1-0.5b-mini",
    "gpt-oss-20b-mini",
)


def small_pool(model: Transformer, slots: int, pages: int) -> int:
    """The bytes of a cache with this many pages."""
    piece = 32
    with pytest.raises(IngotError, match="pages of 16 tokens"):
        size_caches(model, slots, LENGTH, piece=piece, cache_bytes=1)
    low, high = 1, 1 << 40
    while low < high:  # the smallest budget that gives them
        middle = (low + high) // 2
        try:
            enough = (size_caches(model, slots, LENGTH, piece=piece, cache_bytes=middle).pages or 0) >= pages
        except IngotError:
            enough = False
        low, high = (low, middle) if enough else (middle + 1, high)
    return low


@pytest.mark.parametrize("name", first_fast(KINDS, 2))
def test_any_order_of_events_gives_the_text_of_the_full_pass(name: str) -> None:
    """Preemption, joining in the middle, shared prompts, cancellation: what is left is right, and nothing is leaked."""
    model, chance = make_model(short_mini(name)), random.Random(1)
    engine = Engine(model, slots=5, length=LENGTH, chunk=32, cache_bytes=small_pool(model, 5, 12))
    prompts = [text(chance.choice((1, 15, 16, 17, 30)), seed) for seed in range(5)]
    prompts += [prompts[4] + text(9, 9), prompts[3] + text(20, 10)]
    requests: list[Request] = []
    for number in range(24):
        sampling = Sampling(max_new_tokens=chance.randint(1, 50), temperature=number % 2, seed=number)
        requests.append(engine.submit(chance.choice(prompts), sampling))
        for _ in range(chance.randint(0, 3)):
            engine.step()
        if number % 5 == 4:
            engine.cancel(chance.choice(requests))
    finish(engine, requests)
    assert engine.stats.preemptions > 0
    check(model, [request for request in requests if request.finish != "cancelled"])
    assert not engine.busy
    engine.update(None, 1)  # also lets go of what snapshots hold
    assert engine.stats.pages_used == 0


def test_a_group_pays_for_its_prompt_once(model: Transformer) -> None:
    engine = Engine(model, slots=16, length=64)
    prompt = text(50, 1)
    engine.complete(
        [[token % VOCABULARY for token in prompt]] * 16, [Sampling(max_new_tokens=3, seed=s) for s in range(16)]
    )
    assert engine.stats.prompt_tokens == 16 * 50
    assert engine.stats.shared_tokens == 15 * 48  # three whole pages


def test_nothing_of_old_weights_is_shared(model: Transformer) -> None:
    engine = Engine(model, slots=2, length=64)
    prompt = [token % VOCABULARY for token in text(40, 1)]
    sampling = Sampling(max_new_tokens=4, temperature=0.0)
    engine.complete([prompt], [sampling])
    engine.update(tiny_model(seed=3).state_dict(), version=1)
    before = engine.stats.shared_tokens
    second = engine.complete([prompt], [sampling])[0]
    assert engine.stats.shared_tokens == before
    assert second.tokens == Engine(tiny_model(seed=3), slots=1, length=64).complete([prompt], [sampling])[0].tokens


def test_a_running_request_keeps_its_cache_over_an_update(model: Transformer) -> None:
    """The keys of the old weights stay: exactly what a pass with the new ones over that cache gives, and no request shares it."""
    old, new = tiny_model(seed=0), tiny_model(seed=1)
    engine = Engine(model, slots=2, length=64)
    prompt = [token % VOCABULARY for token in text(20, 1)]
    request = engine.submit(prompt, Sampling(max_new_tokens=20, temperature=0.0))
    for _ in range(4):
        engine.step()
    engine.update(new.state_dict(), version=7)
    follower = engine.submit(prompt, Sampling(max_new_tokens=20, temperature=0.0))
    finish(engine, [request, follower])
    assert request.versions == [0] * 4 + [7] * 16

    caches, tokens = old.make_caches(CacheShape(slots=1, length=64)), torch.tensor([request.context])
    with torch.no_grad():
        old.hidden(tokens[:, :23], caches=caches, slots=torch.tensor([0]))
        states = new.hidden(
            tokens[:, 23:-1], torch.arange(23, 39)[None], caches=caches, slots=torch.tensor([0]), reach=39
        )
        expected = new.head(states)[0].log_softmax(-1).gather(1, tokens[0, 24:, None])[:, 0]
    assert request.logprobs[4:] == pytest.approx(expected.tolist(), abs=1e-5)
    alone = Engine(new, slots=1, length=64).complete([prompt], [follower.sampling])[0]
    assert follower.tokens == alone.tokens


@pytest.mark.parametrize("keeps", [True, False])
def test_a_next_turn_keeps_the_place_of_its_conversation(model: Transformer, keeps: bool) -> None:
    """It comes before later requests, and finds its past; at the end of the queue the others have overwritten it."""
    engine = Engine(model, slots=1, length=64)  # four pages
    prompts = [[token % VOCABULARY for token in text(40, seed)] for seed in range(4)]
    first, *others = [engine.submit(prompt, Sampling(max_new_tokens=5, seed=1)) for prompt in prompts]
    finish(engine, [first])
    turn = engine.submit([*first.context, 1, 2], Sampling(max_new_tokens=5, seed=1), follows=first if keeps else None)
    finish(engine, [turn])
    assert [request.finish for request in others] == [None if keeps else "length"] * 3
    assert turn.shared_tokens == (32 if keeps else 0)


def test_a_deadline_ends_a_request_wherever_it_is(model: Transformer) -> None:
    engine = Engine(model, slots=1, length=64)
    active = engine.submit([1, 2], Sampling(max_new_tokens=60), deadline=0.2)
    waiting = engine.submit([3], Sampling(max_new_tokens=60), deadline=0.0)
    engine.step()
    assert [waiting.finish, active.finish] == ["deadline", None]
    time.sleep(0.25)
    engine.step()
    assert [active.finish, len(active.tokens)] == ["deadline", 1]
    assert not engine.busy and engine.stats.pages_used == 0


def test_cancelling_frees_everything_at_once(model: Transformer) -> None:
    engine = Engine(model, slots=2, length=64)
    requests = [engine.submit([1] * 40, Sampling(max_new_tokens=20, seed=seed)) for seed in range(3)]
    engine.step()
    assert engine.stats.pages_used > 0
    for request in requests:
        engine.cancel(request)
    assert [request.finish for request in requests] == ["cancelled"] * 3
    assert not engine.busy and engine.stats.pages_used == 0


def test_long_prompts_do_not_stop_the_others(model: Transformer) -> None:
    """While a prompt is read in chunks, active requests get a token at every step."""
    engine = Engine(model, slots=2, length=64, chunk=8)
    first = engine.submit([1, 2], Sampling(max_new_tokens=40))
    engine.step()
    second = engine.submit([3] * 50, Sampling(max_new_tokens=4))
    counts = []
    while not second.tokens:
        engine.step()
        counts.append(len(first.tokens))
    assert counts == list(range(2, 2 + len(counts))) and len(counts) == 7  # 49 tokens in pieces of 8
    finish(engine, [first, second])
