"""Small tasks on the letters of a word; the trace spells the word so that each step looks at one letter.

    Reverse tree.                           1t2r3e4e4e3e2r1t      eert
    What is the last letter of tree?        tree                  e
    How many e are in tree?                 t0r0e1e2              2

Positions are numbered for the reversal because a repeated letter cannot be found again by its name alone. (Read from the end
without spelling the word first, a small model does not learn it.) A tokenizer that has merges needs blanks between letters
(`spelled`): in the question, the trace and the answer.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar, Literal, Self

from pydantic import Field, model_validator

from ingot.envs.environment import Environment, in_place
from ingot.envs.episode import Score
from ingot.envs.task import Task
from ingot.envs.tasks._wording import word
from ingot.envs.tasks.arithmetic import TYPED_HELP
from ingot.envs.verifiers.text.reply import final_content, format_ok, same_number, same_text
from ingot.tokens.chat import Message

WORDINGS = {
    "reverse": (
        *("Reverse {}", "Reverse: {}", "Reverse the word {}.", "Can you reverse {}?", "Please reverse {}."),
        *("Spell {} backwards.", "Write {} backwards.", "What is {} backwards?"),
    ),
    "last": (
        *("Last letter: {}", "What is the last letter of {}?", "The last letter of {}?", "Which letter is last in {}?"),
        *("The last letter of the word {}?", "What letter is at the end of {}?"),
    ),
    "count": ("How many {1} are in {0}?", "How many {1} in {0}?", "Count the {1} in {0}.", "How often is {1} in {0}?"),
}
TYPED = {"reverse": ("What's {} backwards?", "{} backwards"), "last": ("What's the last letter of {}?",), "count": ()}


def wordings(operation: str, typed: bool) -> tuple[str, ...]:
    """The ways to ask it; `typed`: also the short forms that people type."""
    return (*WORDINGS[operation], *(TYPED[operation] if typed else ()))


class Strings(Environment):
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
    typed: bool = Field(False, description=TYPED_HELP)

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
        alphabet = rng.sample(self.alphabet, 3) if operation == "count" else self.alphabet
        letters = [rng.choice(alphabet) for _ in range(length)]
        letter = rng.choice(alphabet) if operation == "count" else ""
        question = word(wordings(operation, self.typed), rng, self.gap.join(letters), letter)
        asked = (operation, "".join(letters), letter)
        answer = work_out(*asked, self.gap)[1]
        return self.ask(question, answer, fact=" ".join(asked).strip(), asked=asked)

    @property
    def gap(self) -> str:
        """What stands between letters."""
        return " " if self.spelled else ""

    def solution(self, task: Task) -> list[Message]:
        operation, letters, letter = task.asked
        trace, answer = work_out(operation, letters, letter, self.gap)
        return [Message(role="assistant", content=answer, thinking=trace)]

    def weaker(self, task: Task, rng: random.Random) -> list[Message]:
        """Works it out rightly, and says another letter or number in the end."""
        (reply,) = self.solution(task)
        letters = list(task.answer)
        place = rng.choice([place for place, letter in enumerate(letters) if letter != " "])
        others = "0123456789" if task.answer.isdigit() else self.alphabet
        letters[place] = rng.choice([letter for letter in others if letter != letters[place]])
        return [replace(reply, content="".join(letters))]

    @in_place
    def score(self, task: Task, messages: Sequence[Message]) -> Score:
        content = final_content(messages)
        if task.answer.isdigit():
            correct = same_number(content, task.answer)
        else:  # letters: "eert" is as right as "e e r t"
            correct = same_text(content.replace(" ", ""), task.answer.replace(" ", ""))
        well_formed = format_ok(messages, task.thinking)
        return Score(float(correct and well_formed), correct, well_formed)


def work_out(operation: str, letters: str, letter: str, gap: str) -> tuple[str, str]:
    """The trace and the answer."""
    if operation == "reverse":
        numbered = [f"{place}{gap}{each}" for place, each in enumerate(letters, start=1)]
        return gap.join(numbered + numbered[::-1]), gap.join(letters[::-1])
    if operation == "last":
        return gap.join(letters), letters[-1]
    steps = [f"{each}{gap}{letters[:place].count(letter)}" for place, each in enumerate(letters, start=1)]
    return gap.join(steps), str(letters.count(letter))
