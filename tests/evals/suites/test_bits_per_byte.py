"""Bits per byte against documents scored one by one, the baseline against entropy, the error against a bootstrap."""

from __future__ import annotations

import math
import shutil
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch

from ingot.evals.suites.bits_per_byte import measure_bits_per_byte, ratio_units, row_targets, unigram_bits
from ingot.tokens.loader import validation_batches
from ingot.tokens.shards import Shards
from ingot.workspace.errors import Interrupted
from ingot.workspace.interrupt import StopSignal
from tests.evals.conftest import World

CPU = torch.device("cpu")


def texts_of(world: World, length: int, rows: int) -> list[list[bytes]]:
    """The scored text of each row, batch by batch."""
    return [
        [world.tokenizer.decode_bytes(targets, skip_special=True) for targets in row_targets(batch)]
        for batch, _ in validation_batches(world.shards, length, rows)
    ]


def test_equals_documents_scored_one_by_one(world: World) -> None:
    length = 64
    metric = measure_bits_per_byte(
        world.model, world.shards, sequence_length=length, rows=10_000, device=CPU, stop=StopSignal()
    )[0]
    stream = Shards(world.shards).source("validation").read(0, 10**9).tolist()
    bits, text = 0.0, b""
    for start in range(0, len(stream) - 1, length):
        window = stream[start : start + length + 1]
        pieces: list[list[int]] = [[]]
        for token in window:
            pieces[-1].append(token)
            if token == world.tokenizer.end_of_text:
                pieces.append([])
        for piece in pieces:
            if len(piece) < 2:
                continue
            with torch.no_grad():
                logprobs = world.model(torch.tensor([piece]))[0].double().log_softmax(-1)
            bits -= sum(float(logprobs[place, token]) for place, token in enumerate(piece[1:])) / math.log(2)
            text += world.tokenizer.decode_bytes(piece[1:], skip_special=True)
    assert metric.estimate.value == pytest.approx(bits / len(text), rel=1e-5)
    assert not metric.higher_is_better


def test_bytes_are_those_of_the_loader(world: World) -> None:
    sizes = [size for _, size in validation_batches(world.shards, 50, 40)]
    assert [sum(map(len, texts)) for texts in texts_of(world, 50, 40)] == sizes


def test_unigram_baseline_is_the_entropy_of_the_same_bytes(world: World) -> None:
    metric = measure_bits_per_byte(
        world.model, world.shards, sequence_length=64, rows=12, device=CPU, stop=StopSignal()
    )[1]
    texts = [text for batch in texts_of(world, 64, 12) for text in batch]
    shares = np.array(list(Counter(b"".join(texts)).values()), dtype=float)
    shares /= shares.sum()
    assert metric.estimate.value == pytest.approx(float(-(shares * np.log2(shares)).sum()))
    assert 3.5 < metric.estimate.value < 6.0  # what English and Python text has


def test_token_baseline_uses_training_counts_only(world: World) -> None:
    metric = measure_bits_per_byte(
        world.model, world.shards, sequence_length=64, rows=12, device=CPU, stop=StopSignal()
    )[2]
    shards = Shards(world.shards)
    counts = Counter(shards.source("all").read(0, 10**9).tolist())
    total = sum(counts.values()) + world.tokenizer.vocabulary_size
    bits, size = 0.0, 0
    for batch, batch_bytes in validation_batches(world.shards, 64, 12):
        size += batch_bytes
        for target in batch.targets[batch.streams["weight"] > 0].tolist():
            bits -= math.log2((counts[target] + 1) / total)
    assert metric.estimate.value == pytest.approx(bits / size)


def test_no_unigram_model_beats_the_baseline() -> None:
    texts = [b"abracadabra", b"banana"]
    best = sum(unigram_bits(texts))
    generator = np.random.default_rng(0)
    letters = sorted(set(b"".join(texts)))
    for _ in range(200):
        chances = dict(zip(letters, generator.dirichlet([1.0] * len(letters)), strict=True))
        assert sum(-math.log2(chances[byte]) for text in texts for byte in text) >= best


def test_units_have_the_ratio_as_mean_and_its_error_as_error() -> None:
    generator = np.random.default_rng(2)
    sizes = generator.integers(50, 400, size=200)
    bits = sizes * generator.normal(2.3, 0.3, size=200)
    units = np.array(list(ratio_units(bits.tolist(), sizes.tolist()).values()))
    assert units.mean() == pytest.approx(bits.sum() / sizes.sum())
    error = units.std(ddof=1) / math.sqrt(len(units))
    picks = generator.integers(0, 200, size=(4000, 200))
    bootstrap = (bits[picks].sum(axis=1) / sizes[picks].sum(axis=1)).std()
    assert error == pytest.approx(float(bootstrap), rel=0.06)


def test_pairing_two_models_on_the_same_rows(world: World, tmp_path: Path) -> None:
    shutil.copytree(world.shards, tmp_path / "shards")
    first, second = (
        measure_bits_per_byte(world.model, folder, sequence_length=64, rows=8, device=CPU, stop=StopSignal())
        for folder in (world.shards, tmp_path / "shards")
    )
    difference = first[0].minus(second[0])
    assert (difference.value, difference.standard_error) == (0.0, 0.0)
    against_baseline = first[0].minus(first[1])
    assert against_baseline.value == pytest.approx(first[0].estimate.value - first[1].estimate.value)


def test_a_stop_ends_it_between_two_batches(world: World) -> None:
    class AfterOne(StopSignal):
        def check(self) -> None:
            super().check()
            self.request()

    assert len(validation_batches(world.shards, 64, 48)) > 1
    with pytest.raises(Interrupted):
        measure_bits_per_byte(world.model, world.shards, sequence_length=64, rows=48, device=CPU, stop=AfterOne())
