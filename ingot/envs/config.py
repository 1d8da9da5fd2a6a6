"""How hard the tasks are: one config per task kind, and the mixture of kinds.

Imports nothing heavy. The defaults are sized for a model of a few million parameters that trains for minutes.
"""

from __future__ import annotations

from typing import Literal, get_args

from pydantic import Field, model_validator

from ingot.workspace.config import Config

Kind = Literal["arithmetic", "strings", "calculator", "no_think"]
KINDS: tuple[Kind, ...] = get_args(Kind)


class ArithmeticConfig(Config):
    """Sums, differences and small products, worked out column by column in the thinking trace."""

    operators: tuple[Literal["+", "-", "*"], ...] = Field(
        ("+",), min_length=1, description="operators to draw from, each equally often"
    )
    digits_min: int = Field(2, ge=1, le=9, description="digits of the smallest numbers")
    digits_max: int = Field(2, ge=1, le=9, description="digits of the largest numbers")
    multiplier_max: int = Field(5, ge=2, le=9, description="the right side of a product is drawn from 2 to this digit")

    @model_validator(mode="after")
    def _ordered(self) -> ArithmeticConfig:
        if self.digits_min > self.digits_max:
            raise ValueError(f"digits_min ({self.digits_min}) is larger than digits_max ({self.digits_max})")
        return self


class StringsConfig(Config):
    """Reverse a word, count a letter in it, name its last letter; the trace spells the word letter by letter."""

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
    def _ordered(self) -> StringsConfig:
        if self.letters_min > self.letters_max:
            raise ValueError(f"letters_min ({self.letters_min}) is larger than letters_max ({self.letters_max})")
        if len(set(self.alphabet)) != len(self.alphabet) or not (self.alphabet.isascii() and self.alphabet.isalpha()):
            raise ValueError("alphabet must be distinct ASCII letters")
        return self


class CalculatorConfig(Config):
    """Numbers too large for the head: the right behaviour is to call the calculator and to repeat its result."""

    operators: tuple[Literal["+", "-", "*"], ...] = Field(
        ("+", "-"), min_length=1, description="operators to draw from, each equally often"
    )
    digits_min: int = Field(3, ge=2, le=9, description="digits of the smallest numbers")
    digits_max: int = Field(3, ge=2, le=9, description="digits of the largest numbers")
    thinking: bool = Field(True, description="think before the call; without, the call comes directly")

    @model_validator(mode="after")
    def _ordered(self) -> CalculatorConfig:
        if self.digits_min > self.digits_max:
            raise ValueError(f"digits_min ({self.digits_min}) is larger than digits_max ({self.digits_max})")
        return self


class NoThinkConfig(Config):
    """Questions so easy that the answer comes directly: one-digit sums and the last letter of a word."""

    operations: tuple[Literal["sum", "last"], ...] = Field(
        ("sum",), min_length=1, description="operations to draw from, each equally often"
    )
    largest: int = Field(9, ge=3, le=9, description="largest number in a sum")
    letters_min: int = Field(2, ge=1, le=9, description="letters of the shortest words")
    letters_max: int = Field(4, ge=1, le=9, description="letters of the longest words")

    @model_validator(mode="after")
    def _ordered(self) -> NoThinkConfig:
        if self.letters_min > self.letters_max:
            raise ValueError(f"letters_min ({self.letters_min}) is larger than letters_max ({self.letters_max})")
        return self


class TasksConfig(Config):
    """How hard each task kind is."""

    arithmetic: ArithmeticConfig = Field(ArithmeticConfig(), description="difficulty of arithmetic")
    strings: StringsConfig = Field(StringsConfig(), description="difficulty of the string tasks")
    calculator: CalculatorConfig = Field(CalculatorConfig(), description="difficulty of the calculator tasks")
    no_think: NoThinkConfig = Field(NoThinkConfig(), description="difficulty of the direct questions")


class TaskMixConfig(TasksConfig):
    """Which task kinds, how often each, and how hard."""

    weights: dict[Kind, float] = Field(
        {"arithmetic": 0.4, "strings": 0.2, "calculator": 0.3, "no_think": 0.1},
        description="share of each task kind; need not sum to 1, a kind that is left out does not appear",
    )

    @model_validator(mode="after")
    def _some_weight(self) -> TaskMixConfig:
        if any(weight < 0 for weight in self.weights.values()) or sum(self.weights.values()) <= 0:
            raise ValueError("weights must not be negative, and at least one must be larger than 0")
        return self
