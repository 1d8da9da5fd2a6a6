"""Zebra puzzles: houses in a row, an attribute of each kind in every house, clues that leave one solution.

The answer is the whole grid. The thinking keeps for every value the houses that are left for it and cuts them by one clue a line;
where no clue alone helps it supposes a house and says for which value there would be none left.
"""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

from pydantic import Field

from ingot.envs.environment import Environment
from ingot.envs.episode import Score
from ingot.envs.task import Task
from ingot.envs.tasks._wording import word
from ingot.envs.tasks._zebra_logic import VALUES, Clue, Solution, clues_of, has_one_solution, reasons, say
from ingot.envs.verifiers.text.reply import final_content, format_ok
from ingot.tokens.chat import Message

FORM = 'answer with one line for each house, in the form "1: {3}"'
WORDINGS = (
    "There are {0} houses in a row, numbered 1 to {0} from left to right. In each house there is one of each: {1}.\n{2}\n"
    "Who and what is in which house? Please " + FORM + ".",
    "{0} people live in {0} houses, 1 to {0} from left to right. Each house has one value of every kind: {1}.\n{2}\n"
    "Find out what belongs to each house; " + FORM + ".",
    "Solve this puzzle and "
    + FORM
    + ". Houses are numbered 1 to {0} from left to right; every house has one of {1}.\n{2}",
)
LENGTH_LIMIT = 2000


class Zebra(Environment):
    """A logic grid of houses and attributes with one solution."""

    label: ClassVar[str] = "zebra"
    houses: int = Field(3, ge=2, le=6, description="houses in the row")
    attributes: int = Field(3, ge=2, le=len(VALUES), description="kinds of things, of which the first is the name")
    minimal: bool = Field(True, description="leave out every clue that the others make unnecessary")

    def draw(self, rng: random.Random) -> Task:
        kinds = list(VALUES)[: self.attributes]
        solution = tuple(tuple(rng.sample(VALUES[kind], self.houses)) for kind in kinds)
        known = tuple(tuple(sorted(values)) for values in solution)
        pool = clues_of(solution)
        rng.shuffle(pool)
        clues: list[Clue] = []
        while len(clues) < self.attributes or not has_one_solution(known, clues):
            clues.append(pool.pop())
        for clue in list(clues) if self.minimal else ():
            others = [other for other in clues if other != clue]
            clues = others if has_one_solution(known, others) else clues
        rng.shuffle(clues)
        listed = "; ".join(
            f"{kind}: {', '.join(rng.sample(values, len(values)))}" for kind, values in zip(kinds, known, strict=True)
        )
        said = "\n".join(f"{number}. {say(clue)}" for number, clue in enumerate(clues, start=1))
        question = word(WORDINGS, rng, self.houses, listed, said, ", ".join(kinds))
        fact = f"zebra {known} {sorted(map(str, clues))}"
        return self.ask(question, show(solution), fact=fact, asked=(solution, tuple(clues)))

    def solution(self, task: Task) -> list[Message]:
        solution, clues = task.asked
        return [Message(role="assistant", content=task.answer, thinking="\n".join(reasons(solution, clues)))]

    def weaker(self, task: Task, rng: random.Random) -> list[Message]:
        """Two values of one kind are in each other's house."""
        solution: Solution = task.asked[0]
        kind = rng.randrange(len(solution))
        first, second = rng.sample(range(len(solution[0])), 2)
        values = list(solution[kind])
        values[first], values[second] = values[second], values[first]
        (reply,) = self.solution(task)
        return [replace(reply, content=show((*solution[:kind], tuple(values), *solution[kind + 1 :])))]

    def score(self, task: Task, messages: Sequence[Message]) -> Score:
        solution: Solution = task.asked[0]
        content = final_content(messages)
        lines = content.strip().lower().splitlines() if len(content) <= LENGTH_LIMIT else []
        read = [re.fullmatch(r"\s*(?:house )?([1-9])\s*:\s*(.*?)\s*\.?", line) for line in lines]
        said = {int(each[1]): sorted(re.split(r"\s*,\s*", each[2])) for each in read if each}
        houses = enumerate(zip(*solution, strict=True), start=1)
        correct = len(read) == len(solution[0]) and said == {
            house: sorted(map(str.lower, values)) for house, values in houses
        }
        well_formed = format_ok(messages, task.thinking)
        return Score(float(correct and well_formed), correct, well_formed)


def show(solution: Solution) -> str:
    """A line for every house."""
    return "\n".join(
        f"{house}: {', '.join(values)}" for house, values in enumerate(zip(*solution, strict=True), start=1)
    )
