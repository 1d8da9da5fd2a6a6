"""The sampling options of one request, each with its formula, and their checks.

What the options do to the logits, and in which order, is in draw.py. This module imports nothing heavy: a request can be
described and checked where no tensor library is loaded.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Protocol

from ingot.kernels.head.uniform import stream
from ingot.workspace.errors import IngotError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

LARGEST = 1e5  # of temperatures, penalties and biases: with more, logits in float32 would not stay finite


class ConstraintState(Protocol):
    """The state of a text in a constraint. Immutable: `advance` gives the state after one more token."""

    @property
    def complete(self) -> bool:
        """Whether the text may end here."""

    def mask(self) -> NDArray[np.uint8]:
        """1 for each token of the vocabulary that may come next, else 0."""

    def advance(self, token: int) -> ConstraintState:
        """The state after `token`."""


class TextConstraint(Protocol):
    """A form that the text must have (structure/), compiled once and shared between requests."""

    def start(self) -> ConstraintState:
        """The state before the first token."""


@dataclass(frozen=True)
class Sampling:
    """How one request is sampled. The defaults draw from the model's own distribution."""

    max_new_tokens: int = 256
    temperature: float = 1.0  # logits / temperature; 0 takes the likeliest token
    top_p: float = 1.0  # keep the likeliest tokens that together hold this share of the mass; 1 keeps all
    top_k: int = 0  # keep the k likeliest tokens; 0 keeps all
    stop_tokens: tuple[int, ...] = ()  # the text ends with the first of these
    seed: int = 0
    min_p: float = 0.0  # keep tokens with at least this share of the likeliest one's probability
    repetition_penalty: float = 1.0  # logits of tokens in prompt or text: divided by it if positive, else multiplied
    frequency_penalty: float = 0.0  # taken from a token's logit for each time it stands in the text
    presence_penalty: float = 0.0  # taken once from the logit of a token that stands in the text
    logit_bias: tuple[tuple[int, float], ...] = ()  # (token, what is added to its logit)
    allowed_tokens: tuple[int, ...] | None = None  # no other token may be drawn; None allows all
    stop_strings: tuple[str, ...] = ()  # the text ends before the first of these
    min_new_tokens: int = 0  # no stop token is drawn before there are so many tokens
    top_logprobs: int = 0  # report the likeliest tokens of each step, so many
    raw_logprobs: bool = False  # report log-probabilities at temperature 1, as OpenAI's servers do
    keep_set: bool = False  # report which tokens masks and truncation left at each step
    constraint: TextConstraint | None = None

    def __post_init__(self) -> None:
        if self.max_new_tokens < 1:
            raise _refused("max_new_tokens", self.max_new_tokens, "give 1 or more")
        if self.temperature != 0 and not 1 / LARGEST <= self.temperature <= LARGEST:
            raise _refused("temperature", self.temperature, f"give 0 (greedy), or {1 / LARGEST} to {LARGEST}")
        if not 0 < self.top_p <= 1:
            raise _refused("top_p", self.top_p, "give a share above 0, at most 1")
        if self.top_k < 0:
            raise _refused("top_k", self.top_k, "give 0 (off) or more")
        if not 0 <= self.min_p <= 1:
            raise _refused("min_p", self.min_p, "give a share from 0 (off) to 1")
        if not 1 / LARGEST <= self.repetition_penalty <= LARGEST:
            fix = f"give a factor of {1 / LARGEST} to {LARGEST}; 1 changes nothing"
            raise _refused("repetition_penalty", self.repetition_penalty, fix)
        for field in ("frequency_penalty", "presence_penalty"):
            if not abs(getattr(self, field)) <= LARGEST:
                fix = f"give a number of at most {LARGEST} either way; 0 changes nothing"
                raise _refused(field, getattr(self, field), fix)
        if not 0 <= self.min_new_tokens <= self.max_new_tokens:
            fix = f"give 0 to max_new_tokens, which is {self.max_new_tokens}"
            raise _refused("min_new_tokens", self.min_new_tokens, fix)
        if self.top_logprobs < 0:
            raise _refused("top_logprobs", self.top_logprobs, "give 0 (off) or more")
        if "" in self.stop_strings:
            raise _refused("stop_strings", self.stop_strings, "leave out the empty string: it is in every text")
        if self.logit_bias:
            self._check_bias()
        if self.allowed_tokens is not None and (not self.allowed_tokens or min(self.allowed_tokens) < 0):
            raise _refused("allowed_tokens", self.allowed_tokens, "give at least one token, each 0 or more; None: all")

    def _check_bias(self) -> None:
        tokens = [token for token, _ in self.logit_bias]
        if min(tokens) < 0 or len(set(tokens)) < len(tokens):
            raise _refused("logit_bias", self.logit_bias, "give each token once, as a number of 0 or more")
        if not all(abs(bias) <= LARGEST for _, bias in self.logit_bias):
            fix = f"give numbers of at most {LARGEST} either way; -100 is as good as a ban"
            raise _refused("logit_bias", self.logit_bias, fix)

    def check_tokens(self, size: int) -> None:
        """An error if it names tokens that a vocabulary of `size` lacks, or leaves none."""
        allowed, stops = self.allowed_tokens, set(self.stop_tokens)
        for field, tokens in (("logit_bias", [token for token, _ in self.logit_bias]), ("allowed_tokens", allowed)):
            if tokens and max(tokens) >= size:
                raise _refused(field, getattr(self, field), f"give tokens of the vocabulary of {size}")
        if allowed is not None and self.min_new_tokens > 0 and stops.issuperset(allowed):
            raise _refused("allowed_tokens", allowed, "allow a token that does not stop, or give no min_new_tokens")

    # Looked at for every batch that the request is in, so kept once known.

    @cached_property
    def stream(self) -> int:
        """The stream of random numbers of its seed."""
        return stream(self.seed)

    @cached_property
    def truncates(self) -> bool:
        """Whether unlikely tokens may be cut off before drawing; for a greedy request that changes nothing."""
        return self.temperature > 0 and (self.top_p < 1 or self.top_k > 0 or self.min_p > 0)

    @cached_property
    def penalises(self) -> bool:
        """Whether the logits of tokens change because they occurred before."""
        return self.repetition_penalty != 1 or self.frequency_penalty != 0 or self.presence_penalty != 0

    @cached_property
    def plain(self) -> bool:
        """Whether drawing a token takes nothing but its seed and its temperature."""
        masks = self.allowed_tokens is not None or self.constraint is not None or self.min_new_tokens > 0
        reports = self.top_logprobs > 0 or self.raw_logprobs or self.keep_set
        return not (self.truncates or self.penalises or self.logit_bias or masks or reports)


def _refused(field: str, value: object, fix: str) -> IngotError:
    return IngotError(f"{field} is {value}", place="sampling", fix=fix)
