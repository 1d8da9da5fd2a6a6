"""MT-bench (Zheng et al. 2023, arXiv 2306.05685): 80 questions in two turns, each answer rated from 1 to 10 by a judge.

Temperatures are by category: 0.7 for writing and roleplay, 0.1 for stem and humanities, 0 for the rest. Questions on mathematics,
reasoning and code come with reference answers, which the judge is shown. The score is the mean over both turns; a reply of the
judge without a rating is asked for again, and then counts as not graded.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Self

from pydantic import Field, model_validator

from ingot.envs.rows import need, read_rows
from ingot.envs.verifiers.judges.judge import Judge
from ingot.evals.bases.file_suite import rows_of
from ingot.evals.bases.generations import Grade, Graded, Item, kept_samples, score_metrics, trouble_metrics
from ingot.evals.bases.judged import JudgedSuite, ask, judging, read_rating
from ingot.evals.bases.suite import Measured, Measuring, Subject
from ingot.evals.engine.prompt import Form
from ingot.evals.engine.request import Conversation, Generation, Question, Written
from ingot.evals.scores.scores import Metric, metric_of_units
from ingot.tokens.chat import Message
from ingot.workspace.errors import DataError

TEMPERATURES = {"writing": 0.7, "roleplay": 0.7, "stem": 0.1, "humanities": 0.1}
WITH_REFERENCE = ("math", "reasoning", "coding")
REFERENCES = ("mt_bench/reference*.jsonl*",)
TASK = (
    "Rate how helpful, relevant, correct, deep, creative and detailed the last ANSWER of the conversation is. Give your reasons "
    "in a few sentences, then the rating from 1 to 10 in this form: [[5]]"
)
WITH = "Compare it with the REFERENCE, which is right, and name mistakes first. "


class MtBench(JudgedSuite):
    """Two-turn questions, rated from 1 to 10 by a judge."""

    forms: ClassVar[tuple[Form, ...]] = ("chat",)
    local: ClassVar[tuple[str, ...]] = ("mt_bench/question*.jsonl*",)
    labels: ClassVar[Mapping[str, str]] = {"rating": "MT-bench, mean rating"}

    max_new_tokens: int = Field(1024, ge=1, description="tokens of an answer at most")
    references: tuple[str, ...] = Field((), description="files of reference answers, instead of the data folder's")

    @model_validator(mode="after")
    def _samples_differ(self) -> Self:
        if self.chosen("temperature"):
            raise ValueError("temperature: each category has its own, as in FastChat; leave it out")
        return self

    def items(self, subject: Subject) -> Sequence[Item]:
        known = self._references(subject)
        found = []
        for place, row in self.rows(subject):
            turns, category = need(row, "turns", list, place), need(row, "category", str, place)
            id = str(row.get("question_id", place))
            if len(turns) != 2:
                raise DataError(f"{len(turns)} turns", place=place, fix="give two")
            if category in WITH_REFERENCE and id not in known:
                raise DataError(f"{category} without a reference answer", place=place, fix="give `references`")
            references = known[id] if category in WITH_REFERENCE else ()
            data = {"turns": turns, "category": category, "references": references}
            found.append(Item(id, Question(turns[0]), data=data))
        return found

    def measure(self, subject: Subject) -> Measuring:
        bench = self.bench()
        items = [item for item in self.items(subject) for _ in range(self.samples)]
        opening = [self._request(item, item.prompt, number) for number, item in enumerate(items)]
        turns = [_turn(item, item.prompt, 1, "") for item in items]
        first = yield from judging(opening, turns, self.judged, bench, subject)
        talks = [_second(item, each.written) for item, each in zip(items, first, strict=True)]
        going_on = [self._request(item, talks[number], number) for number, item in enumerate(items)]
        turns = [_turn(item, talks[number], 2, first[number].written.text) for number, item in enumerate(items)]
        second = yield from judging(going_on, turns, self.judged, bench, subject)
        graded = [*first, *second]
        return Measured(list(self.judged_metrics(graded, bench.name)), kept_samples(self.short_name, graded))

    def judged(self, item: Item, answer: str, judge: Judge) -> Grade:
        said = [*item.data["before"], ("ANSWER", answer)]
        quoted = {f"{name} {number // 2 + 1}": text for number, (name, text) in enumerate(said)}
        references = {f"REFERENCE {number}": text for number, text in enumerate(item.data["references"], 1)}
        return Grade({"rating": ask(judge, (WITH if references else "") + TASK, quoted | references, read_rating)})

    def metrics(self, graded: Sequence[Graded]) -> Iterator[Metric]:
        (metric,) = score_metrics(self.short_name, graded, self.labels)
        yield metric
        for column in ("turn", "category"):
            for value in sorted({each.item.data[column] for each in graded}):
                members = {each.item.id for each in graded if each.item.data[column] == value}
                units = {id: rating for id, rating in metric.units.items() if id in members}
                name = f"turn_{value}" if column == "turn" else value
                if units:
                    yield metric_of_units(f"{self.short_name}/{name}", units, f"MT-bench, {column} {value}")
        yield from trouble_metrics(self.short_name, graded)

    def _request(self, item: Item, prompt: Question | Conversation, number: int) -> Generation:
        temperature = TEMPERATURES.get(item.data["category"], 0.0)
        return Generation(prompt, self.max_new_tokens, (), temperature, self.top_p, number % self.samples)

    def _references(self, subject: Subject) -> dict[str, tuple[str, ...]]:
        if self.references:
            rows = [row for file in self.references for row in read_rows(file)]
        else:
            rows = rows_of(REFERENCES, (), subject.data, suite=self.short_name)
        return {str(row["question_id"]): tuple(row["choices"][0]["turns"]) for _, row in rows}


def _second(item: Item, answer: Written) -> Conversation:
    first, second = item.data["turns"]
    return Conversation((Message("user", first), Message("assistant", answer.text), Message("user", second)))


def _turn(item: Item, prompt: Question | Conversation, turn: int, before: str) -> Item:
    """One answer as an item of its own: both turns of a question are one cluster."""
    first, second = item.data["turns"]
    said: list[tuple[str, str]] = [("QUESTION", first)]
    if turn == 2:
        said += [("ANSWER", before), ("QUESTION", second)]
    data: dict[str, Any] = {**item.data, "turn": turn, "before": said, "references": item.data["references"][:turn]}
    return replace(item, id=f"{item.id}/{turn}", prompt=prompt, data=data, cluster=item.id)
