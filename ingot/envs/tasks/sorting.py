"""Sorting numbers or words, worked out by taking the first of what is left, one a line."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar, Literal, Self

from pydantic import Field, model_validator

from ingot.envs.environment import Environment, in_place
from ingot.envs.episode import Score
from ingot.envs.task import Task
from ingot.envs.tasks._wording import word
from ingot.envs.verifiers.text.reply import final_content, format_ok, parse_number
from ingot.tokens.chat import Message

FORM = "answer with the list only, separated by blanks"
WORDINGS = {
    "numbers": (
        "Sort these numbers from {1} to {2}; " + FORM + ": {0}",
        "Put {0} in order from {1} to {2}, and " + FORM + ".",
        "Here are some numbers: {0}. Write them from {1} to {2}; " + FORM + ".",
    ),
    "words": (
        "Sort these words from {1} to {2} in the alphabet; " + FORM + ": {0}",
        "Put the words {0} in alphabetical order from {1} to {2}, and " + FORM + ".",
        "Here are some words: {0}. Write them in the order of the dictionary from {1} to {2}; " + FORM + ".",
    ),
}
DIRECTIONS = {
    ("numbers", "ascending"): ("smallest", "largest"),
    ("numbers", "descending"): ("largest", "smallest"),
    ("words", "ascending"): ("first", "last"),
    ("words", "descending"): ("last", "first"),
}
WORDS = """
    apple arrow baker bank barn basin beach bear bell berry bird blanket board boat book bottle branch bread bridge brush butter
    cabin cable camel camera candle candy canoe carpet castle chain chair cheese cherry circle cloud clover coast coin copper
    corn cotton cradle crane crown curtain dance desert diamond dinner doctor dragon dream drum eagle earth engine falcon farm
    feather fence field finger flame flower forest fountain garden garlic ginger glass globe grain grape hammer harbor harvest
    hazel honey horse island ivory jacket jewel juice jungle kettle kitchen kitten ladder lamp lantern leather lemon letter
    lily lion magnet maple marble market meadow melon mirror moon mountain needle nest oak ocean olive onion orange orchard
    owl palace paper parrot peach pearl pebble pencil pepper piano pigeon pillow pine planet plum pocket pond potato prairie
    queen quilt rabbit rain ribbon ring river robin rocket rose sail salmon sand saddle scarf shell silver sparrow spider
    spoon spring stone storm sugar summer swan table temple thunder tiger timber tower train tulip turtle valley velvet
    violin wagon walnut water wheat willow window winter wolf yarn zebra
""".split()  # noqa: SIM905 - a list of 200 quoted words is not easier to read
LENGTH_LIMIT = 2000


class Sorting(Environment):
    """Sort numbers or words, upwards or downwards."""

    label: ClassVar[str] = "sorting"
    things: tuple[Literal["numbers", "words"], ...] = Field(
        ("numbers", "words"), min_length=1, description="what is sorted, each equally often"
    )
    orders: tuple[Literal["ascending", "descending"], ...] = Field(
        ("ascending", "descending"), min_length=1, description="the orders, each equally often"
    )
    count_min: int = Field(3, ge=2, le=50, description="things in the shortest lists")
    count_max: int = Field(6, ge=2, le=50, description="things in the longest lists")
    digits_max: int = Field(2, ge=1, le=9, description="digits of the largest numbers")
    negative: bool = Field(False, description="whether numbers may be negative")

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.count_min > self.count_max:
            raise ValueError(f"count_min ({self.count_min}) is larger than count_max ({self.count_max})")
        return self

    def draw(self, rng: random.Random) -> Task:
        thing, order = rng.choice(self.things), rng.choice(self.orders)
        count = rng.randint(self.count_min, self.count_max)
        items: list[int] | list[str] = [""]
        while (ordered := in_order(items, order)) == items:  # a copy of the question's list must not be right
            if thing == "words":
                items = rng.sample(WORDS, count)
            else:
                largest = 10**self.digits_max - 1
                items = [rng.randint(-largest if self.negative else 0, largest) for _ in range(count)]
        question = word(WORDINGS[thing], rng, ", ".join(map(str, items)), *DIRECTIONS[thing, order])
        fact = f"sort {order} {sorted(map(str, items))}"
        answer = " ".join(map(str, ordered))
        return self.ask(question, answer, fact=fact, asked=(thing, order, tuple(items)))

    def solution(self, task: Task) -> list[Message]:
        thing, order, items = task.asked
        left, lines = list(items), []
        while len(left) > 1:
            first = in_order(left, order)[0]
            lines.append(f"{DIRECTIONS[thing, order][0]} of {' '.join(map(str, left))}: {first}")
            left.remove(first)
        return [Message(role="assistant", content=task.answer, thinking="\n".join([*lines, f"left: {left[0]}"]))]

    def weaker(self, task: Task, rng: random.Random) -> list[Message]:
        """Two neighbours that differ are swapped in the answer."""
        parts = task.answer.split(" ")
        place = rng.choice([place for place in range(len(parts) - 1) if parts[place] != parts[place + 1]])
        parts[place], parts[place + 1] = parts[place + 1], parts[place]
        (reply,) = self.solution(task)
        return [replace(reply, content=" ".join(parts))]

    @in_place
    def score(self, task: Task, messages: Sequence[Message]) -> Score:
        content = final_content(messages).strip().removesuffix(".")
        parts = re.split(r"\s*,\s*|\s+", content) if len(content) <= LENGTH_LIMIT else []
        expected = task.answer.split(" ")
        if task.asked[0] == "numbers":
            correct = [parse_number(part) for part in parts] == [parse_number(part) for part in expected]
        else:
            correct = [part.lower() for part in parts] == expected
        well_formed = format_ok(messages, task.thinking)
        return Score(float(correct and well_formed), correct, well_formed)


def in_order(items: Sequence[int] | Sequence[str], order: str) -> list[int] | list[str]:
    """The items in ascending or descending order."""
    return sorted(items, reverse=order == "descending")  # type: ignore[return-value]
