"""Requests with instructions that a program can check, and an answer to each that follows all of them.

A request is a topic with a few constraints. Those that claim the same part of an answer (its layout, its end, its case) are never
drawn together. Whatever else two constraints may do to each other shows in the check: a request is used only if its draft follows
every instruction.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ingot.envs.tasks._instruction_constraints import CONSTRAINTS, InstructionKind
from ingot.envs.tasks._instruction_drafts import Draft
from ingot.envs.verifiers.instructions.instruction import find_instruction
from ingot.workspace.errors import DataError

TRIES = 1000  # most requests pass the check at once
TOPICS = (
    *(
        "bread",
        "rivers",
        "old maps",
        "bicycles",
        "tea",
        "chess",
        "lighthouses",
        "beekeeping",
        "night trains",
        "volcanoes",
    ),
    *(
        "libraries",
        "mountain weather",
        "sailing",
        "clay pots",
        "street markets",
        "owls",
        "gardens in winter",
        "stone walls",
    ),
    *(
        "wooden bridges",
        "the history of glass",
        "learning to swim",
        "morning walks",
        "coral reefs",
        "cooking with herbs",
    ),
    *("folk songs", "paper kites", "desert plants", "small museums", "running shoes", "the moon"),
)
REQUESTS = (
    "Write a short text about {topic}.",
    "Tell me something about {topic}.",
    "Describe {topic} to a friend.",
    "What should a visitor know about {topic}?",
    "Write a few lines about {topic} for a newsletter.",
    "Explain why people care about {topic}.",
)


@dataclass(frozen=True)
class InstructionRequest:
    """A request in words, its constraints alone, what they ask by id and kwargs, and an answer that follows them."""

    topic: str
    question: str
    constraints: str
    instructions: tuple[tuple[str, dict[str, Any]], ...]
    solution: str


def draw_request(rng: random.Random, most: int) -> InstructionRequest:
    """A request with one to `most` constraints that can be followed together."""
    for _ in range(TRIES):
        constraints = _compatible(rng, rng.randint(1, most))
        topic = rng.choice(TOPICS)
        asked = [(constraint, constraint.draw(rng)) for constraint in constraints]
        solution = _solve(topic, asked)
        instructions = tuple((constraint.id, kwargs) for constraint, kwargs in asked)
        if all(find_instruction(id, kwargs).follows(solution) for id, kwargs in instructions):
            question = rng.choice(REQUESTS).format(topic=topic)
            said = " ".join(rng.choice(constraint.wordings).format(**_shown(kwargs)) for constraint, kwargs in asked)
            return InstructionRequest(topic, f"{question} {said}", said, instructions, solution)
    raise DataError(f"no request of {TRIES} could be followed", place="task kind instructions", fix="lower `most`")


def _compatible(rng: random.Random, count: int) -> list[InstructionKind]:
    chosen: list[InstructionKind] = []
    for constraint in rng.sample(CONSTRAINTS, len(CONSTRAINTS)):
        if len(chosen) < count and not any(constraint.claims & other.claims for other in chosen):
            chosen.append(constraint)
    return chosen


def _solve(topic: str, asked: Sequence[tuple[InstructionKind, dict[str, Any]]]) -> str:
    draft = Draft(topic)
    draft.add_sentence()
    for constraint, kwargs in sorted(asked, key=lambda pair: pair[0].late):
        constraint.follow(draft, kwargs)
    return draft.text()


def _shown(kwargs: dict[str, Any]) -> dict[str, Any]:
    return {name: ", ".join(value) if isinstance(value, list) else value for name, value in kwargs.items()}
