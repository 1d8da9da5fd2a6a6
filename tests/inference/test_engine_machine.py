"""The whole engine as a state machine: any order of submit, step, cancel, deadline and update, with few pages and few slots.

Every text is checked against the full forward pass and against an engine that has the request to itself; after every event the
books must balance (`balance`). Half of the runs settle their steps one late, as engines on a GPU do: that is where a row whose
request has ended still computes. Longer searches: HYPOTHESIS_EXAMPLES=500.
"""

from __future__ import annotations

import os
from collections import Counter
from functools import cache

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from numpy.typing import NDArray

from ingot.inference.engine import Engine
from ingot.inference.pages import PagePool
from ingot.inference.request import Request
from ingot.inference.sampling import Sampling
from ingot.model.transformer import Transformer
from tests.inference.conftest import reference_logprobs
from tests.inference.test_engine_mixers import VOCABULARY, make_model, short_mini, text

LENGTH = 77  # no multiple of a page
KINDS = (  # grouped queries, rings, latents with an indexer, and two kinds of states
    "llama-3.1-8b-mini",
    "gemma3-4b-mini",
    "deepseek-v3.2-mini",
    "qwen3-next-80b-a3b-mini",
    "falcon-h1-0.5b-mini",
)
EXAMPLES = int(os.environ.get("HYPOTHESIS_EXAMPLES", "4"))


@cache
def model_of(kind: str, seed: int = 0) -> Transformer:
    return make_model(short_mini(kind), seed)


class Thirds:
    """Token i of the text has the remainder i mod 3; after `left` tokens nothing may follow."""

    def __init__(self, left: int, turn: int = 0) -> None:
        self.left, self.turn, self.complete = left, turn, left == 0

    def start(self) -> Thirds:
        return self

    def mask(self) -> NDArray[np.uint8]:
        return ((np.arange(VOCABULARY) % 3 == self.turn) & (self.left > 0)).astype(np.uint8)

    def advance(self, token: int) -> Thirds:
        assert token % 3 == self.turn
        return Thirds(self.left - 1, (self.turn + 1) % 3)


def balance(engine: Engine) -> None:
    """Every page is free, left or held by the requests that it lists, every slot has one owner, and all that is found exists."""
    memory, pool = engine._memory, engine._memory.pool
    inside = [*engine._active, *engine._reading]
    kept = list(memory.snapshots._kept.values())
    holders = Counter(
        page for pages in [held.pages for held in inside] + [held.pages for held in kept] for page in pages
    )
    assert [holders[page] for page in range(pool.count + 1)] == pool._holders
    free, left = list(pool._free), list(pool._left)
    assert sorted([*free, *left, *holders]) == list(range(1, pool.count + 1))
    assert len(pool._find) == len(pool._node_of)
    for page, node in pool._node_of.items():
        assert node.page == page and pool._find[node.key] is node
        assert page not in free and (node.ready or page not in left)
        if not node.ready:  # a request is about to fill it, or those that wait for it would wait for ever
            assert any(page in request.pages for request in engine._reading)
    spare = [snapshot.slot for snapshot in kept] + memory.snapshots._spare
    slots = [request.slot for request in inside if request.slot is not None] + memory._slots
    assert len(slots) == engine.slots
    assert sorted(slots + spare) == list(range(memory.cache_shape.slots - 1))
    assert memory.snapshots._parents == Counter(name[0] for name in memory.snapshots._kept)
    waiting = list(engine._waiting)
    assert all(request.slot is None and not request.pages and request.finish is None for request in waiting)
    assert [request.number for request in waiting] == sorted(request.number for request in waiting)
    assert len({*waiting, *inside}) == len(waiting) + len(inside)
    assert engine._timed == sum(request.deadline is not None for request in (*waiting, *inside))
    assert not memory._slot_copies and not memory._page_copies


class EngineMachine(RuleBasedStateMachine):
    """Events in any order; `teardown` lets everything come to its end and checks it."""

    @initialize(
        kind=st.sampled_from(KINDS),
        late=st.booleans(),
        slots=st.sampled_from([1, 3, 6]),
        chunk=st.sampled_from([5, 16, 64]),
        pages=st.integers(5, 14),
    )
    def begin(self, kind: str, late: bool, slots: int, chunk: int, pages: int) -> None:
        self.kind, self.model = kind, make_model(short_mini(kind))
        self.engine = Engine(self.model, slots=slots, length=LENGTH, chunk=chunk)
        room = self.engine._memory.cache_shape
        self.engine._memory.pool = PagePool(1 + min(pages, slots * room.table_width), room.page)  # fewer than there are
        self.engine._overlaps = late
        self.requests: list[Request] = []
        self.weights = [0]  # the seed of the weights of every version
        self.mixed: set[Request] = set()  # those that went on with caches of other weights

    @rule(
        prefix=st.sampled_from([0, 1, 15, 16, 17, 32, 40]),
        more=st.sampled_from([1, 2, 8, 15, 16, 17, 37]),
        branch=st.integers(0, 2),
        new=st.sampled_from([1, 2, 15, 16, 17, 30, 80]),
        option=st.sampled_from(["greedy", "drawn", "drawn", "stop", "penalty", "form"]),
        samples=st.sampled_from([1, 1, 1, 3]),
    )
    def submit(self, prefix: int, more: int, branch: int, new: int, option: str, samples: int) -> None:
        prompt = text(prefix, 100) + text(more, branch)
        for _ in range(samples):
            seed = len(self.requests)
            sampling = Sampling(
                max_new_tokens=new,
                temperature=float(option != "greedy"),
                seed=seed,
                stop_tokens=tuple(range(0, 60, 5)) if option == "stop" else (),
                frequency_penalty=0.7 if option == "penalty" else 0.0,
                constraint=Thirds(new) if option == "form" else None,
            )
            self.requests.append(self.engine.submit(prompt, sampling))

    @precondition(lambda self: any(request.finish in ("stop", "length") for request in self.requests))
    @rule(which=st.integers(0, 99), cut=st.integers(0, 2), more=st.sampled_from([1, 5, 16]), keeps=st.booleans())
    def next_turn(self, which: int, cut: int, more: int, keeps: bool) -> None:
        """A prompt that goes on from the text of one that has ended, or from a little before its end."""
        ended = [request for request in self.requests if request.finish in ("stop", "length")]
        before = ended[which % len(ended)]
        prompt = (before.context[: before.size - cut] + text(more, which))[:LENGTH]
        sampling = Sampling(max_new_tokens=9, seed=which)
        self.requests.append(self.engine.submit(prompt, sampling, follows=before if keeps else None))

    @rule(count=st.sampled_from([1, 1, 2, 5, 20]))
    def step(self, count: int) -> None:
        for _ in range(count):
            self.engine.step()
            balance(self.engine)

    @precondition(lambda self: any(request.finish is None for request in self.requests))
    @rule(which=st.integers(0, 99), late=st.booleans())
    def drop(self, which: int, late: bool) -> None:
        open_ = [request for request in self.requests if request.finish is None]
        request = open_[which % len(open_)]
        if late:
            if request.deadline is None:
                self.engine._timed += 1
            request.deadline = 0.0
            self.engine.step()
            assert request.finish in ("deadline", "stop", "length")
        else:
            self.engine.cancel(request)
            assert request.finish == "cancelled"
        assert request.slot is None and not request.pages

    @rule(other=st.booleans(), keep=st.booleans())
    def update(self, other: bool, keep: bool) -> None:
        seed = 1 - self.weights[-1] if other else self.weights[-1]
        state = model_of(self.kind, seed).state_dict() if other else None
        version = len(self.weights)
        self.engine.update(state, version, keep_caches=keep)
        self.weights.append(seed)
        inside = {*self.engine._active, *self.engine._reading}
        if other:
            self.mixed |= inside
        assert keep or not inside
        assert self.engine._memory.pool._find == {} and not self.engine._memory.snapshots._kept

    @rule(moment=st.integers(0, 2))
    def interrupt(self, moment: int) -> None:
        """Ctrl-C inside the model."""
        calls = iter(range(moment + 1))

        def count(*_: object) -> None:
            if next(calls) == moment:
                raise KeyboardInterrupt

        hook = self.model.norm.register_forward_pre_hook(count)
        try:
            self.engine.step()
        except KeyboardInterrupt:
            assert not self.engine._active and not self.engine._reading
        except StopIteration:
            pytest.fail("went on after the interrupt")
        finally:
            hook.remove()

    @invariant()
    def books_balance(self) -> None:
        if hasattr(self, "engine"):
            balance(self.engine)

    def teardown(self) -> None:
        if not hasattr(self, "engine"):
            return
        engine = self.engine
        for _ in range(20_000):
            if not engine.busy:
                break
            engine.step()
        assert not engine.busy
        balance(engine)
        assert engine.stats.generated_tokens == sum(len(request.tokens) for request in self.requests)
        engine.update(None, len(self.weights))
        assert engine.stats.pages_used == 0 and engine.stats.active == engine.stats.waiting == 0
        for request in self.requests:
            self.check(request)

    def check(self, request: Request) -> None:
        sampling, seeds = request.sampling, [self.weights[version] for version in request.versions]
        assert request.finish is not None and len(request.logprobs) == len(request.versions) == len(request.tokens)
        stopped = bool(request.tokens) and request.tokens[-1] in sampling.stop_tokens
        formed = sampling.constraint is not None and len(request.tokens) == sampling.max_new_tokens
        if request.finish in ("stop", "length"):
            assert request.finish == ("stop" if stopped or formed else "length")
            assert stopped or len(request.tokens) == request.limit
        assert not any(token in sampling.stop_tokens for token in request.tokens[:-1])
        if request in self.mixed or not request.tokens:
            return
        # every token with the weights of its version, whatever was in the caches before
        expected = []
        tables = {
            seed: reference_logprobs(model_of(self.kind, seed), request.prompt, request.tokens, 1.0)
            for seed in set(seeds)
        }
        expected = [tables[seed][place] for place, seed in enumerate(seeds)]
        assert request.logprobs == pytest.approx(expected, abs=1e-8)
        if len(set(seeds)) == 1:
            alone = Engine(model_of(self.kind, seeds[0]), slots=1, length=LENGTH)
            completion = alone.complete([request.prompt], [sampling])[0]
            assert request.tokens == completion.tokens[: len(request.tokens)]


def test_any_order_of_events() -> None:
    run_state_machine_as_test(
        EngineMachine,
        settings=settings(
            max_examples=EXAMPLES,
            stateful_step_count=18,
            deadline=None,
            derandomize="HYPOTHESIS_EXAMPLES" not in os.environ,
            suppress_health_check=list(HealthCheck),
            phases=[Phase.explicit, Phase.generate],  # shrinking takes minutes
            database=None,
        ),
    )
