"""Knights and knaves: knights only say what is true, knaves only what is false; who is what? There is one solution.

Who is a knight is drawn first, by fair coins, and then statements until they leave no other solution: each of the 2^n answers is
equally frequent. The thinking goes through all cases and names a statement that rules each one out.
"""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from typing import Any, ClassVar, Self

from pydantic import Field, model_validator

from ingot.envs.environment import Environment
from ingot.envs.episode import Score
from ingot.envs.task import Task
from ingot.envs.tasks._wording import word
from ingot.envs.verifiers.text.reply import final_content, format_ok
from ingot.tokens.chat import Message
from ingot.workspace.errors import DataError

FORM = 'answer in the form "{0}"'
WORDINGS = (
    "On an island live knights, who always tell the truth, and knaves, who always lie. {1} Who is what? Please "
    + FORM
    + ".",
    "Knights always tell the truth and knaves always lie. {1} Find out who is a knight and who is a knave; "
    + FORM
    + ".",
    "Each of these people is a knight (every statement is true) or a knave (every statement is false). {1} Now "
    + FORM
    + ".",
)
NAMES = (
    *("Ada", "Ben", "Cleo", "Dan", "Eva", "Finn", "Gus", "Hana", "Ida", "Jon", "Kai", "Lea", "Max", "Nora", "Otto"),
    *("Pia", "Quin", "Rosa", "Sam", "Tara", "Uma", "Vera", "Wim", "Yara", "Zoe"),
)
KINDS = {True: "knight", False: "knave"}
OPERATORS = ("is", "same", "differ", "and", "or", "if")
LENGTH_LIMIT = 1000
TRIES = 10_000

Statement = tuple[
    Any, ...
]  # ("is", person, knight?) · ("same" | "differ", person, person) · ("and" | "or" | "if", is, is)


class KnightsKnaves(Environment):
    """Who tells the truth and who lies; one solution."""

    label: ClassVar[str] = "knights and knaves"
    people_min: int = Field(3, ge=2, le=6, description="people in the smallest puzzles")
    people_max: int = Field(4, ge=2, le=6, description="people in the largest puzzles")
    compound: float = Field(
        0.5, ge=0, le=1, description="share of statements that join two, with and, or, if or a comparison"
    )

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.people_min > self.people_max:
            raise ValueError(f"people_min ({self.people_min}) is larger than people_max ({self.people_max})")
        return self

    def draw(self, rng: random.Random) -> Task:
        count = rng.randint(self.people_min, self.people_max)
        knights = tuple(rng.random() < 0.5 for _ in range(count))
        for _ in range(TRIES):
            statements = tuple(self._statement(speaker, knights, rng) for speaker in range(count))
            if solutions(statements) == [knights]:
                names = tuple(rng.sample(NAMES, count))
                says = " ".join(f"{names[who]} says: {say(each, names)}." for who, each in enumerate(statements))
                form = ", ".join(f"{name} is a knight/knave" for name in names)
                question = word(WORDINGS, rng, form, says)
                asked = (names, statements, knights)
                return self.ask(question, answer_of(names, knights), fact=f"knights {statements}", asked=asked)
        raise DataError(
            f"none of {TRIES} draws has one solution",
            place=f"task kind {self.kind}",
            fix="a larger share of compound statements, or more people",
        )

    def _statement(self, speaker: int, knights: Sequence[bool], rng: random.Random) -> Statement:
        """Something that this person can say: true if from a knight, else false."""
        others = [person for person in range(len(knights)) if person != speaker]
        while True:
            operator = rng.choice(OPERATORS[1:]) if rng.random() < self.compound else "is"
            if operator == "is":
                made: Statement = ("is", rng.choice(others), rng.random() < 0.5)
            elif operator in ("same", "differ"):
                made = (operator, *rng.sample(range(len(knights)), 2))
            else:
                first, second = rng.sample(range(len(knights)), 2)
                made = (operator, ("is", first, rng.random() < 0.5), ("is", second, rng.random() < 0.5))
            if holds(made, knights) == knights[speaker]:
                return made

    def solution(self, task: Task) -> list[Message]:
        names, statements, knights = task.asked
        lines = []
        for case in product((True, False), repeat=len(names)):
            supposed = answer_of(names, case)
            if case == knights:
                lines.append(f"{supposed}: all statements fit")
                continue
            who = next(person for person, each in enumerate(statements) if holds(each, case) != case[person])
            truth = "true" if holds(statements[who], case) else "false"
            lines.append(
                f"{supposed}: then what {names[who]} says is {truth}, but {names[who]} is a {KINDS[case[who]]}"
            )
        return [Message(role="assistant", content=task.answer, thinking="\n".join(lines))]

    def weaker(self, task: Task, rng: random.Random) -> list[Message]:
        """One person is taken for the other kind."""
        names, _, knights = task.asked
        person = rng.randrange(len(names))
        (reply,) = self.solution(task)
        wrong = [knight != (who == person) for who, knight in enumerate(knights)]
        return [replace(reply, content=answer_of(names, wrong))]

    def score(self, task: Task, messages: Sequence[Message]) -> Score:
        names, _, knights = task.asked
        expected = {(name.lower(), KINDS[knight]) for name, knight in zip(names, knights, strict=True)}
        content = final_content(messages).strip().removesuffix(".").lower()
        parts = re.split(r"\s*,\s*(?:and\s+)?|\s+and\s+|\s*\n\s*", content) if len(content) <= LENGTH_LIMIT else []
        said = [re.fullmatch(r"(\w+) is a (knight|knave)", part) for part in parts]
        correct = len(said) == len(names) and {(each[1], each[2]) for each in said if each} == expected
        well_formed = format_ok(messages, task.thinking)
        return Score(float(correct and well_formed), correct, well_formed)


def holds(statement: Statement, knights: Sequence[bool]) -> bool:
    """Whether a statement is true if these are the knights."""
    operator, first, second = statement
    match operator:
        case "is":
            return bool(knights[first]) == second
        case "same":
            return knights[first] == knights[second]
        case "differ":
            return knights[first] != knights[second]
        case "and":
            return holds(first, knights) and holds(second, knights)
        case "or":
            return holds(first, knights) or holds(second, knights)
        case _:  # if
            return not holds(first, knights) or holds(second, knights)


def solutions(statements: Sequence[Statement]) -> list[tuple[bool, ...]]:
    """Every way to be knights and knaves in which knights say what is true and knaves what is false."""
    cases = product((True, False), repeat=len(statements))
    return [case for case in cases if all(holds(each, case) == case[who] for who, each in enumerate(statements))]


def say(statement: Statement, names: Sequence[str]) -> str:
    """A statement in words."""
    operator, first, second = statement
    match operator:
        case "is":
            return f"{names[first]} is a {KINDS[second]}"
        case "same":
            return f"{names[first]} and {names[second]} are of the same kind"
        case "differ":
            return f"{names[first]} and {names[second]} are of different kinds"
        case "and" | "or":
            return f"{say(first, names)} {operator} {say(second, names)}"
        case _:
            return f"if {say(first, names)}, then {say(second, names)}"


def answer_of(names: Sequence[str], knights: Sequence[bool]) -> str:
    """Who is what, in words."""
    return ", ".join(f"{name} is a {KINDS[knight]}" for name, knight in zip(names, knights, strict=True))
