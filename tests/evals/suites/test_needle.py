"""Needle retrieval: the texts are what they say, and scores equal plain forward passes and what the engine writes."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from ingot.evals.bases.suite import Measured, Measuring, Subject
from ingot.evals.engine.answer import measure_together
from ingot.evals.engine.local import LocalAnswerer
from ingot.evals.engine.memory import AnswerMemory, RememberingEngine
from ingot.evals.engine.request import Likely
from ingot.evals.suites.needle import Needle, NeedleText, make_needles, read_filler, verdict
from ingot.inference.engine import Engine
from ingot.inference.sampling import Sampling
from ingot.workspace.errors import DataError
from ingot.workspace.interrupt import StopSignal
from tests.evals.conftest import World

CONFIG = Needle(lengths=(96, 160), depths=(0.0, 0.5, 1.0), count=3, candidates=5)


def needles(world: World, length: int, seed: int = 0) -> list[NeedleText]:
    filler = read_filler(world.shards, length, world.tokenizer)
    return make_needles(filler, world.tokenizer, CONFIG, length, seed)


def test_texts(world: World) -> None:
    found = needles(world, 160)
    assert len(found) == 9 and len({needle.id for needle in found}) == 9
    assert found == needles(world, 160) and found != needles(world, 160, seed=1)
    for needle, depth in zip(found, [0.0] * 3 + [0.5] * 3 + [1.0] * 3, strict=True):
        assert len(needle.prompt) + max(map(len, needle.candidates)) == 160
        text = world.tokenizer.decode(needle.prompt)
        values = [world.tokenizer.decode(candidate) for candidate in needle.candidates]
        assert len(set(values)) == 5
        assert [text.count(value) for value in values] == [1, 0, 0, 0, 0]
        sentence = text[text.index("The ") if depth == 0 else 0 :]
        assert text.endswith(" number is") and f" number is{values[0]}.\n" in sentence
        answer = needle.candidates[0]
        starts = [start for start in range(160) if needle.prompt[start : start + len(answer)] == answer]
        assert len(starts) == 1 and abs(starts[0] / 160 - depth) < 0.2
        assert world.tokenizer.end_of_text not in needle.prompt


def plain_logprobs(world: World, found: list[NeedleText]) -> torch.Tensor:
    """log p of every candidate, each by a forward pass of its own without cache or padding [candidates, texts]."""
    table = torch.zeros(len(found[0].candidates), len(found), dtype=torch.float64)
    for column, needle in enumerate(found):
        for row, candidate in enumerate(needle.candidates):
            with torch.no_grad():
                logprobs = world.model(torch.tensor([needle.prompt + candidate]))[0].double().log_softmax(-1)
            start = len(needle.prompt) - 1
            table[row, column] = sum(float(logprobs[start + place, token]) for place, token in enumerate(candidate))
    return table


def likely(world: World, found: list[NeedleText]) -> list[list[Likely]]:
    """What the engine says about every candidate."""

    def ask() -> Measuring:
        answers.extend((yield [request for needle in found for request in needle.requests()]))
        return Measured()

    answers: list[Likely] = []
    engine = Engine(world.model, slots=4, length=192)
    with AnswerMemory(None) as memory:
        answerer = LocalAnswerer(world.tokenizer, RememberingEngine(engine, memory), StopSignal())
        subject = Subject("tiny", "text", StopSignal(), given_tokenizer=world.tokenizer)
        measure_together([(ask(), subject)], answerer)
    each = iter(answers)
    return [[next(each) for _ in needle.candidates] for needle in found]


def test_scores_equal_plain_forward_passes(world: World) -> None:
    found = needles(world, 96)
    expected = plain_logprobs(world, found)
    scored = likely(world, found)
    logprobs = torch.tensor([[each.logprob for each in group] for group in scored], dtype=torch.float64).T
    torch.testing.assert_close(logprobs, expected, rtol=1e-5, atol=1e-5)
    chosen = [verdict(group)[0] for group in scored]
    assert chosen == (expected.argmax(dim=0) == 0).tolist()
    assert any(chosen) and not all(chosen)


def test_greedy_is_what_the_engine_writes(world: World) -> None:
    found = needles(world, 96)
    sampling = Sampling(max_new_tokens=4, temperature=0.0)
    written = Engine(world.model, length=128).complete([needle.prompt for needle in found], [sampling] * len(found))
    right = [
        dataclasses.replace(needle, candidates=[completion.tokens, *needle.candidates[1:]])
        for needle, completion in zip(found, written, strict=True)
    ]
    assert all(verdict(group)[1] for group in likely(world, right))
    wrong = [
        dataclasses.replace(needle, candidates=[[*completion.tokens[:3], completion.tokens[3] ^ 1], *needle.candidates])
        for needle, completion in zip(found, written, strict=True)
    ]
    assert not any(verdict(group)[1] for group in likely(world, wrong))


def test_metrics(world: World) -> None:
    subject = Subject("tiny", "text", StopSignal(), given_tokenizer=world.tokenizer, shards=world.shards)
    measuring = CONFIG.measure(subject)
    requests = next(measuring)
    assert len(requests) == 2 * 9 * 5
    answers = [Likely(-float(number % 5 + (number == 50)), number % 2 == 0, 3) for number in range(len(requests))]
    with pytest.raises(StopIteration) as stopped:
        measuring.send(answers)
    metrics = {metric.name: metric for metric in stopped.value.value.metrics}
    assert list(metrics) == ["needle/96", "needle_exact/96", "needle/160", "needle_exact/160"]
    assert metrics["needle/96"].estimate.value == 1 and metrics["needle/96"].chance == 0.2
    # request 50 is the right candidate of the second text of 160 tokens, as likely as the next one: still the first
    assert metrics["needle/160"].estimate.value == 1 and metrics["needle/160"].estimate.count == 9
    assert metrics["needle_exact/96"].estimate.value == pytest.approx(5 / 9)
    assert metrics["needle_exact/160"].estimate.value == pytest.approx(4 / 9)


def test_too_little_text_is_an_error(world: World) -> None:
    with pytest.raises(DataError, match="a needle text needs 1000000"):
        read_filler(world.shards, 1_000_000, world.tokenizer)
