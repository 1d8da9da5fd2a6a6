"""Kinds of environments.yaml that are a built-in kind with other options: a kind is measured once in a suite."""

from __future__ import annotations

from typing import Any, ClassVar

from pydantic import Field

from ingot.envs.tasks.gsm8k import Gsm8k
from ingot.envs.tasks.instructions import Instructions
from ingot.envs.tasks.reasoning_gym import ReasoningGym


class WithPython(Gsm8k):
    """GSM8K with a Python session, over several turns."""

    label: ClassVar[str] = "GSM8K with Python"
    python: bool = True


class WrittenInstructions(Instructions):
    """Requests that are generated, and not rows of IFEval."""

    label: ClassVar[str] = "generated instructions"
    most: int = 1


class ChainSum(ReasoningGym):
    """Sums of two or three numbers."""

    label: ClassVar[str] = "reasoning-gym, chain_sum"
    family: str = "chain_sum"
    settings: dict[str, Any] = Field({"min_terms": 2, "max_terms": 3, "min_digits": 1, "max_digits": 2})


class LetterCounting(ReasoningGym):
    """How often a letter is in a text."""

    label: ClassVar[str] = "reasoning-gym, letter_counting"
    family: str = "letter_counting"
    settings: dict[str, Any] = Field({"min_words": 3, "max_words": 5})


class SpellBackward(ReasoningGym):
    """A word backwards."""

    label: ClassVar[str] = "reasoning-gym, spell_backward"
    family: str = "spell_backward"
    settings: dict[str, Any] = Field({"min_word_len": 3, "max_word_len": 5})
