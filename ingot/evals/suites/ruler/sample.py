"""A question of RULER with its text, and how the text is made as long as allowed.

A task makes a sample of a given size (so many sentences, words or documents of filler). The largest size whose prompt and
answer fit into the length is found by bisection, in tokens of the model that is measured. A sample that is longer than the
one that was tried, because other words were drawn, is drawn again a step smaller.

All draws come from one generator in the order of NVIDIA's scripts (github.com/NVIDIA/RULER). So with the same tokenizer,
word lists and texts the prompts are theirs, sample by sample.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ingot.workspace.errors import RecipeError

SHORT = 4096
ATTEMPTS = 200  # draws of one sample: each failure makes it smaller


@dataclass(frozen=True)
class RulerSample:
    """What a model reads, how its answer begins, and what must be in the answer."""

    text: str
    start: str
    answers: tuple[str, ...]
    cluster: str = ""  # of samples that are not independent: what they share

    @property
    def whole(self) -> str:
        """The prompt as a base model reads it."""
        return f"{self.text} {self.start}"


@dataclass(frozen=True)
class PromptBudget:
    """What a prompt may have of `length` tokens: all but those of the answer, and those `around` it (of a chat template)."""

    length: int
    answer: int
    count: Callable[[str], int]  # tokens of a text
    around: int = 0

    @property
    def short(self) -> bool:
        """Whether it is a short length, for which RULER makes smaller steps and lists."""
        return self.length < SHORT

    @property
    def usable(self) -> int:
        """Tokens for prompt and answer."""
        return self.length - self.around

    def fits(self, text: str, more: int = 0) -> bool:
        """Whether the prompt, `more` tokens and the answer fit."""
        return self.count(text) + more + self.answer <= self.usable


Make = Callable[[int], RulerSample]


def largest_size(make: Make, room: PromptBudget, step: int, *, least: int = 1, more: int = 0) -> int:
    """The largest size that fits, from one step to three times what the size of one step lets expect."""
    tokens_each = room.count(make(step).whole) / step
    return bisect(make, room, step, int(room.usable / tokens_each * 3), least=least, more=more)


def bisect(make: Make, room: PromptBudget, step: int, most: int, *, least: int = 1, more: int = 0) -> int:
    """The largest size between `step` and `most` that fits, or between `least` and `step` if none of these does."""
    for low, high in ((step, max(most, 2 * step)), (least, step - 1)):
        found = None
        while low <= high:
            middle = (low + high) // 2
            if room.fits(make(middle).whole, more):
                found, low = middle, middle + 1
            else:
                high = middle - 1
        if found is not None:
            return found
    raise too_short(room)


def draw(make: Make, room: PromptBudget, size: int, step: int, *, least: int = 1) -> RulerSample:
    """A sample that fits, of this size or smaller. A whole step less would leave little of a short text."""
    for _ in range(ATTEMPTS):
        sample = make(size)
        if room.fits(sample.whole):
            return sample
        back = max(1, size // 20) if room.short or size - step < least else step
        size = max(size - back, least)
    raise too_short(room)


def too_short(room: PromptBudget) -> RecipeError:
    """The error for a length that no sample fits."""
    return RecipeError(
        f"no sample fits into {room.length} tokens, {room.answer} of them for the answer",
        place="suite ruler",
        fix="measure longer lengths, or leave this task out",
    )
