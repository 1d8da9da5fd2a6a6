"""Needle retrieval: the texts are what they say, and the cached scoring equals plain forward passes and the engine."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from ingot.evals.suites.needle import (
    Needle,
    NeedleText,
    judge,
    make_needles,
    measure_needle,
    read_filler,
    score_candidates,
)
from ingot.inference.engine import Engine
from ingot.inference.sampling import Sampling
from ingot.workspace.errors import DataError
from ingot.workspace.interrupt import StopSignal

from .conftest import World

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


def test_scores_equal_plain_forward_passes(world: World) -> None:
    found = needles(world, 96)
    expected = plain_logprobs(world, found)
    torch.testing.assert_close(score_candidates(world.model, found)[0], expected, rtol=1e-5, atol=1e-5)
    chosen = [first for first, _ in judge(world.model, found)]
    assert chosen == (expected.argmax(dim=0) == 0).tolist()
    assert any(chosen) and not all(chosen)


def test_candidates_and_prompts_of_different_lengths(world: World) -> None:
    """Other tokenizers cut numbers unevenly: padding must not change any score."""
    found = [
        dataclasses.replace(
            needle,
            prompt=needle.prompt[number:],
            candidates=[c[: 1 + (number + rank) % 4] for rank, c in enumerate(needle.candidates)],
        )
        for number, needle in enumerate(needles(world, 96))
    ]
    scores = score_candidates(world.model, found)[0]
    torch.testing.assert_close(scores, plain_logprobs(world, found), rtol=1e-5, atol=1e-5)


def test_greedy_is_what_the_engine_writes(world: World) -> None:
    found = needles(world, 96)
    sampling = Sampling(max_new_tokens=4, temperature=0.0)
    written = Engine(world.model, length=128).complete([needle.prompt for needle in found], [sampling] * len(found))
    right = [
        dataclasses.replace(needle, candidates=[completion.tokens, *needle.candidates[1:]])
        for needle, completion in zip(found, written, strict=True)
    ]
    assert all(greedy for _, greedy in judge(world.model, right))
    wrong = [
        dataclasses.replace(needle, candidates=[[*completion.tokens[:3], completion.tokens[3] ^ 1], *needle.candidates])
        for needle, completion in zip(found, written, strict=True)
    ]
    assert not any(greedy for _, greedy in judge(world.model, wrong))


def test_metrics(world: World) -> None:
    metrics = measure_needle(world.model, world.tokenizer, world.shards, CONFIG, 0, StopSignal())
    assert [metric.name for metric in metrics] == ["needle/96", "needle_exact/96", "needle/160", "needle_exact/160"]
    chosen = [chosen for chosen, _ in judge(world.model, needles(world, 160))]
    assert metrics[2].estimate.value == pytest.approx(sum(chosen) / 9)
    assert metrics[2].estimate.count == 9


def test_too_little_text_is_an_error(world: World) -> None:
    with pytest.raises(DataError, match="a needle text needs 1000000"):
        read_filler(world.shards, 1_000_000, world.tokenizer)
