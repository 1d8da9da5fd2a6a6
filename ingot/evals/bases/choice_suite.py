"""The base of suites whose questions have choices: rows of files, worked examples, scores by likelihood (choices.py)."""

from __future__ import annotations

from abc import abstractmethod
from collections import defaultdict
from collections.abc import Sequence
from typing import ClassVar, Self

from pydantic import Field, model_validator

from ingot.envs.rows import HUB, Row
from ingot.evals.bases.choices import (
    Item,
    ItemLikelihoods,
    Score,
    ask_alone,
    ask_choices,
    by_item,
    choice_metrics,
    choice_samples,
    item_ids,
)
from ingot.evals.bases.few_shot import Draw, FewShot
from ingot.evals.bases.file_suite import FileSuite, rows_of
from ingot.evals.bases.suite import Measured, Measuring, Subject
from ingot.evals.engine.request import Likely


class ChoiceSuite(FileSuite):
    """A suite of questions with choices: a subclass reads a row."""

    shot_local: ClassVar[tuple[str, ...]] = ()  # where worked examples are, below the data folder
    shot_hub: ClassVar[tuple[str, ...]] = ()
    drops_itself: ClassVar[bool] = False  # the harness draws one example more where a set has no test split
    scores: tuple[Score, ...] = Field(
        ("raw", "character"), min_length=1, description="how choices are ranked; unconditional doubles the requests"
    )
    shots: int = Field(0, ge=0, description="worked examples before each question")
    draw: Draw = Field(
        "random", description="worked examples: the first of their file, or random ones for each question"
    )
    shot_files: tuple[str, ...] = Field(
        (), description="files of worked examples, instead of the published ones; without any, other rows of the suite"
    )
    by_group: bool = Field(False, description="also the scores of each part of the suite, such as a subject")

    @model_validator(mode="after")
    def _examples_are_drawn(self) -> Self:
        if not self.shots and (given := self.chosen("draw", "shot_files")):
            raise ValueError(f"{', '.join(given)}: there are no worked examples; give `shots`, or leave it out")
        return self

    @abstractmethod
    def item(self, row: Row, place: str) -> Item:
        """The question of a row."""

    def measure(self, subject: Subject) -> Measuring:
        """Ask for the likelihood of every choice, and score."""
        items = self.items(subject)
        requests = ask_choices(items, self.examples(subject, items))
        alone = ask_alone(items) if "unconditional" in self.scores else []
        answers = yield [*requests, *alone]
        likely = by_item(items, answers[: len(requests)])
        unconditional = by_item(items, answers[len(requests) :]) if alone else None
        return self.found(items, likely, unconditional)

    def items(self, subject: Subject) -> list[Item]:
        """The questions."""
        return [self.item(row, place) for place, row in self.rows(subject)]

    def examples(self, subject: Subject, items: Sequence[Item]) -> list[list[Item]]:
        """The worked examples of each item."""
        if not self.shots:
            return [[] for _ in items]
        pool, own = self.pool(subject)
        pools: defaultdict[str, list[Item]] = defaultdict(list)
        for example in pool:
            pools[example.pool].append(example)
        itself = own or self.drops_itself
        draws = {
            name: FewShot(pools[name], self.shots, self.draw, itself=itself) for name in {item.pool for item in items}
        }
        return [draws[item.pool](item) for item in items]

    def pool(self, subject: Subject) -> tuple[list[Item], bool]:
        """What worked examples are taken from, and whether these are the suite's own rows."""
        if self.given_shots or self.shot_local:
            files, given = self.given_shots or self.shot_local, bool(self.given_shots)
            rows, own = rows_of(files, self.shot_hub, subject.data, given=given, suite=self.short_name), False
        else:
            rows = self.all_rows(subject)
            own = not (self.shot_hub and rows and rows[0][0].startswith(HUB))
            if not own:  # the set is the hub's, and so are its rows for training
                rows = rows_of((), self.shot_hub, None, suite=self.short_name)
        return [self.item(row, place) for place, row in rows], own

    def found(
        self, items: Sequence[Item], likely: Sequence[Sequence[Likely]], alone: Sequence[Sequence[Likely]] | None
    ) -> Measured:
        """The metrics over all items, and of each group if asked for."""
        ids = item_ids(items)
        others: Sequence[Sequence[Likely] | None] = alone or [None] * len(items)
        answered = [ItemLikelihoods(*each) for each in zip(ids, items, likely, others, strict=True)]
        metrics = choice_metrics(self.metric_prefix, answered, self.scores)
        if self.by_group:
            for group in sorted({item.group for item in items}):
                members = [each for each in answered if each.item.group == group]
                metrics += choice_metrics(self.metric_prefix, members, self.scores, group)
        return Measured(metrics, choice_samples(self.metric_prefix, items, ids, likely))

    @property
    def metric_prefix(self) -> str:
        """What the metrics' names begin with."""
        return self.short_name
