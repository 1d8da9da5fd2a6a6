"""Tasks of smollm2-think.yaml: families of reasoning-gym with their working written out, and people's instructions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pydantic import Field

from ingot.envs.episode import UNSCORED, Score
from ingot.envs.files import FileEnvironment
from ingot.envs.rows import Row, need
from ingot.envs.task import Task
from ingot.envs.tasks.reasoning_gym import ReasoningGym
from ingot.tokens.chat import Message


class Worked(ReasoningGym):
    """A family whose solutions think: reasoning-gym itself has only the answers."""

    def working(self, facts: dict[str, Any]) -> str:
        """The thinking, from what the family says of its question."""
        raise TypeError(f"{type(self).__name__} does not say how it is worked out")

    def solution(self, task: Task) -> list[Message]:
        working = self.working(self.item(task.asked[0])["metadata"])
        return [Message("assistant", task.answer, working)]


class ChainSum(Worked):
    """Sums and differences of two to four numbers, added up one after another."""

    family: str = "chain_sum"
    settings: dict[str, Any] = Field({"min_terms": 2, "max_terms": 4, "min_digits": 2, "max_digits": 3})

    def working(self, facts: dict[str, Any]) -> str:
        first, *rest = facts["expression"].split()
        total, lines = int(first), []
        for sign, number in zip(rest[::2], rest[1::2], strict=True):
            after = total + int(number) if sign == "+" else total - int(number)
            lines.append(f"{total} {sign} {number} = {after}")
            total = after
        return "\n".join(lines)


class Gcd(Worked):
    """The greatest common divisor of two numbers, by Euclid's algorithm."""

    family: str = "gcd"
    settings: dict[str, Any] = Field({"min_numbers": 2, "max_numbers": 2, "min_value": 2, "max_value": 300})

    def working(self, facts: dict[str, Any]) -> str:
        small, large = sorted(facts["numbers"])
        lines = []
        while small:
            lines.append(f"{large} = {large // small} * {small} + {large % small}")
            small, large = large % small, small
        return "\n".join(lines)


class SpellBackward(Worked):
    """A word backwards, letter by letter."""

    family: str = "spell_backward"
    settings: dict[str, Any] = Field({"min_word_len": 3, "max_word_len": 8})

    def working(self, facts: dict[str, Any]) -> str:
        return f"{'-'.join(facts['word'])}\n{'-'.join(reversed(facts['word']))}"


class LetterCounting(Worked):
    """How often a letter comes in a few words, word by word."""

    family: str = "letter_counting"
    settings: dict[str, Any] = Field({"min_words": 3, "max_words": 6})

    def working(self, facts: dict[str, Any]) -> str:
        letter, total, lines = facts["target_letter"], 0, []
        for word in facts["span"]:
            total += word.lower().count(letter)
            lines.append(f"{'-'.join(word.lower())}: {total}")
        return "\n".join(lines)


class Wishes(FileEnvironment):
    """Instructions of people, to be answered as the model did before; there is no right answer."""

    files: tuple[str, ...] = Field(
        ("data/rasbt_instruct/instruction_data.jsonl.gz", "data/llamafactory_demo/alpaca_en_demo.jsonl.gz"),
        description="rows with `instruction` and `input`",
    )

    def read(self, row: Row, place: str) -> Task | None:
        text = f"{need(row, 'instruction', str, place)}\n{row.get('input') or ''}".strip()
        return self.ask(text, thinking=False) if len(text) < 1000 else None

    def score(self, task: Task, messages: Sequence[Message]) -> Score:
        return UNSCORED


class MoreTerms(ChainSum):
    """Sums and differences of more numbers than SFT saw, for RL."""

    settings: dict[str, Any] = Field({"min_terms": 3, "max_terms": 5, "min_digits": 2, "max_digits": 3})


class MoreLetters(LetterCounting):
    """Letters in more words than SFT saw, for RL."""

    settings: dict[str, Any] = Field({"min_words": 7, "max_words": 12})
