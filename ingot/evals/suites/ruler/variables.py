"""Variable tracking: a chain of assignments in noise; the answer is every variable that has the value.

    VAR ABCDE = 48213 … VAR FGHIJ = VAR ABCDE … : which variables are assigned the value 48213?

A short worked example with other names stands before the question.
"""

from __future__ import annotations

import random
import string
from collections.abc import Callable
from itertools import pairwise

from ingot.evals.suites.ruler.needles import NOISE
from ingot.evals.suites.ruler.sample import PromptBudget, RulerSample, draw, largest_size

TEXT = (
    "Memorize and track the chain(s) of variable assignment hidden in the following text.\n\n{context}\nQuestion: Find all "
    "variables that are assigned the value {value} in the text above."
)
START = (
    "Answer: According to the chain(s) of variable assignment in the text above, {count} variables are assigned the value "
    "{value}, they are: "
)
HOPS = 4
EXAMPLE_LENGTH, EXAMPLE_STEP, EXAMPLE_VALUE = 500, 5, "12345"
VALUES = (10_000, 99_999)


class Variables:
    """The task `vt`."""

    def samples(self, room: PromptBudget, count: int, seed: int) -> list[RulerSample]:
        """So many samples."""
        import numpy

        rng, numbers = random.Random(seed), numpy.random.RandomState(seed)

        def value() -> str:
            return str(numbers.randint(*VALUES))

        def question(size: int) -> RulerSample:
            return _make(rng, size, 5, value)

        def with_example(size: int) -> RulerSample:
            sample = question(size)
            return RulerSample(f"{_other_names(rng, shot, value)}\n{sample.text}", sample.start, sample.answers)

        shot = _worked_example(rng, room)
        step = 5 if room.short else 10
        size = largest_size(question, room, step, least=HOPS + 1, more=room.count(shot))
        return [draw(with_example, room, size, step, least=HOPS + 1) for _ in range(count)]


def _worked_example(rng: random.Random, room: PromptBudget) -> str:
    """A short question and its answer."""

    def make(size: int) -> RulerSample:
        return _make(rng, size, 3, lambda: EXAMPLE_VALUE)

    small = PromptBudget(EXAMPLE_LENGTH, 0, room.count)
    size = largest_size(make, small, EXAMPLE_STEP, least=HOPS + 1)
    shown = draw(make, small, size, EXAMPLE_STEP, least=HOPS + 1)
    return f"{shown.whole} {' '.join(shown.answers)}\n"


def _make(rng: random.Random, size: int, letters: int, draw_value: Callable[[], str]) -> RulerSample:
    names = [_name(rng, letters) for _ in range(HOPS + 1)]
    while len(set(names)) < HOPS + 1:
        names = [*dict.fromkeys(names), _name(rng, letters)]
    value = draw_value()
    chain = [f"VAR {names[0]} = {value}"]
    chain += [f"VAR {name} = VAR {before} " for before, name in pairwise(names)]
    lines = [NOISE] * size
    for number, place in enumerate(sorted(rng.sample(range(size), len(chain)))):
        lines.insert(place + number, chain[number])
    context = "\n".join(lines).replace(". \n", ".\n")
    start = START.format(count=HOPS + 1, value=value)
    return RulerSample(TEXT.format(context=context, value=value), start, tuple(names))


def _name(rng: random.Random, letters: int) -> str:
    return "".join(rng.choices(string.ascii_uppercase, k=letters))


def _other_names(rng: random.Random, shot: str, draw_value: Callable[[], str]) -> str:
    """The worked example with new names and a new value."""
    for name in shot.split()[-HOPS - 1 :]:
        shot = shot.replace(name, _name(rng, len(name)))
    return shot.replace(EXAMPLE_VALUE, draw_value())
