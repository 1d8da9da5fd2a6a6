"""BIG-Bench Hard: 27 tasks that need several steps (Suzgun et al. 2022), after three worked examples with their reasoning.

Prompts, stops and the first score are the harness's (bbh_cot_fewshot), traps and all:

    harness   `(?<=the answer is )(.*)(?=.)`, first hit, equal to the target. It drops the last character of the line whatever it
              is, so an answer without its full stop loses its end. The stop "Q" also cuts any answer with a capital Q.
    flexible  the last "the answer is …" of the text, without a full stop at its end

Both are means over all questions.
"""

from __future__ import annotations

import re
from typing import ClassVar

from pydantic import Field

from ingot.envs.rows import Row, need
from ingot.evals.bases.file_suite import FileSuite, rows_of
from ingot.evals.bases.identity import digest, unique
from ingot.evals.bases.spread import in_turn
from ingot.evals.bases.suite import Measured, Measuring, Subject
from ingot.evals.engine.request import Generation, Question
from ingot.evals.scores.scores import KEPT_SAMPLES, Sample, metric_of_units
from ingot.workspace.errors import DataError

HARNESS = re.compile(r"(?<=the answer is )(.*)(?=.)")
FLEXIBLE = re.compile(r"the answer is\s", re.IGNORECASE)
STEPS = "A: Let's think step by step."
STOPS = ("</s>", "Q", "\n\n")
HEAD_END = "-----\n"  # below the line that warns of training on it


class Bbh(FileSuite):
    """BIG-Bench Hard: 27 tasks of several steps, with worked reasoning."""

    local: ClassVar[tuple[str, ...]] = ("bbh/bbh.jsonl*", "bbh/test*.jsonl*")
    prompts: ClassVar[tuple[str, ...]] = ("bbh/cot_prompts.jsonl*",)
    tasks: tuple[str, ...] = Field((), description="only these tasks")
    prompt_files: tuple[str, ...] = Field((), description="the worked examples: rows of task and prompt")
    max_new_tokens: int = Field(1024, ge=1, description="tokens of an answer at most")

    def measure(self, subject: Subject) -> Measuring:
        """Ask every question, and look for the answer in what is written."""
        heads = self._heads(subject)
        asked = [(need(row, "task", str, place), row) for place, row in self.rows(subject)]
        if missing := {task for task, _ in asked} - heads.keys():
            raise DataError(f"there are no worked examples of {', '.join(sorted(missing))}", place="suite bbh")
        answers = yield [
            Generation(
                Question(f"Q: {row['input']}\n{STEPS}\n", *heads[task], delimiter=""),
                max_new_tokens=self.max_new_tokens,
                stop=STOPS,
            )
            for task, row in asked
        ]
        ids = unique(f"{task}-{digest(row['input'])}" for task, row in asked)
        harness, flexible, samples = {}, {}, []
        for name, (task, row), answer in zip(ids, asked, answers, strict=True):
            harness[name] = float(harness_answer(answer.text) == row["target"])
            flexible[name] = float(flexible_answer(answer.text) == row["target"])
            right = flexible[name] == 1.0
            samples.append(Sample(name, f"bbh/{task}", row["input"], answer.text, row["target"], right))
        metrics = [
            metric_of_units("bbh/flexible", flexible, "BIG-Bench Hard, accuracy"),
            metric_of_units("bbh/harness", harness, "BIG-Bench Hard, as the harness reads answers"),
        ]
        return Measured(metrics, samples[:KEPT_SAMPLES])

    def rows(self, subject: Subject) -> list[tuple[str, Row]]:
        """The rows that are asked; a limit takes from all tasks."""
        rows = rows_of(self.files or self.local, (), subject.data, given=bool(self.files), suite=self.short_name)
        wanted = [(place, row) for place, row in rows if not self.tasks or row.get("task") in self.tasks]
        return self.some(in_turn(wanted, lambda row: row.get("task")), subject)

    def _heads(self, subject: Subject) -> dict[str, tuple[tuple[tuple[str, str], ...], str]]:
        given = bool(self.prompt_files)
        rows = rows_of(self.prompt_files or self.prompts, (), subject.data, given=given, suite=self.short_name)
        return {need(row, "task", str, place): head_of(need(row, "prompt", str, place)) for place, row in rows}


def head_of(prompt: str) -> tuple[tuple[tuple[str, str], ...], str]:
    """The worked examples of a task and its description, from its prompt."""
    description, *examples = prompt.rpartition(HEAD_END)[2].split("\n\nQ: ")
    parts = [example.partition(STEPS) for example in examples]
    return tuple((f"Q: {text}{STEPS}\n", answer.strip()) for text, _, answer in parts), f"{description}\n\n"


def harness_answer(text: str) -> str:
    """The answer as the harness's filter finds it."""
    found = HARNESS.findall(text)
    return found[0].strip() if found else "[invalid]"


def flexible_answer(text: str) -> str:
    """The last answer that is announced, without a full stop."""
    *before, last = FLEXIBLE.split(text)
    return last.strip().partition("\n")[0].rstrip().removesuffix(".").rstrip() if before else ""
