"""MBPP (Austin et al. 2021, arXiv 2108.07732): short Python functions from a sentence and three asserts.

A base model reads the paper's prompt with the tasks 2, 3 and 4 as worked examples and stops at [DONE]; a chat model is asked the
same without examples, and its program the block of its reply that defines what is tested. The test part are the task ids 11
to 510.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar, Literal

from pydantic import Field

from ingot.envs.rows import Row, need
from ingot.envs.tasks._programs import names_of, program_of
from ingot.envs.tasks.mbpp import Mbpp as Environment
from ingot.envs.verifiers.code.tests import Asserts
from ingot.evals.bases.code_problems import CodeProblems
from ingot.evals.bases.file_suite import rows_of
from ingot.evals.bases.generations import Item
from ingot.evals.bases.suite import Subject
from ingot.evals.engine.request import Question
from ingot.workspace.errors import DataError

ENVIRONMENT = Environment()  # whose rows are read and graded
Part = Literal["prompt", "test", "validation", "train"]
IDS: dict[Part, range] = {
    "prompt": range(1, 11),
    "test": range(11, 511),
    "validation": range(511, 601),
    "train": range(601, 975),
}
EXAMPLES = (2, 3, 4)
ASK = "You are an expert Python programmer, and here is your task: {} Your code should pass these tests:\n\n{}\n"


class Mbpp(CodeProblems):
    """Short Python functions from a sentence and asserts."""

    local: ClassVar[tuple[str, ...]] = ("mbpp/mbpp.jsonl*", "mbpp/*.jsonl*", "mbpp/*.parquet")
    hub: ClassVar[tuple[str, ...]] = ("hf:google-research-datasets/mbpp:full:test",)
    hub_shots: ClassVar[tuple[str, ...]] = ("hf:google-research-datasets/mbpp:full:prompt",)
    labels: ClassVar[Mapping[str, str]] = {"pass@1": "MBPP, all asserts passed"}

    max_new_tokens: int = Field(256, ge=1, description="tokens of an answer at most")
    shots: int = Field(3, ge=0, le=3, description="worked examples before a base model's question")
    part: Part = Field(
        "test", description="which task ids: prompt 1–10, test 11–510, validation 511–600, train 601–974"
    )

    def stops(self, subject: Subject) -> tuple[str, ...]:
        return ("[DONE]",) if subject.form == "text" else ()

    def rows(self, subject: Subject) -> list[tuple[str, Row]]:
        """The rows of the part; the limit counts these."""
        every = rows_of(self.files or self.local, self.hub, subject.data, given=bool(self.files), suite=self.short_name)
        members = [one for one in every if need(one[1], "task_id", int, one[0]) in IDS[self.part]]
        return self.some(members, subject)

    def items(self, subject: Subject) -> Sequence[Item]:
        shots = self._shots(subject) if subject.form == "text" and self.shots else ()
        rows = self.rows(subject)
        return [self._item(row, place, shots, subject) for place, row in rows]

    def program(self, item: Item, answer: str) -> str:
        return answer if item.data["text"] else program_of(answer, names_of(self.tests(item)))

    def tests(self, item: Item) -> Asserts:
        return ENVIRONMENT.tests(item.data["task"])

    def _item(self, row: Row, place: str, shots: tuple[tuple[str, str], ...], subject: Subject) -> Item:
        text = subject.form == "text"
        asked = _ask(row, place)
        question = Question(f"{asked}[BEGIN]\n", shots, delimiter="") if text else Question(f"{asked}\n{BLOCK}")
        data = {"task": ENVIRONMENT.read(row, place), "text": text}
        return Item(f"mbpp/{row['task_id']}", question, need(row, "code", str, place), data)

    def _shots(self, subject: Subject) -> tuple[tuple[str, str], ...]:
        """The tasks 2, 3 and 4, from the same files or from the data set's split `prompt`."""
        rows = rows_of(self.local, self.hub_shots, subject.data, suite=self.short_name)
        if self.files:
            rows = [*rows_of(self.files, (), None, given=True), *rows]
        found = {row["task_id"]: (place, row) for place, row in reversed(rows)}
        if missing := [id for id in EXAMPLES[: self.shots] if id not in found]:
            raise DataError(
                f"the worked example with the task_id {missing[0]} is missing", place=self.short_name, fix="shots: 0"
            )
        return tuple(_shot(*found[id]) for id in EXAMPLES[: self.shots])


BLOCK = "Answer with a Python code block."


def _ask(row: Row, place: str) -> str:
    tests = need(row, "test_list", list, place)
    return ASK.format(need(row, "text", str, place), "\n".join(tests[:3]))


def _shot(place: str, row: Row) -> tuple[str, str]:
    return f"{_ask(row, place)}[BEGIN]\n", f"{need(row, 'code', str, place)}\n[DONE]"
