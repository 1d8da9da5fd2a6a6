"""Needle retrieval: a number is stated once inside a text; at the end the same sentence begins again.

    …filler… The magic number is 48213. …filler… The magic number is| 48213

Two scores per text: whether the right number is the most likely of n candidates (chance 1/n; works for the smallest
base models), and whether greedy decoding writes it exactly. The filler is validation text, so the numbers say how
far back the model looks in the kind of text it knows. Each text is read once; candidates are scored from its cache.

Shapes: B texts, P tokens before the answer, C tokens of a candidate.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import Field, field_validator

from ingot.evals.scores import Metric, metric_of_units
from ingot.evals.suite import Measured, Subject, Suite
from ingot.tokens.config import VALIDATION
from ingot.tokens.tokenizer import Tokenizer
from ingot.workspace.errors import DataError
from ingot.workspace.interrupt import StopSignal

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from ingot.model.transformer import Transformer

KEYS = ("magic", "secret", "lucky", "special", "hidden", "final", "first", "common")
TOKENS_PER_PASS = 8192
FILLER_TOKENS = 1 << 18


class Needle(Suite):
    """Retrieval: a number stated somewhere in a text must be known at its end."""

    lengths: tuple[int, ...] = Field((256, 512), min_length=1, description="tokens of the whole text, one score each")
    depths: tuple[float, ...] = Field(
        (0.1, 0.5, 0.9), min_length=1, description="where the number stands, as a share of the text"
    )
    count: int = Field(8, ge=1, description="texts for each length and depth")
    candidates: int = Field(8, ge=2, le=64, description="numbers that the right one is compared with, itself included")
    digits: int = Field(5, ge=2, le=9, description="digits of the number")

    @field_validator("depths")
    @classmethod
    def _shares(cls, depths: tuple[float, ...]) -> tuple[float, ...]:
        if any(not 0 <= depth <= 1 for depth in depths):
            raise ValueError("a depth is a share between 0 and 1")
        return depths

    @field_validator("lengths")
    @classmethod
    def _long_enough(cls, lengths: tuple[int, ...]) -> tuple[int, ...]:
        if any(length < 96 for length in lengths) or len(set(lengths)) != len(lengths):
            raise ValueError("lengths are distinct, and 96 tokens or more: the two sentences need room")
        return lengths

    def measure(self, subject: Subject) -> Measured:
        """Two metrics for every length."""
        places = subject.model, subject.tokenizer, subject.held_out()
        return Measured(measure_needle(*places, self, subject.task_seed, subject.stop))


@dataclass(frozen=True)
class NeedleText:
    """A text that ends where the number must come. `candidates[0]` is the right one."""

    id: str
    prompt: list[int]
    candidates: list[list[int]]


def measure_needle(
    model: Transformer, tokenizer: Tokenizer, shards: Path, config: Needle, seed: int, stop: StopSignal
) -> list[Metric]:
    """`needle/LENGTH` (most likely of the candidates) and `needle_exact/LENGTH` (greedy) for every length."""
    filler = read_filler(shards, max(config.lengths), tokenizer)
    metrics = []
    for length in config.lengths:
        needles = make_needles(filler, tokenizer, config, length, seed)
        chosen: dict[str, float] = {}
        exact: dict[str, float] = {}
        size = max(1, TOKENS_PER_PASS // length)
        for start in range(0, len(needles), size):
            stop.check()
            batch = needles[start : start + size]
            for needle, (first, second) in zip(batch, judge(model, batch), strict=True):
                chosen[needle.id], exact[needle.id] = float(first), float(second)
        label = f"Needle at {length} tokens"
        metrics.append(metric_of_units(f"needle/{length}", chosen, f"{label}, best of {config.candidates}"))
        metrics.append(metric_of_units(f"needle_exact/{length}", exact, f"{label}, greedy"))
    return metrics


def read_filler(shards: Path, length: int, tokenizer: Tokenizer) -> list[int]:
    """Validation text in one piece. Document ends are left out: a model learns to look at nothing before them."""
    from ingot.tokens.shards import Shards

    tokens = Shards(shards).source(VALIDATION).read(0, FILLER_TOKENS)
    filler = [token for token in tokens.tolist() if token != tokenizer.end_of_text]
    if len(filler) < length:
        raise DataError(
            f"the validation shard has {len(filler)} tokens, a needle text needs {length}",
            place=str(shards),
            fix="hold out more documents, or measure shorter lengths",
        )
    return filler


def make_needles(
    filler: Sequence[int], tokenizer: Tokenizer, config: Needle, length: int, seed: int
) -> list[NeedleText]:
    """The texts of one length, a pure function of the seed; `length` counts prompt and longest candidate."""
    needles = []
    for depth in config.depths:
        for number in range(config.count):
            identity = f"needle-{length}-{depth:g}-{number}"
            rng = random.Random(f"{identity}/{seed}")
            low, high = 10 ** (config.digits - 1), 10**config.digits
            values = rng.sample(range(low, high), config.candidates)
            key = rng.choice(KEYS)
            sentence = tokenizer.encode(f"\nThe {key} number is {values[0]}.\n")
            question = tokenizer.encode(f"\nThe {key} number is")
            candidates = [tokenizer.encode(f" {value}") for value in values]
            room = length - len(sentence) - len(question) - max(map(len, candidates))
            start = rng.randrange(len(filler) - room + 1)
            text = list(filler[start : start + room])
            cut = round(depth * room)
            needles.append(NeedleText(identity, text[:cut] + sentence + text[cut:] + question, candidates))
    return needles


def judge(model: Transformer, needles: Sequence[NeedleText]) -> list[tuple[bool, bool]]:
    """For each text: is the right candidate the likeliest, and is it what greedy decoding writes."""
    likelihoods_RB, greedy_B = score_candidates(model, needles)
    return list(zip((likelihoods_RB.argmax(dim=0) == 0).tolist(), greedy_B.tolist(), strict=True))


def score_candidates(model: Transformer, needles: Sequence[NeedleText]) -> tuple[Tensor, Tensor]:
    """log p of every candidate after its text [candidates, texts], and whether greedy decoding writes the first."""
    import torch

    with torch.inference_mode():
        return _score_candidates(model, needles)


def _score_candidates(model: Transformer, needles: Sequence[NeedleText]) -> tuple[Tensor, Tensor]:
    import torch

    from ingot.model.mixers.cache import CacheShape

    device = model.embedding.weight.device
    longest = max(len(needle.prompt) for needle in needles)
    span = max(len(candidate) for needle in needles for candidate in needle.candidates)
    count = len(needles)
    slots = torch.arange(count, device=device)
    caches = model.make_caches(CacheShape(slots=2 * count, length=longest + span))
    prompts_BP, ends_B = _padded([needle.prompt for needle in needles], device)
    states_BPD = model.hidden(prompts_BP, caches=caches, slots=slots, lengths=ends_B)
    first_BV = model.head(states_BPD[slots, ends_B - 1]).log_softmax(dim=-1)
    likelihoods, greedy = [], torch.zeros(len(needles), dtype=torch.bool)
    for rank in range(len(needles[0].candidates)):
        tokens_BC, sizes_B = _padded([needle.candidates[rank] for needle in needles], device)
        places_C = torch.arange(tokens_BC.shape[1], device=device)
        # each candidate goes on from a copy: a recurrent state cannot be taken back to the end of the prompt
        for cache in caches:
            if cache is not None:
                cache.copy_slots(slots, slots + count)
        states_BCD = model.hidden(
            tokens_BC, ends_B[:, None] + places_C, caches=caches, slots=slots + count, lengths=sizes_B
        )
        rest_BCV = model.head(states_BCD[:, :-1]).log_softmax(dim=-1)
        logprobs_BCV = torch.cat((first_BV[:, None], rest_BCV), dim=1)
        real_BC = places_C < sizes_B[:, None]
        picked_BC = logprobs_BCV.gather(2, tokens_BC[..., None])[..., 0]
        likelihoods.append((picked_BC.double() * real_BC).sum(dim=1))
        if rank == 0:
            greedy = ((logprobs_BCV.argmax(dim=-1) == tokens_BC) | ~real_BC).all(dim=1)
    return torch.stack(likelihoods), greedy


def _padded(rows: Sequence[Sequence[int]], device: torch.device) -> tuple[Tensor, Tensor]:
    """Rows padded at their end to one length, and their real lengths."""
    import torch

    sizes = [len(row) for row in rows]
    tokens = torch.zeros(len(rows), max(sizes), dtype=torch.int64)
    for index, row in enumerate(rows):
        tokens[index, : len(row)] = torch.tensor(row)
    return tokens.to(device), torch.tensor(sizes, device=device)
