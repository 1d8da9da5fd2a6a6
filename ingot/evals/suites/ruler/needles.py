"""Needles in a haystack: facts about keys, hidden in a text, of which some are asked for.

    haystack   noise (five short sentences again and again), essay (running text), needles (many other facts)
    needle     One of the special magic numbers for quick-fox is: 4821377.

A key may have several values, and several keys may be asked for; all values of the keys that are asked for are the answer.
"""

from __future__ import annotations

import random
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from ingot.envs.verifiers.text.words import sentences
from ingot.evals.suites.ruler.sample import PromptBudget, RulerSample, draw, largest_size
from ingot.evals.suites.ruler.vocabulary import pairs

Haystack = Literal["noise", "essay", "needles"]
Values = Literal["words", "numbers", "uuids"]

NOISE = "The grass is green. The sky is blue. The sun is yellow. Here we go. There and back again."
NEEDLE = "One of the special magic {type} for {key} is: {value}."
MANY = (
    "Some special magic {type} are hidden within the following text. Make sure to memorize it. I will quiz you about the "
    "{type} afterwards.\n{context}\nWhat are all the special magic {type} for {query} mentioned in the provided text?"
)
MANY_START = "The special magic {type} for {query} mentioned in the provided text are"
ONE = (
    "A special magic {type} is hidden within the following text. Make sure to memorize it. I will quiz you about the "
    "{type} afterwards.\n{context}\nWhat is the special magic {type} for {query} mentioned in the provided text?"
)
ONE_START = "The special magic {type} for {query} mentioned in the provided text is"
DEPTHS = [round(100 * number / 39) for number in range(40)]  # percent of the text before a needle


@dataclass(frozen=True)
class Needles:
    """One of the eight tasks with needles."""

    haystack: Haystack
    keys: int = 1
    values: int = 1
    queries: int = 1
    key_type: Values = "words"
    value_type: Values = "numbers"

    @property
    def reads_essay(self) -> bool:
        """Whether it needs a text."""
        return self.haystack == "essay"

    def samples(self, room: PromptBudget, count: int, seed: int, essay: Sequence[str] = ()) -> list[RulerSample]:
        """So many samples; `essay` is the text by words."""
        rng = random.Random(seed)
        step = 500 if self.haystack == "essay" else 5 if room.short else 25
        least = self.keys * self.values
        make = _Maker(self, rng, seed, essay)
        size = largest_size(make, room, step, least=least)
        return [draw(make, room, size, step, least=least) for _ in range(count)]


class _Maker:
    def __init__(self, task: Needles, rng: random.Random, seed: int, essay: Sequence[str]) -> None:
        self.task, self.rng, self.seed, self.essay = task, rng, seed, essay
        self.filler = lru_cache(maxsize=4)(self._filler)

    def __call__(self, size: int) -> RulerSample:
        task, rng = self.task, self.rng
        keys, values, needles = [], [], []
        for _ in range(task.keys):
            keys.append(self._draw(task.key_type))
            values.append([self._draw(task.value_type) for _ in range(task.values)])
            needles += [NEEDLE.format(type=task.value_type, key=keys[-1], value=value) for value in values[-1]]
        random.Random(self.seed).shuffle(needles)
        context = self._between_sentences(size, needles) if task.reads_essay else self._between_lines(size, needles)
        asked = rng.sample(range(task.keys), task.queries)
        *most, last = [keys[number] for number in asked]
        answers = tuple(value for number in asked for value in values[number])
        one = task.queries * task.values == 1
        words = {
            "type": task.value_type.removesuffix("s") if one else task.value_type,
            "query": f"{', '.join(most)}, and {last}" if most else last,
        }
        text, start = (ONE, ONE_START) if one else (MANY, MANY_START)
        return RulerSample(text.format(context=context, **words), start.format(**words), answers)

    def _draw(self, kind: Values) -> str:
        if kind == "numbers":
            return str(self.rng.randint(10**6, 10**7 - 1))
        if kind == "words":
            return self.rng.choice(pairs())
        return str(uuid.UUID(int=self.rng.getrandbits(128), version=4))

    def _between_sentences(self, size: int, needles: Sequence[str]) -> str:
        filler = self.filler(size)
        depths = self.rng.sample(DEPTHS, len(needles))
        cuts = [0, *sorted(int(len(filler) * (depth / 100)) for depth in depths), len(filler)]
        parts = []
        for number, start in enumerate(cuts[:-1]):
            parts.append(" ".join(filler[start : cuts[number + 1]]))
            parts += needles[number : number + 1]
        return " ".join(parts)

    def _filler(self, size: int) -> list[str]:
        """The sentences of the first words of the essay; of a short essay, again and again."""
        repeats = -(-size // len(self.essay))
        return sentences(" ".join((list(self.essay) * repeats)[:size]).strip())

    def _between_lines(self, size: int, needles: Sequence[str]) -> str:
        task = self.task
        lines = (
            [NOISE] * size
            if task.haystack == "noise"
            else [
                NEEDLE.format(type=task.value_type, key=self._draw(task.key_type), value=self._draw(task.value_type))
                for _ in range(size)
            ]
        )
        for index, needle in zip(
            sorted(self.rng.sample(range(size), len(needles)), reverse=True), needles, strict=True
        ):
            lines.insert(index, needle)
        return "\n".join(lines)
