"""Small tasks on the letters of a word; the trace spells the word so that each step looks at one letter.

    Reverse: t r e e              1 t 2 r 3 e 4 e 4 e 3 e 2 r 1 t      e e r t
    How many e: t r e e           t 0 r 0 e 1 e 2                      2
    Last letter: t r e e          t r e e                              e

Positions are numbered for the reversal because a repeated letter cannot be found again by its name alone.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import ClassVar, Literal, Self

from pydantic import Field, model_validator

from ingot.envs.task import Score, Task, TaskKind, make_task
from ingot.envs.verify import final_content, format_ok, same_number, same_text
from ingot.tokens.chat import Message

REVERSE, COUNT, LAST = "Reverse", "How many", "Last letter"


class Strings(TaskKind):
    """Reverse a word, count a letter in it, name its last letter; the trace spells the word letter by letter."""

    label: ClassVar[str] = "string tasks"
    operations: tuple[Literal["reverse", "count", "last"], ...] = Field(
        ("reverse", "last"), min_length=1, description="operations to draw from, each equally often"
    )
    letters_min: int = Field(4, ge=2, le=9, description="letters of the shortest words")
    letters_max: int = Field(4, ge=2, le=9, description="letters of the longest words")
    alphabet: str = Field("abcdefghijklmnopqrstuvwxyz", min_length=4, description="letters that words are made of")
    spelled: bool = Field(
        True, description="write the word in the question with spaces between letters, so that a letter is one token"
    )

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.letters_min > self.letters_max:
            raise ValueError(f"letters_min ({self.letters_min}) is larger than letters_max ({self.letters_max})")
        if len(set(self.alphabet)) != len(self.alphabet) or not (self.alphabet.isascii() and self.alphabet.isalpha()):
            raise ValueError("alphabet must be distinct ASCII letters")
        return self

    def draw(self, rng: random.Random) -> Task:
        operation = rng.choice(self.operations)
        length = rng.randint(self.letters_min, self.letters_max)
        # a count is only interesting when letters repeat: draw those words from three letters
        letters = rng.sample(self.alphabet, 3) if operation == "count" else self.alphabet
        word = [rng.choice(letters) for _ in range(length)]
        command = {"reverse": REVERSE, "count": f"{COUNT} {rng.choice(letters)}", "last": LAST}[operation]
        question = f"{command}: {(' ' if self.spelled else '').join(word)}"
        return make_task(self.kind, question, work_out(question)[1])

    def solution(self, task: Task) -> list[Message]:
        trace, answer = work_out(task.question)
        return [Message(role="assistant", content=answer, thinking=trace)]

    def weaker(self, task: Task, rng: random.Random) -> list[Message]:
        trace, answer = work_out(task.question)
        if answer.isdigit():
            wrong = str(int(answer) + rng.choice((1, 2) if answer == "0" else (-1, 1)))
        else:
            letters = answer.split(" ")
            place = rng.randrange(len(letters))
            letters[place] = rng.choice([letter for letter in self.alphabet if letter != letters[place]])
            wrong = " ".join(letters)
        return [Message(role="assistant", content=wrong, thinking=trace)]

    def score(self, task: Task, messages: Sequence[Message]) -> Score:
        content = final_content(messages)
        if task.answer.isdigit():
            correct = same_number(content, task.answer)
        else:  # letters: "eert" is as right as "e e r t"
            correct = same_text(content.replace(" ", ""), task.answer.replace(" ", ""))
        well_formed = format_ok(messages, task.thinking)
        return Score(float(correct and well_formed), correct, well_formed)


def work_out(question: str) -> tuple[str, str]:
    """The trace and the answer of a question that this kind wrote."""
    command, _, spelled = question.partition(": ")
    word = spelled.replace(" ", "")
    if command == REVERSE:
        numbered = [f"{place} {letter}" for place, letter in enumerate(word, start=1)]
        return " ".join(numbered + numbered[::-1]), " ".join(word[::-1])
    if command == LAST:
        return " ".join(word), word[-1]
    target = command.removeprefix(COUNT + " ")
    if len(target) != 1 or not word:
        raise ValueError(f"not a string question: {question!r}")
    steps = [f"{letter} {word[:place].count(target)}" for place, letter in enumerate(word, start=1)]
    return " ".join(steps), str(word.count(target))
