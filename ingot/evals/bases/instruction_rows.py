"""Prompts with verifiable instructions, as IFEval and IFBench publish them, and their four numbers.

Rows: {"key", "prompt", "instruction_id_list", "kwargs"}. Each instruction is checked by code (envs/verifiers/instructions):

    prompt_strict, prompt_loose             all instructions of a prompt are followed
    instruction_strict, instruction_loose   each instruction by itself; those of a prompt are one cluster

Loose also accepts an answer that follows without its first line, its last line, or its asterisks.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pydantic import Field

from ingot.envs.rows import Row, need
from ingot.envs.verifiers.instructions.follow import follow
from ingot.envs.verifiers.instructions.instruction import Instruction, find_instruction
from ingot.evals.bases.generations import (
    GeneratedSuite,
    Grade,
    Graded,
    Item,
    score_metrics,
    several_metrics,
    trouble_metrics,
)
from ingot.evals.bases.suite import Subject
from ingot.evals.engine.request import Question
from ingot.evals.scores.scores import Metric, metric_of_units
from ingot.workspace.errors import DataError

LEVELS = ("strict", "loose")


class InstructionRows(GeneratedSuite):
    """Prompts of rows with their instructions."""

    max_new_tokens: int = Field(1280, ge=1, description="tokens of an answer at most")

    def items(self, subject: Subject) -> Sequence[Item]:
        return [
            Item(
                str(row.get("key", number)),
                Question(need(row, "prompt", str, place)),
                data={"instructions": self._instructions(row, place)},
            )
            for number, (place, row) in enumerate(self.rows(subject))
        ]

    def instruction(self, id: str, kwargs: Mapping[str, Any], place: str) -> Instruction:
        """One instruction of a row."""
        return find_instruction(id, kwargs, place)

    def grade(self, item: Item, answer: str) -> Grade:
        return grade_instructions(answer, item.data["instructions"])

    def metrics(self, graded: Sequence[Graded]) -> Iterator[Metric]:
        yield from score_metrics(self.short_name, graded, self.labels)
        yield from instruction_metrics(self.short_name, graded)
        if self.samples > 1:
            yield from several_metrics(self.short_name, graded, votes=False)
        yield from trouble_metrics(self.short_name, graded)

    def _instructions(self, row: Row, place: str) -> list[Instruction]:
        ids, kwargs = need(row, "instruction_id_list", list, place), need(row, "kwargs", list, place)
        if not ids or len(ids) != len(kwargs):
            raise DataError(f"{len(ids)} instructions and {len(kwargs)} kwargs", place=place, fix="give one each")
        return [self.instruction(id, given, place) for id, given in zip(ids, kwargs, strict=True)]


def grade_instructions(answer: str, instructions: Sequence[Instruction]) -> Grade:
    """Both prompt levels, and every instruction by its number."""
    followed = follow(answer, instructions)
    scores = {"prompt_strict": float(all(followed.strict)), "prompt_loose": float(all(followed.loose))}
    for level, bits in zip(LEVELS, (followed.strict, followed.loose), strict=True):
        scores |= {f"{level}/{number}": float(bit) for number, bit in enumerate(bits)}
    return Grade(scores)


def instruction_metrics(suite: str, graded: Sequence[Graded]) -> Iterator[Metric]:
    """The instructions by themselves, clustered by their prompt; over several answers to a prompt their mean."""
    for level in LEVELS:
        found: dict[str, list[float]] = {}
        clusters: dict[str, str] = {}
        for each in graded:
            for name, score in (each.grade.scores if each.grade else {}).items():
                if name.startswith(f"{level}/"):
                    unit = f"{each.item.id}/{name.partition('/')[2]}"
                    found.setdefault(unit, []).append(score)
                    clusters[unit] = each.item.id
        units = {unit: sum(scores) / len(scores) for unit, scores in found.items()}
        label = f"Instructions followed, {level}, {suite}"
        yield metric_of_units(f"{suite}/instruction_{level}", units, label, clusters=clusters)
