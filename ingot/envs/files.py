"""An environment whose tasks are rows of files.

    class Trivia(FileEnvironment):
        def read(self, row, place):
            return self.ask(row["question"], row["answer"])

    trivia.py:Trivia: {train: [train.jsonl], test: [test.jsonl]}     the files' own splits
    trivia.py:Trivia: {files: [all.jsonl]}                           split by a hash of the question

A question comes once. A train row that asks what a test row asks, be it with other capitals, blanks and marks, is left out: what
is held out stays held out.

`pass_rates` keeps train tasks of the right difficulty: GRPO learns nothing from a task that a policy always or never solves. The
file is written once by `ingot env test NAME --policy MODEL --samples 8 --pass-rates FILE`.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import Self

from pydantic import Field, model_validator

from ingot.envs.environment import Environment
from ingot.envs.pass_rates import read_pass_rates
from ingot.envs.rows import Row, fingerprints, read_rows
from ingot.envs.task import Split, Task, without_held_out
from ingot.workspace.errors import DataError

FORMS = "JSONL (also compressed), Parquet, or hf:NAME:SPLIT"


class FileEnvironment(Environment):
    """Tasks from rows of files; `read` makes a task of a row."""

    train: tuple[str, ...] = Field((), description=f"files of train tasks: {FORMS}")
    test: tuple[str, ...] = Field((), description="files of held-out tasks")
    files: tuple[str, ...] = Field((), description="files whose rows are split by a hash of the question, four to one")

    text_as: str = Field(
        "", description="how a curated folder's column `text` is called in other files, as in question"
    )
    pass_rates: str = Field("", description="a file of pass rates; only train tasks within `pass_rate` are kept")
    pass_rate: tuple[float, float] = Field(
        (0.1, 0.9), description="lowest and highest share of samples that solve a task"
    )

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        if self.files and (self.train or self.test):
            raise ValueError("give either `files`, or `train` and `test`")
        return self

    @abstractmethod
    def read(self, row: Row, place: str) -> Task | None:
        """The task of a row (`self.ask`), or None if the row is none; `place` is the file and line, for errors."""

    def rows(self, split: Split) -> Sequence[Task] | None:
        """All tasks of a split, each once."""
        if not (self.files or self.train or self.test):
            raise DataError(
                "no files are given",
                place=f"task kind {self.kind}",
                fix=f"write {self.kind}: {{train: [FILE], test: [FILE]}}, each {FORMS}",
            )
        tasks = self._splits[split]
        if split == "train" and self.pass_rates and not tasks:
            raise DataError(
                "no train task has a pass rate from {:g} to {:g}".format(*self.pass_rate),
                place=f"task kind {self.kind}, {self.pass_rates}",
                fix="widen pass_rate, or measure these tasks: ingot env test NAME --policy MODEL --pass-rates FILE",
            )
        return tasks

    def outside(self) -> dict[str, str]:
        """The files are part of what a stage works on."""
        return fingerprints(tuple(filter(None, (*self.train, *self.test, *self.files, self.pass_rates))))

    @cached_property
    def _splits(self) -> dict[Split, list[Task]]:
        test, train = self._tasks(self.test, "test"), self._tasks(self.train, "train")
        for task in self._tasks(self.files, None):
            (test if task.split == "test" else train).append(task)
        train = without_held_out(train, test)
        if self.pass_rates:
            rates, (lowest, highest) = read_pass_rates(self.pass_rates), self.pass_rate
            train = [task for task in train if lowest <= rates.get(task.id, -1.0) <= highest]
        return {"train": train, "test": test}

    def _tasks(self, specs: tuple[str, ...], split: Split | None) -> list[Task]:
        tasks: dict[str, Task] = {}
        for spec in specs:
            for place, row in read_rows(spec):
                task = self.read({self.text_as: row.get("text"), **row} if self.text_as else row, place)
                if task is not None:
                    tasks.setdefault(task.id, replace(task, split=split or task.split))
        return list(tasks.values())
