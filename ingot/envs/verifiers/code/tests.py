"""The kinds of tests that a program can be verified by."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

OVER = "over the limit: "  # then its name, at the end of what is said of a program that was stopped


@dataclass(frozen=True)
class FunctionCall:
    """Arguments of a function and the value that it must return. Tuples and lists are equal, and floats to nine digits."""

    arguments: Sequence[Any]
    expected: Any
    keywords: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Calls:
    """Calls of one function."""

    function: str
    calls: Sequence[FunctionCall]


@dataclass(frozen=True)
class InputOutput:
    """Pairs of what a program reads and what it must print; space at the ends of lines and of the whole does not count."""

    cases: Sequence[tuple[str, str]]
    language: str = "python"


@dataclass(frozen=True)
class Asserts:
    """Python code that asserts. `prelude` is run before it on the tests' side: what both sides know, as HumanEval's prompt.

    `entry_points` name what is the program's even if the prelude defines it too. Other names that the tests use and nobody
    defines are the program's as well.
    """

    tests: str
    prelude: str = ""
    entry_points: tuple[str, ...] = ()
