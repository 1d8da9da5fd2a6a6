"""Tasks of the Eval Gauntlet and of DCLM's CORE, each named by its file: the shape of its rows says how it is scored.

{suite: icl, task: bigbench_strategy_qa, shots: 10}          below the data folder: core_icl/TASK.jsonl
{suite: icl, name: mine, files: [rows.jsonl]}

query, choices, gold                 the likeliest choice
context_options, continuation, gold  the context after which the continuation is likeliest
context, continuation                greedy decoding writes the continuation

The Gauntlet and CORE rank choices by their mean likelihood a token (the score `token`), and give each task a delimiter, such as
"\\nAnswer: ". Its words are part of the question, and only the choice is scored.
"""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from pydantic import Field

from ingot.envs.rows import Row, need
from ingot.evals.bases.choice_suite import ChoiceSuite
from ingot.evals.bases.choices import Item, Score, ask_choices, by_item, gold_index, item_ids
from ingot.evals.bases.file_suite import rows_of
from ingot.evals.bases.gauntlet import first
from ingot.evals.bases.suite import Measured, Measuring, Subject
from ingot.evals.scores.scores import KEPT_SAMPLES, Sample, metric_of_units
from ingot.evals.suites.winogrande import filled_item
from ingot.workspace.errors import DataError


class Icl(ChoiceSuite):
    """A task of the Eval Gauntlet (DCLM's CORE), named by its file."""

    local: ClassVar[tuple[str, ...]] = ("core_icl/{task}.jsonl*", "icl/{task}.jsonl*")
    task: str = Field("", description="the task: the name of its file without .jsonl")
    delimiter: str = Field(" ", description="between a question and its answer")
    scores: tuple[Score, ...] = Field(
        ("token", "raw"), min_length=1, description="how choices are ranked; the Gauntlet ranks by token"
    )

    @property
    def metric_prefix(self) -> str:
        """The task is part of the metrics' names."""
        return f"icl/{self.task}" if self.task else "icl"

    def all_rows(self, subject: Subject) -> list[tuple[str, Row]]:
        """The rows of the task's file."""
        if not self.files and not self.task:
            raise DataError("no task is named", place="suite icl", fix="write task: NAME or files: [FILE]")
        local = tuple(pattern.format(task=self.task) for pattern in self.local)
        return rows_of(self.files or local, (), subject.data, given=bool(self.files), suite=self.short_name)

    def measure(self, subject: Subject) -> Measuring:
        """Choices by likelihood; continuations by greedy decoding."""
        items = self.items(subject)
        if any(len(item.choices) > 1 for item in items):
            return (yield from super().measure(subject))
        answers = yield ask_choices(items, self.examples(subject, items))
        ids = item_ids(items)
        likely = by_item(items, answers)
        right = {name: float(one.greedy) for name, (one,) in zip(ids, likely, strict=True)}
        samples = [
            Sample(name, self.metric_prefix, item.text, None, item.choices[0], one.greedy)
            for name, item, (one,) in list(zip(ids, items, likely, strict=True))[:KEPT_SAMPLES]
        ]
        name = self.metric_prefix
        return Measured([metric_of_units(f"{name}/accuracy", right, f"{name}, accuracy", chance=0.0)], samples)

    def item(self, row: Row, place: str) -> Item:
        """The question of a row, by the row's shape."""
        words = self.delimiter.rstrip()
        blank = self.delimiter[len(words) :]
        if "context_options" in row:
            filled = filled_item(row, place)
            contexts = tuple(context.rstrip() + words for context in filled.contexts)
            return replace(filled, contexts=contexts, delimiter=blank)
        if "query" in row:
            choices = tuple(need(row, "choices", list, place))
            gold = gold_index(first(row.get("gold")), len(choices), place)
            return Item(need(row, "query", str, place).rstrip() + words, choices, gold, delimiter=blank)
        if "continuation" in row:
            text, answer = need(row, "context", str, place), need(row, "continuation", str, place)
            return Item(text.strip() + words, (answer.strip(),), 0, delimiter=blank)
        raise DataError(
            f"a row with the columns {', '.join(row)} is of no known shape",
            place=place,
            fix="give query, choices, gold; or context_options, continuation, gold; or context, continuation",
        )
