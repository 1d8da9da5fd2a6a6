"""Faults inside a step, wherever the engine asks something of the device: nothing leaks, and every text is what it would be.

Several faults come in one run, half of them before and half of them after the work they stand for. After each the books must
balance (test_engine_machine.py), and the step is simply asked for again.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import pytest

from ingot.inference import engine as engine_module
from ingot.inference.engine import Engine
from ingot.inference.in_flight import InFlight
from ingot.inference.pages import PagePool
from ingot.inference.request import Request
from ingot.inference.sampling import Sampling
from ingot.inference.speculate.config import Speculation
from ingot.model.transformer import Transformer
from tests.inference.conftest import mixed_config, tiny_model
from tests.inference.test_engine_machine import balance
from tests.inference.test_engine_mixers import text

BEFORE, AFTER = (1, 4), (2, 6)  # which calls of the faulty function fail, before or after their work
Place = Callable[[Engine], tuple[Any, str]]  # the object and the name of its function
PLACES: dict[str, Place] = {
    "snapshot": lambda engine: (engine._memory, "snapshot"),
    "copies": lambda engine: (engine._memory, "flush"),
    "slots": lambda engine: (engine._memory._all_caches[-1], "copy_slots"),
    "pages": lambda engine: (engine._memory._all_caches[-1], "copy_pages"),
    "new rows": lambda engine: (engine._rows, "load"),
    "more pages": lambda engine: (engine._rows, "grow"),
    "prompts": lambda engine: (engine_module, "read_chunks"),
    "logits": lambda engine: (engine._decoder, "logits"),
    "draw": lambda engine: (engine_module, "draw"),
    "arrival": lambda engine: (InFlight, "wait"),
}
LATE_PLACES: dict[str, Place] = {"dead rows": lambda engine: (engine._rows, "kill")}  # else the rows are made anew
CASES = [(place, late) for late in (False, True) for place in (PLACES | LATE_PLACES if late else PLACES)]


class Fault(Exception):
    """What the device said."""


@cache
def make_model() -> Transformer:
    """Pages, and rings of which snapshots are kept."""
    return tiny_model(mixed_config()).double()


def make_engine(model: Transformer, late: bool, speculate: Speculation | None = None) -> Engine:
    engine = Engine(model, slots=3, length=64, chunk=16, speculate=speculate)
    engine._memory.pool = PagePool(9, engine._memory.cache_shape.page)  # of 12 that three long texts need
    engine._overlaps = late
    return engine


def submit(engine: Engine) -> list[Request]:
    """Three of one prompt, some that end by a stop token, one that has a deadline."""
    prompts = [text(30, 1), text(30, 1), text(30, 1), text(14, 2), text(1, 3)]
    return [
        engine.submit(
            prompt,
            Sampling(max_new_tokens=5 + 2 * number, seed=number, stop_tokens=(5, 6, 7) if number % 2 else ()),
            deadline=3600.0 if number == 2 else None,
        )
        for number, prompt in enumerate(prompts)
    ]


def finish(engine: Engine, requests: list[Request]) -> int:
    """Step to the end, whatever fails; how often it did."""
    faults = 0
    for _ in range(2000):
        if not engine.busy:
            break
        try:
            engine.step()
        except Fault:
            faults += 1
        balance(engine)
    assert all(request.finish for request in requests)
    return faults


def run(engine: Engine) -> tuple[list[tuple[list[int], str | None]], int]:
    """The texts of five requests and of the next turns of two of them; and how many steps failed."""
    first = submit(engine)
    faults = finish(engine, first)
    turns = [engine.submit(one.context + text(4, 9), Sampling(max_new_tokens=4, seed=9)) for one in first[:2]]
    faults += finish(engine, turns)
    return [(request.tokens, request.finish) for request in (*first, *turns)], faults


@cache
def expected(late: bool) -> list[tuple[list[int], str | None]]:
    return run(make_engine(make_model(), late))[0]


def break_down(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str) -> None:
    work, calls = getattr(owner, name), iter(range(100_000))

    def faulty(*args: Any, **options: Any) -> Any:
        call = next(calls)
        if call in BEFORE:
            raise Fault
        result = work(*args, **options)
        if call in AFTER:
            raise Fault
        return result

    monkeypatch.setattr(owner, name, faulty)


@pytest.mark.parametrize(("place", "late"), CASES)
def test_a_fault_loses_neither_pages_nor_text(place: str, late: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = make_engine(make_model(), late)
    break_down(monkeypatch, *(PLACES | LATE_PLACES)[place](engine))
    texts, faults = run(engine)
    assert faults >= 2
    assert texts == expected(late)
    monkeypatch.undo()
    engine.update(None, 1)  # also lets go of what snapshots hold
    assert engine.stats.pages_used == 0


def test_a_fault_after_drafts_were_read_loses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = make_engine(make_model(), late=False, speculate=Speculation(kind="ngram", tokens=3, shortest=1))
    assert engine._speculator is not None
    break_down(monkeypatch, engine._speculator, "settle")
    texts, faults = run(engine)
    assert faults >= 2 and texts == expected(late=False)
    assert engine.stats.generated_tokens == sum(len(tokens) for tokens, _ in texts)


def test_a_row_that_cannot_be_cleared_does_not_write_into_the_pages_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its request is cancelled all the same; the device learns of it with the next step."""
    engine = Engine(make_model(), slots=8, length=64, chunk=64)  # one of five leaves: the rows are not made anew
    engine._overlaps = True
    requests = submit(engine)
    for _ in range(4):
        engine.step()
    victim = engine._active[0]
    engine.cancel(victim)
    assert victim.finish == "cancelled" and victim.slot is None and not victim.pages
    with monkeypatch.context() as patch:
        patch.setattr(engine._rows, "kill", lambda rows: (_ for _ in ()).throw(Fault()))
        with pytest.raises(Fault):
            engine.step()
    balance(engine)
    finish(engine, requests)
    for request, (tokens, _) in zip(requests, expected(late=True), strict=False):
        assert request.tokens == tokens[: len(request.tokens)]
        assert request is victim or len(request.tokens) == len(tokens)
