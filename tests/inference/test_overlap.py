"""Steps that are settled one late, as on a GPU, forced on the CPU; and what must not spread from one request to the others.

When a step is launched before the tokens of the one before are looked at, requests end, are dropped and get new weights while a
step with their rows is in flight. Engines on the CPU settle at once: these tests set `_overlaps`. With `late`, both ways.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from ingot.inference import in_flight
from ingot.inference.engine import Engine
from ingot.inference.in_flight import InFlight
from ingot.inference.request import Request
from ingot.inference.runner import EngineRunner
from ingot.inference.sampling import Sampling
from ingot.inference.text import TextStream
from ingot.model.transformer import Transformer
from ingot.workspace.errors import CheckFailed, IngotError
from tests.inference.conftest import VOCABULARY, mixed_config, tiny_model
from tests.inference.test_engine_machine import balance
from tests.inference.test_engine_mixers import check, finish, make_model, short_mini, text
from tests.serve.speaker import trained_speaker
from tests.slow import first_fast

LENGTH = 96
KINDS = ("falcon-h1-0.5b-mini", "deepseek-v3.2-mini", "gemma3-4b-mini", "llama-3.1-8b-mini", "qwen3-next-80b-a3b-mini")
STATES = ("qwen3-next-80b-a3b-mini", "falcon-h1-0.5b-mini")
both_ways = pytest.mark.parametrize("late", [False, True])


def make_engine(model: Transformer, slots: int = 8, length: int = 64, late: bool = True, chunk: int = 64) -> Engine:
    engine = Engine(model, slots=slots, length=length, chunk=chunk)
    engine._overlaps = late
    return engine


def greedy(count: int, *stops: int) -> Sampling:
    return Sampling(max_new_tokens=count, temperature=0.0, stop_tokens=stops)


def small(prompt: Sequence[int]) -> list[int]:
    return [token % VOCABULARY for token in prompt]


@pytest.mark.parametrize("name", first_fast(KINDS, 2))
def test_any_order_of_events_one_step_late(name: str) -> None:
    """Rows that end by a stop token, by their limit, or from outside, among others that go on; then next turns."""
    model, chance = make_model(short_mini(name)), random.Random(2)
    engine = make_engine(model, slots=9, length=LENGTH, chunk=32)
    prompts = [text(chance.choice((1, 15, 16, 17)), seed) for seed in range(4)]
    requests: list[Request] = []
    for number in range(12):
        stops = tuple(range(0, 61, 7)) if number % 3 == 0 else ()
        sampling = Sampling(
            max_new_tokens=chance.randint(1, 20), temperature=float(number % 2), seed=number, stop_tokens=stops
        )
        requests.append(engine.submit(chance.choice(prompts), sampling))
        for _ in range(chance.randint(0, 4)):
            engine.step()
            balance(engine)
        if number % 6 == 5:
            engine.cancel(chance.choice(requests))
            balance(engine)
    finish(engine, requests)
    ended = [request for request in requests if request.finish != "cancelled"]
    turns = [engine.submit(one.context[: LENGTH - 8] + text(2, 9), greedy(4)) for one in ended[-4:]]
    finish(engine, turns)
    for request in ended:
        if request.finish == "stop":
            assert request.tokens[-1] in request.sampling.stop_tokens
            request.limit = len(request.tokens)  # what `check` expects
    check(model, [*ended, *turns])
    assert engine.stats.generated_tokens == sum(len(request.tokens) for request in (*requests, *turns))


@both_ways
@pytest.mark.parametrize("name", STATES)
def test_states_of_texts_that_stop_together(name: str, late: bool) -> None:
    """What is kept for the next turn stands for exactly the tokens that were read, with or without the stop token."""
    model = make_model(short_mini(name))
    prompts = [text(5, 1), text(7, 2), text(9, 3)]
    plain = Engine(model, slots=3, length=LENGTH).complete(prompts, [greedy(6)] * 3)
    engine = make_engine(model, slots=4, length=LENGTH, late=late)
    stopped = engine.complete(prompts, [greedy(20, one.tokens[3]) for one in plain])
    assert [one.finish for one in stopped] == ["stop"] * 3
    for cut in (1, 0):
        turns = [
            engine.submit(prompt + one.tokens[: len(one.tokens) - cut] + text(4, 9), greedy(5))
            for prompt, one in zip(prompts, stopped, strict=True)
        ]
        finish(engine, turns)
        check(model, turns)


@both_ways
def test_tokens_are_counted_once(late: bool) -> None:
    engine = make_engine(tiny_model(), late=late)
    engine.complete([[1], [2]], [greedy(3), greedy(9)])
    assert engine.stats.generated_tokens == 12


def test_prompts_are_counted_once_though_they_are_read_again() -> None:
    engine = make_engine(tiny_model(), late=False, chunk=8)
    request = engine.submit([1] * 40, greedy(2))
    engine.step()
    engine.update(None, 1, keep_caches=False)
    finish(engine, [request])
    assert engine.stats.prompt_tokens == 40 and engine.stats.shared_tokens == request.shared_tokens == 0


def test_rows_that_ended_long_ago_disturb_nobody() -> None:
    """They compute on, beyond the engine's length, while few of the rows are dead."""
    model = tiny_model()
    engine = make_engine(model, slots=16)
    requests = [engine.submit([1] * 60, greedy(4))]
    requests += [engine.submit([2 + row], Sampling(max_new_tokens=63, seed=row)) for row in range(8)]
    finish(engine, requests)
    for request in requests:
        alone = Engine(model, slots=1, length=64).complete([request.prompt], [request.sampling])[0]
        assert request.tokens == alone.tokens


def test_requests_join_and_leave_while_a_step_is_in_flight(monkeypatch: pytest.MonkeyPatch) -> None:
    """No step waits for the tokens of the one before, though rows are made anew: those that stay move on the device."""
    model = tiny_model()
    engine = make_engine(model, slots=8)
    launched, looked, seen = 0, 0, list[int]()
    logits, wait = engine._decoder.logits, InFlight.wait

    def launch(*given: int) -> Tensor:
        nonlocal launched
        launched += 1
        return logits(*given)

    def look(flight: InFlight) -> tuple[list[int], list[float]]:
        nonlocal looked
        looked += 1
        seen.append(launched - looked)  # steps after the one that is looked at
        return wait(flight)

    monkeypatch.setattr(engine._decoder, "logits", launch)
    monkeypatch.setattr(InFlight, "wait", look)
    requests = [
        engine.submit([3, 1, 4], Sampling(max_new_tokens=30, seed=1)),
        engine.submit([1, 5], Sampling(max_new_tokens=4)),
    ]
    for number in range(8):  # one joins at nearly every step, while others get their last tokens
        engine.step()
        requests.append(engine.submit([number, 9], Sampling(max_new_tokens=2 + number % 3, seed=number)))
    finish(engine, requests)
    monkeypatch.undo()
    assert seen[:-1] == [1] * (len(seen) - 1) and launched - looked <= 1
    for request in requests:
        alone = Engine(model, slots=1, length=64).complete([request.prompt], [request.sampling])[0]
        assert request.tokens == alone.tokens and request.logprobs == pytest.approx(alone.logprobs, abs=1e-5)


def test_an_interrupt_while_tokens_are_given_out_leaves_whole_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C may come between the tokens of a step and their log-probabilities."""
    model = tiny_model()
    engine = make_engine(model, slots=8)
    requests = [engine.submit([1 + row], Sampling(max_new_tokens=9, seed=row)) for row in range(3)]
    for _ in range(4):
        engine.step()

    def interrupted(name: str, *given: Any) -> None:
        append(name, *given)
        raise KeyboardInterrupt

    append = in_flight._append
    with monkeypatch.context() as patch:
        patch.setattr(in_flight, "_append", interrupted)
        with pytest.raises(KeyboardInterrupt):
            engine.step()
    finish(engine, requests)
    for request in requests:
        alone = Engine(model, slots=1, length=64).complete([request.prompt], [request.sampling])[0]
        assert request.tokens == alone.tokens and len(request.logprobs) == len(request.versions) == 9


@both_ways
def test_stop_strings(late: bool) -> None:
    model = trained_speaker()
    assert model.tokenizer is not None
    prompt = model.tokenizer.encode("hello")
    free = Engine(model, slots=1).complete([prompt], [Sampling(max_new_tokens=30, seed=4)])[0]
    said = TextStream(model.tokenizer)
    pieces = [said.push(token) for token in free.tokens]
    word = next(piece for piece in pieces[8:] if piece)
    sampling = Sampling(max_new_tokens=30, seed=4, stop_strings=(word,))
    engine = make_engine(model, slots=6, length=256, late=late)
    others = [engine.submit(prompt, Sampling(max_new_tokens=30, seed=seed)) for seed in range(5)]
    stopped = engine.submit(prompt, sampling)
    finish(engine, [*others, stopped])
    assert stopped.finish == "stop" and stopped.tokens == free.tokens[: len(stopped.tokens)]
    assert word in model.tokenizer.decode(stopped.tokens) and word not in model.tokenizer.decode(stopped.tokens[:-1])
    assert others[4].tokens == free.tokens


@both_ways
def test_zeros_in_place_of_what_was_not_finite_are_not_found(late: bool) -> None:
    """One prompt for which the model gives no numbers: the next one with a beginning that was read before is not harmed."""
    model = tiny_model(mixed_config())
    with torch.no_grad():
        model.embedding.weight[96] = float("nan")
    engine = make_engine(model, late=late)
    prompt = [token % 90 for token in text(40, 1)]
    sampling = Sampling(max_new_tokens=5, temperature=0.0, allowed_tokens=tuple(range(90)))
    first = engine.complete([prompt], [sampling])[0]
    with pytest.raises(CheckFailed, match="not finite"):
        engine.complete([[96] * 3], [sampling])
    assert engine.complete([prompt], [sampling])[0].tokens == first.tokens


def test_an_update_that_finds_a_step_that_was_not_finite() -> None:
    """The error is told, the step is dropped, and the request goes on from its tokens once there are weights again."""
    model = tiny_model(mixed_config())
    good = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    prompt = small(text(40, 1))
    expected = Engine(model, slots=1, length=64).complete([prompt], [greedy(12)])[0].tokens
    engine = make_engine(model)
    request = engine.submit(prompt, greedy(12))
    engine.step()
    engine.step()
    engine.update({name: tensor * float("nan") for name, tensor in good.items()}, 1)
    engine.step()
    with pytest.raises(CheckFailed, match="not finite"):
        engine.update(good, 2)
    engine.update(good, 2)
    finish(engine, [request])
    assert request.tokens == expected


@both_ways
def test_an_update_between_any_two_steps_keeps_texts(late: bool) -> None:
    model = tiny_model()
    prompts = [small(text(length, length)) for length in (1, 15, 16, 17, 33)]
    samplings = [Sampling(max_new_tokens=20, seed=seed) for seed in range(5)]
    expected = [one.tokens for one in Engine(model, slots=5, length=64).complete(prompts, samplings)]
    for keep in (True, False):
        engine = make_engine(model, slots=4, late=late, chunk=256)
        requests = [engine.submit(*pair) for pair in zip(prompts, samplings, strict=True)]
        version = 0
        while engine.busy:
            engine.step()
            version += 1
            engine.update(None, version, keep_caches=keep)
            assert not keep or all(list(one.versions) == sorted(one.versions) for one in requests)
            balance(engine)
        assert [request.tokens for request in requests] == expected


class Ends:
    """Any tokens, `left` of them; then nothing may follow."""

    def __init__(self, left: int, complete: bool = True) -> None:
        self.left, self.ends_well, self.complete = left, complete, complete and left == 0

    def start(self) -> Ends:
        return self

    def mask(self) -> NDArray[np.uint8]:
        return np.full(VOCABULARY, int(self.left > 0), dtype=np.uint8)

    def advance(self, token: int) -> Ends:
        return Ends(self.left - 1, self.ends_well)


@both_ways
@pytest.mark.parametrize(
    ("options", "ends_well", "finish_is"),
    [
        ({}, True, "stop"),  # the form ends the text
        ({"min_new_tokens": 5, "stop_tokens": (3, 1000)}, True, "stop"),  # before a stop token may be drawn
        ({}, False, "error"),  # a form that cannot be finished
    ],
)
def test_a_form_without_a_next_token_ends_its_own_request_only(
    late: bool, options: dict[str, object], ends_well: bool, finish_is: str
) -> None:
    model = tiny_model()
    engine = make_engine(model, late=late)
    ending = engine.submit([1], Sampling(max_new_tokens=30, constraint=Ends(2, ends_well), **options))  # type: ignore[arg-type]
    formed = engine.submit([2], Sampling(max_new_tokens=20, seed=2, constraint=Ends(30)))
    others = [engine.submit([2], Sampling(max_new_tokens=20, seed=2)) for _ in range(5)]
    finish(engine, [ending, formed, *others])
    assert ending.finish == finish_is and (ending.problem is not None) == (finish_is == "error")
    if "stop_tokens" not in options or 3 not in ending.tokens:
        assert len(ending.tokens) == 2
    assert formed.tokens == others[0].tokens and others[4].finish == "length"
    with pytest.raises(IngotError, match="no token to begin with"):
        engine.submit([1], Sampling(constraint=Ends(0)))


@pytest.mark.parametrize(
    "options",
    [
        {"logit_bias": ((VOCABULARY, 1.0),)},
        {"allowed_tokens": (1, VOCABULARY)},
        {"allowed_tokens": (1,), "stop_tokens": (1, 2), "min_new_tokens": 1},
    ],
)
def test_a_sampling_that_cannot_be_drawn_is_refused_at_once(options: dict[str, object]) -> None:
    """Found in the batch it would fail the step of everyone in it."""
    engine = make_engine(tiny_model())
    good = engine.submit([1], greedy(5))
    with pytest.raises(IngotError, match="sampling"):
        engine.submit([2], Sampling(max_new_tokens=9, **options))  # type: ignore[arg-type]
    finish(engine, [good])


def test_a_stream_that_is_closed_before_its_first_token_leaves_nothing() -> None:
    engine = make_engine(tiny_model())
    engine.stream([1], greedy(5)).close()
    assert not engine.busy


def test_an_interrupt_while_requests_join_loses_none(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = make_engine(tiny_model())
    requests = [engine.submit([token] * 40, greedy(2)) for token in range(3)]
    enter, calls = engine._memory.enter, iter(range(9))

    def interrupted(request: Request, spare: int) -> str:
        if next(calls) == 1:
            raise KeyboardInterrupt
        return enter(request, spare)

    monkeypatch.setattr(engine._memory, "enter", interrupted)
    with pytest.raises(KeyboardInterrupt):
        engine.step()
    assert [*engine._waiting] == requests
    balance(engine)
    finish(engine, requests)


def test_a_future_that_is_cancelled_does_not_end_the_runner() -> None:
    """As asyncio does with a future that it waited for in vain."""
    with EngineRunner(make_engine(tiny_model())) as runner:
        handle = runner.submit([1], greedy(2))
        handle.done.cancel()
        assert len(runner.submit([1], greedy(50)).done.result(60).tokens) == 50
        assert handle.done.result(60).finish == "length"


@both_ways
@pytest.mark.parametrize("length", first_fast([16, 17, 50, 15, 32, 33], 3))
def test_prompts_and_texts_that_end_where_pages_or_the_engine_do(length: int, late: bool) -> None:
    model = tiny_model()
    engine = make_engine(model, slots=4, length=50, late=late, chunk=5)
    prompts = [small(text(length - less, 1)) for less in (0, 1, 2)]
    requests = [engine.submit(prompt, greedy(count)) for prompt in prompts for count in (1, 2, 60)]
    finish(engine, requests)
    for request in requests:
        assert request.finish == "length"
        assert len(request.tokens) == request.limit == min(request.sampling.max_new_tokens, 50 - len(request.prompt))
        if request.tokens:
            table = model(torch.tensor([request.context]))[0, len(request.prompt) - 1 : -1]
            assert request.tokens == table.argmax(-1).tolist()
    balance(engine)
