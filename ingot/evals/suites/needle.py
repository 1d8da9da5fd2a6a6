"""Needle retrieval: a number is stated once inside a text; at the end the same sentence begins again.

    …filler… The magic number is 48213. …filler… The magic number is| 48213

Two scores per text: whether the right number is the most likely of n candidates (chance 1/n; works for the smallest
base models), and whether greedy decoding writes it exactly. The filler is validation text, so the numbers say how
far back the model looks in the kind of text it knows. Candidates are tokens after the same tokens: each text is read once.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from pydantic import Field, field_validator

from ingot.evals.bases.suite import Measured, Measuring, Subject, Suite
from ingot.evals.engine.prompt import Form
from ingot.evals.engine.request import Likely, TokenLikelihood
from ingot.evals.scores.scores import metric_of_units
from ingot.tokens.config import VALIDATION
from ingot.tokens.tokenizer import Tokenizer
from ingot.workspace.errors import DataError

KEYS = ("magic", "secret", "lucky", "special", "hidden", "final", "first", "common")
FILLER_TOKENS = 1 << 18


class Needle(Suite):
    """Retrieval: a number stated somewhere in a text must be known at its end."""

    forms: ClassVar[tuple[Form, ...]] = ()
    thinks: ClassVar[bool] = False

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

    def measure(self, subject: Subject) -> Measuring:
        """`needle/LENGTH` (most likely of the candidates) and `needle_exact/LENGTH` (greedy) for every length."""
        filler = read_filler(subject.held_out(), max(self.lengths), subject.tokenizer)
        own = self.model_copy(update={"count": min(self.count, subject.limit or self.count)})
        texts = {
            length: make_needles(filler, subject.tokenizer, own, length, subject.task_seed) for length in self.lengths
        }
        asked = [needle for needles in texts.values() for needle in needles]
        answers = iter((yield [request for needle in asked for request in needle.requests()]))
        verdicts = {needle.id: verdict([next(answers) for _ in needle.candidates]) for needle in asked}
        metrics = []
        for length, needles in texts.items():
            chosen = {needle.id: float(verdicts[needle.id][0]) for needle in needles}
            exact = {needle.id: float(verdicts[needle.id][1]) for needle in needles}
            label, chance = f"Needle at {length} tokens", 1 / self.candidates
            metrics += [
                metric_of_units(f"needle/{length}", chosen, f"{label}, best of {self.candidates}", chance=chance),
                metric_of_units(f"needle_exact/{length}", exact, f"{label}, greedy"),
            ]
        return Measured(metrics)


@dataclass(frozen=True)
class NeedleText:
    """A text that ends where the number must come. `candidates[0]` is the right one."""

    id: str
    prompt: list[int]
    candidates: list[list[int]]

    def requests(self) -> list[TokenLikelihood]:
        """How likely is each candidate?"""
        return [TokenLikelihood(tuple(self.prompt), tuple(candidate)) for candidate in self.candidates]


def verdict(candidates: Sequence[Likely]) -> tuple[bool, bool]:
    """Whether the first candidate is the likeliest, and whether greedy decoding writes it."""
    right = candidates[0]
    return all(right.logprob >= other.logprob for other in candidates), right.greedy


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
