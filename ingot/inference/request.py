"""A request in the engine, what it asks to be scored, and its completion."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from ingot.inference.sampling import ConstraintState, Sampling
from ingot.inference.text import TextStream
from ingot.workspace.errors import DataError, IngotError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ingot.tokens.tokenizer import Tokenizer

Finish = Literal["stop", "length", "scored", "cancelled", "deadline", "error"]


@dataclass
class Completion:
    """The completion of one prompt. `tokens` includes the stop token, if one was drawn."""

    tokens: list[int]
    logprobs: list[float]
    versions: list[int]
    finish: Finish
    top_logprobs: list[list[tuple[int, float]]] = field(default_factory=list)
    kept: list[list[int]] = field(default_factory=list)


@dataclass
class Scoring:
    """What a request asks to be scored, and its scores."""

    first: int  # the first token that is scored
    lasts: tuple[int, ...]  # what the last token may be
    likeliest: int = 0  # tokens to be named at each position
    inner: dict[int, tuple[float, bool]] = field(default_factory=dict)  # by place: of the tokens before the last one
    outer: list[tuple[float, bool]] = field(default_factory=list)  # of each of `lasts`
    tops: dict[int, list[tuple[int, float]]] = field(
        default_factory=dict
    )  # by place: the likeliest, with log-probability

    def result(self) -> list[tuple[float, bool]]:
        """For each last token: the log-probability of all scored tokens with it, and whether all are the likeliest."""
        before = sum(logprob for logprob, _ in self.inner.values())
        greedy = all(likeliest for _, likeliest in self.inner.values())
        return [(before + logprob, greedy and likeliest) for logprob, likeliest in self.outer]

    def by_token(self) -> list[tuple[float, list[tuple[int, float]]]]:
        """For each scored token, with the first of `lasts` at the end: its log-probability, and the likeliest at its position."""
        values = [self.inner[place][0] for place in sorted(self.inner)] + [self.outer[0][0]]
        return [(value, self.tops.get(place, [])) for place, value in enumerate(values, self.first)]


@dataclass(eq=False)
class Request:
    """One request. The caller reads the first fields; the others are the engine's own state of it."""

    prompt: list[int]
    sampling: Sampling
    limit: int  # the number of tokens after which it ends, stop token or not
    deadline: float | None = None  # by the monotonic clock
    scoring: Scoring | None = None  # it only reads, to score what it reads (scoring.py)
    tokens: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    versions: list[int] = field(default_factory=list)  # of the weights that sampled each token
    top_logprobs: list[list[tuple[int, float]]] = field(default_factory=list)  # if sampling.top_logprobs
    kept: list[list[int]] = field(default_factory=list)  # the ids that truncation left, if sampling.keep_set
    finish: Finish | None = None
    problem: IngotError | None = None  # what went wrong, if it ended with an error
    shared_tokens: int = 0  # of the prompt, found in the cache

    number: int = 0  # order of arrival
    entered: bool = False  # whether it has been counted: one that is preempted enters again
    slot: int | None = None
    pages: list[int] = field(default_factory=list)
    nodes: list[int] = field(default_factory=list)  # names of its first pages, by what they hold (pages.py)
    root: int | None = None  # what the first of those names begins from; None: what it computes is for itself alone
    done: int = 0  # tokens of the context whose keys and values are there
    text: TextStream | None = None  # if there are stop strings
    state: ConstraintState | None = None  # of its constraint
    allowed: NDArray[np.uint8] | None = None  # what that allows next

    @property
    def waiting(self) -> bool:
        """Whether it has no slot yet, or none any more, and goes on when one is free."""
        return self.finish is None and self.slot is None

    @property
    def context(self) -> list[int]:
        """Everything that the next token depends on."""
        return self.prompt + self.tokens

    @property
    def size(self) -> int:
        """The number of tokens in the context."""
        return len(self.prompt) + len(self.tokens)

    @property
    def last(self) -> int:
        """The last token of the context."""
        return (self.tokens or self.prompt)[-1]

    @property
    def shareable(self) -> int:
        """How many tokens at its beginning need not be read by itself: the last is read by the first step of decoding, and
        what predicts a scored token by the request that scores it."""
        return self.size - 1 if self.scoring is None else self.scoring.first - 1

    def span(self, start: int, end: int) -> list[int]:
        """Tokens of the context, without putting all of it together."""
        prompt = len(self.prompt)
        if end <= prompt:
            return self.prompt[start:end]
        return self.prompt[start:] + self.tokens[max(0, start - prompt) : end - prompt]

    @property
    def can_go_on(self) -> bool:
        """Whether its constraint leaves any token; those that end the text count once it is long enough for them."""
        assert self.state is not None and self.allowed is not None
        stops = self.sampling.stop_tokens and len(self.tokens) >= self.sampling.min_new_tokens
        return bool(self.allowed.any() or (self.state.complete and stops))

    @property
    def watched(self) -> bool:
        """Whether each token must be looked at: it may complete a stop string, and moves a constraint on."""
        return self.text is not None or self.state is not None

    def even_out(self) -> None:
        """After an error while a step's tokens were given out: of a token that is not wholly there nothing stays."""
        count = min(len(self.tokens), len(self.logprobs), len(self.versions))
        del self.tokens[count:], self.logprobs[count:], self.versions[count:]

    def watch(self, tokenizer: Tokenizer | None) -> None:
        """Make ready what watches its text: stop strings and constraint."""
        if self.sampling.stop_strings:
            if tokenizer is None:
                raise IngotError("stop strings need a tokenizer", place="sampling", fix="set model.tokenizer")
            self.text = TextStream(tokenizer, self.sampling.stop_strings)
        if self.sampling.constraint is not None:
            self.state = self.sampling.constraint.start()
            self.allowed = self.state.mask()
            if not self.can_go_on:
                raise IngotError("its constraint leaves no token to begin with", place="sampling")

    def take(self, token: int, logprob: float, version: int) -> None:
        """The next token of the text. If the request ends with it, `finish` says why."""
        self.tokens.append(token)
        self.logprobs.append(logprob)
        self.versions.append(version)
        self.finish = self._finish(token)

    def _finish(self, token: int) -> Finish | None:
        if token in self.sampling.stop_tokens:
            return "stop"
        if self.state is not None:
            try:
                self.state = self.state.advance(token)
                self.allowed = self.state.mask()
            except IngotError as problem:  # a form too large to follow ends this request, and no other
                self.problem = problem
                return "error"
            if not self.can_go_on:  # and the model has no token to say so, at least not yet
                if self.state.complete:
                    return "stop"
                self.problem = IngotError("no token can follow in the form that was asked for", place="constraint")
                return "error"
        if self.text is not None:
            self.text.push(token)
            if self.text.stopped:
                return "stop"
        return "length" if len(self.tokens) >= self.limit else None

    def mask(self) -> NDArray[np.uint8]:
        """The tokens that the request's constraint allows next; those that end the text where it may end."""
        assert self.state is not None and self.allowed is not None
        if self.finish is not None:  # the row's token is not used any more, but it must be able to draw
            return np.ones(1, dtype=np.uint8)
        stops = list(self.sampling.stop_tokens)
        if not (self.state.complete and stops):
            return self.allowed
        mask = np.zeros(max(len(self.allowed), max(stops) + 1), dtype=np.uint8)
        mask[: len(self.allowed)] = self.allowed
        mask[stops] = 1
        return mask

    def completion(self) -> Completion:
        """The result of a request that has ended."""
        finish = self.finish or "length"
        return Completion(self.tokens, self.logprobs, self.versions, finish, self.top_logprobs, self.kept)


class Histories(Sequence[tuple[list[int], list[int]]]):
    """Prompt and tokens so far of requests, looked at where they are needed: penalties are rare, and requests many."""

    def __init__(self, requests: Sequence[Request]) -> None:
        self._requests = requests

    def __len__(self) -> int:
        return len(self._requests)

    def __getitem__(self, row: Any) -> Any:
        return self._requests[row].prompt, self._requests[row].tokens


def check_prompt(prompt: Sequence[int], length: int, vocabulary: int, place: str) -> None:
    """An error for a prompt that an engine of `length` tokens cannot take."""
    if not prompt:
        raise DataError("the prompt is empty", place=place, fix="give at least one token")
    if len(prompt) > length:
        raise DataError(
            f"the prompt has {len(prompt)} tokens, the engine holds {length}",
            place=place,
            fix="shorten the prompt, or make the engine with a larger length",
        )
    if min(prompt) < 0 or max(prompt) >= vocabulary:
        wrong = next(token for token in prompt if not 0 <= token < vocabulary)
        raise DataError(
            f"token {wrong} is not in the vocabulary of {vocabulary}",
            place=place,
            fix="encode with the model's tokenizer",
        )
