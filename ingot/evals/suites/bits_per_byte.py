"""Bits per byte on the validation text, and the baselines it has to beat.

    bits per byte = - sum log2 p(token | before) / bytes of these tokens

comparable between tokenizers. The byte baseline is the entropy of the byte distribution of the very same text,
H = - sum_b q(b) log2 q(b): the best that any model can do that knows how often each byte occurs in this text and looks
at nothing else; one with byte counts from the training text can only be worse. A tokenizer alone beats it (a uniform
guess among 4,096 tokens of 3.4 bytes is 3.5 bits per byte), so there is a second one: a model that knows how often each
token occurs in the training text, q(t) = (count(t) + 1) / (all counts + vocabulary).

Units are rows of text. All numbers are ratios of sums, so row i gets R + (bits_i - R bytes_i) / mean bytes: the mean
of these is exactly R, and their standard error is that of a ratio estimator (Cochran, Sampling Techniques, 6.4).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from pydantic import Field

from ingot.evals.bases.suite import Measured, Subject, Suite
from ingot.evals.engine.prompt import Form
from ingot.evals.scores.scores import Metric, metric_of_units
from ingot.tokens.batch import Batch
from ingot.tokens.config import VALIDATION
from ingot.workspace.errors import ArtifactError
from ingot.workspace.interrupt import StopSignal

if TYPE_CHECKING:
    import numpy as np
    import torch
    from numpy.typing import NDArray

    from ingot.model.transformer import Transformer

MODEL, BYTE_BASELINE, TOKEN_BASELINE = "bits_per_byte", "unigram_bits_per_byte", "unigram_token_bits_per_byte"
COUNTED_TOKENS = 1 << 22  # of each source: frequencies hardly change beyond


class BitsPerByte(Suite):
    """Bits per byte of the validation text, with the baselines of byte and token frequencies."""

    forms: ClassVar[tuple[Form, ...]] = ()
    thinks: ClassVar[bool] = False

    rows: int = Field(32, ge=2, description="rows of validation text that are scored")
    sequence_length: int = Field(256, ge=2, description="tokens of a row")

    def measure(self, subject: Subject) -> Measured:
        """The model's bits per byte and both baselines'."""
        rows = min(self.rows, subject.limit or self.rows)
        sizes = {"sequence_length": self.sequence_length, "rows": rows}
        found = measure_bits_per_byte(
            subject.model, subject.held_out(), **sizes, device=subject.device, stop=subject.stop
        )
        return Measured(found)


def measure_bits_per_byte(
    model: Transformer, shards: Path, *, sequence_length: int, rows: int, device: torch.device, stop: StopSignal
) -> list[Metric]:
    """The model's bits per byte and both baselines', over the same rows of the validation shard; ends between two batches
    if asked to."""
    from ingot.tokens.loader import validation_batches

    if model.tokenizer is None:
        raise ArtifactError("the checkpoint has no tokenizer", fix="give a checkpoint that a training stage made")
    token_cost = token_costs(shards)
    bits: list[float] = []
    token_bits: list[float] = []
    texts: list[bytes] = []
    for batch, _ in validation_batches(shards, sequence_length, rows):
        stop.check()
        bits += row_bits(model, batch.to(device))
        for targets in row_targets(batch):
            token_bits.append(float(token_cost[targets].sum()))
            texts.append(model.tokenizer.decode_bytes(targets, skip_special=True))
    sizes = [len(text) for text in texts]
    named = (
        (MODEL, bits, "Bits per byte"),
        (BYTE_BASELINE, unigram_bits(texts), "Bits per byte of byte frequencies"),
        (TOKEN_BASELINE, token_bits, "Bits per byte of token frequencies"),
    )
    return [metric_of_units(name, ratio_units(each, sizes), label, False) for name, each, label in named]


def row_bits(model: Transformer, batch: Batch) -> list[float]:
    """The information in the scored tokens of each row, in bits."""
    import torch

    from ingot.tokens.metadata import is_scored
    from ingot.train.losses.score import score

    with torch.inference_mode():
        scored = score(model, batch)
    rows = is_scored(batch).nonzero()[:, 0]
    weighted = scored.logprobs.double() * scored.streams["weight"]
    sums = torch.zeros(len(batch.tokens), dtype=torch.float64, device=rows.device).index_add_(0, rows, weighted)
    return [-value / math.log(2) for value in sums.tolist()]


def row_targets(batch: Batch) -> list[list[int]]:
    """The scored tokens of each row."""
    from ingot.tokens.metadata import is_scored

    scored = is_scored(batch)
    return [targets[mask].tolist() for targets, mask in zip(batch.targets, scored, strict=True)]


def token_costs(shards_folder: Path) -> NDArray[np.float64]:
    """The bits of each token under its frequency in the training sources, one added to every count."""
    import numpy as np

    from ingot.tokens.shards import Shards

    shards = Shards(shards_folder)
    counts = np.ones(shards.vocabulary_size)
    for name, source in shards.sources.items():
        if name != VALIDATION:
            counts += np.bincount(source.read(0, COUNTED_TOKENS), minlength=shards.vocabulary_size)
    costs: NDArray[np.float64] = -np.log2(counts / counts.sum())
    return costs


def unigram_bits(texts: Sequence[bytes]) -> list[float]:
    """The bits of each text under the byte distribution of all of them."""
    counts = [[text.count(byte) for byte in range(256)] for text in texts]
    totals = [sum(column) for column in zip(*counts, strict=True)]
    size = sum(totals)
    cost = [-math.log2(total / size) if total else 0.0 for total in totals]
    return [math.fsum(count * price for count, price in zip(row, cost, strict=True)) for row in counts]


def ratio_units(bits: Sequence[float], sizes: Sequence[int]) -> dict[str, float]:
    """Per-row values whose mean is sum(bits) / sum(sizes), by row number."""
    ratio = math.fsum(bits) / sum(sizes)
    mean_size = sum(sizes) / len(sizes)
    return {
        f"row-{number}": ratio + (row - ratio * size) / mean_size
        for number, (row, size) in enumerate(zip(bits, sizes, strict=True))
    }
