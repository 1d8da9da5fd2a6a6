"""Suites in which the model writes: ask, grade each answer, and what several answers to one question say together.

    avg@k     mean over the k answers to a question, then over questions; the metrics without a k in their names
    pass@k    chance that at least one of k answers is right; unbiased, as is
    pass^k    chance that all k are right (statistics.py)
    cons@k    whether the answer that most of the k give is right: among equally frequent ones the first that was given,
              as the LM evaluation harness votes; an answer from which nothing could be read has no vote

An answer that could not be graded (the sandbox or a verifier failed, the server gave none) is neither right nor wrong: it is
left out, and the share of such answers is the metric `failed`. Answers that ended at the token limit are graded as they are;
their share is the metric `cut`. Both are there only if there is something to say.
"""

from __future__ import annotations

from abc import abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

from pydantic import Field, model_validator

from ingot.envs.errors import EnvironmentFailed
from ingot.evals.bases.file_suite import FileSuite
from ingot.evals.bases.suite import Measured, Measuring, Subject, check_top_p
from ingot.evals.engine.prompt import as_text
from ingot.evals.engine.request import Conversation, Generation, Question, Worked, Written
from ingot.evals.scores.scores import KEPT_SAMPLES, Metric, Sample, metric_of_units
from ingot.evals.scores.statistics import pass_at_k, pass_hat_k
from ingot.workspace.errors import CheckFailed, DataError

UNANSWERED = ("error", "deadline")  # ways in which an answer ends that say nothing about the model


@dataclass(frozen=True)
class Item:
    """One question of a suite, and what its grader needs. Items of one `cluster` are not independent of each other."""

    id: str
    prompt: Question | Conversation
    expected: str = ""
    data: Mapping[str, Any] = field(default_factory=dict)
    cluster: str = ""


@dataclass(frozen=True)
class Grade:
    """Scores of one answer by the metric's name, the most telling first; and what it votes for in cons@k."""

    scores: Mapping[str, float]
    vote: str | None = None


@dataclass(frozen=True)
class Graded:
    """An answer with its grade; None if it could not be graded, for the reason in `problem`, against which `fix` helps."""

    item: Item
    written: Written
    grade: Grade | None
    problem: str = ""
    fix: str = ""


class WrittenSuite(FileSuite):
    """A suite whose answers are written: how they are sampled, and what is made of their grades."""

    labels: ClassVar[Mapping[str, str]] = {}  # of its scores, as people read them; the first is the most telling
    votes: ClassVar[bool] = False  # whether answers can be counted: cons@k

    samples: int = Field(1, ge=1, description="answers to each question (the k of avg@k and pass@k)")
    temperature: float = Field(0.0, ge=0, description="sampling temperature; 0 is greedy")
    top_p: float = Field(1.0, gt=0, le=1, description="nucleus sampling")
    max_new_tokens: int = Field(256, ge=1, description="tokens of an answer at most")

    @model_validator(mode="after")
    def _samples_differ(self) -> Self:
        if self.samples > 1 and self.temperature == 0:
            raise ValueError("several samples need a temperature above 0: greedy samples are all the same")
        check_top_p(self, self.temperature)
        return self

    @abstractmethod
    def items(self, subject: Subject) -> Sequence[Item]:
        """The questions."""

    def requests(self, items: Sequence[Item], subject: Subject) -> list[Generation]:
        """As many answers to each question as there are samples."""
        stops = self.stops(subject)
        return [
            Generation(item.prompt, self.max_new_tokens, stops, self.temperature, self.top_p, sample)
            for item in items
            for sample in range(self.samples)
        ]

    def stops(self, subject: Subject) -> tuple[str, ...]:
        """Texts that end an answer, besides the end of a turn."""
        return ()

    def metrics(self, graded: Sequence[Graded]) -> Iterator[Metric]:
        """Every score over all questions, and what k answers to a question say."""
        yield from score_metrics(self.short_name, graded, self.labels)
        if self.samples > 1:
            yield from several_metrics(self.short_name, graded, self.votes)
        yield from trouble_metrics(self.short_name, graded)


class GeneratedSuite(WrittenSuite):
    """A suite whose answers are graded one by one."""

    graders: ClassVar[int] = (
        1  # answers that are graded at once: more than one where a grader waits for other processes
    )

    @abstractmethod
    def grade(self, item: Item, answer: str) -> Grade:
        """The grade of one answer; a VerifierError if that cannot be found out."""

    def measure(self, subject: Subject) -> Measuring:
        """Ask, grade and count."""
        items = self.items(subject)
        asked = [item for item in items for _ in range(self.samples)]
        graded: list[Graded] = list((yield grading(self.requests(items, subject), asked, self.grade, self.graders)))
        return Measured(list(self.metrics(graded)), kept_samples(self.short_name, graded))


def grading(
    requests: Sequence[Generation], items: Sequence[Item], grade: Callable[[Item, str], Grade], graders: int = 1
) -> Worked:
    """Requests that are answered by grades: each answer is graded as it comes, `graders` of them at once."""
    return Worked(requests, lambda number, written: graded_answer(items[number], written, grade), graders)


def graded_answer(item: Item, written: Written, grade: Callable[[Item, str], Grade]) -> Graded:
    """An answer with its grade, or with the reason why it has none."""
    if written.finish in UNANSWERED:
        return Graded(item, written, None, f"the model gave no answer: {written.finish}")
    try:
        return Graded(item, written, grade(item, written.text))
    except EnvironmentFailed as error:
        return Graded(item, written, None, error.problem, error.fix or "")


def score_metrics(suite: str, graded: Sequence[Graded], labels: Mapping[str, str]) -> Iterator[Metric]:
    """The mean of every score: over the answers to a question, then over questions."""
    by_item = grades_by_item(suite, graded)
    clusters = {each.item.id: each.item.cluster for each in graded if each.item.cluster}
    for name, label in labels.items():
        units = {
            id: sum(grade.scores[name] for grade in grades) / len(grades)
            for id, grades in by_item.items()
            if name in grades[0].scores
        }
        if units:
            belong = {id: clusters[id] for id in units if id in clusters}
            yield metric_of_units(f"{suite}/{name}", units, label, clusters=belong)


def several_metrics(suite: str, graded: Sequence[Graded], votes: bool) -> Iterator[Metric]:
    """pass@k and pass^k of the first score, and cons@k; k is what every question has at least."""
    by_item = grades_by_item(suite, graded)
    k = min(map(len, by_item.values()))
    if k < 2:
        return
    at, hat, agreed = {}, {}, {}
    for id, grades in by_item.items():
        right = [next(iter(grade.scores.values())) for grade in grades]
        at[id] = pass_at_k(len(right), round(sum(right)), k)
        hat[id] = pass_hat_k(len(right), round(sum(right)), k)
        agreed[id] = consensus(grades)
    yield metric_of_units(f"{suite}/pass@{k}", at, f"At least one of {k} right, {suite}")
    yield metric_of_units(f"{suite}/pass^{k}", hat, f"All of {k} right, {suite}")
    if votes:
        yield metric_of_units(f"{suite}/cons@{k}", agreed, f"Most frequent answer of {k} right, {suite}")


def consensus(grades: Sequence[Grade]) -> float:
    """The score of the most frequent vote; of equally frequent ones the first that was given."""
    voting = [grade for grade in grades if grade.vote is not None]
    if not voting:
        return 0.0
    ((winner, _),) = Counter(grade.vote for grade in voting).most_common(1)
    chosen = next(grade for grade in voting if grade.vote == winner)
    return next(iter(chosen.scores.values()))


def trouble_metrics(suite: str, graded: Sequence[Graded]) -> Iterator[Metric]:
    """How many answers could not be graded, and how many were cut at the token limit."""
    failed = {f"{each.item.id}/{number}": float(each.grade is None) for number, each in enumerate(graded)}
    if any(failed.values()):
        problem = next(each.problem for each in graded if each.grade is None)
        yield metric_of_units(f"{suite}/failed", failed, f"Not graded ({problem}), {suite}", higher_is_better=False)
    cut = {f"{each.item.id}/{number}": float(each.written.finish == "length") for number, each in enumerate(graded)}
    if any(cut.values()):
        yield metric_of_units(f"{suite}/cut", cut, f"Ended at the token limit, {suite}", higher_is_better=False)


def kept_samples(suite: str, graded: Sequence[Graded], most: int = KEPT_SAMPLES) -> list[Sample]:
    """The first answer to each of the first questions: the same questions for every model."""
    kept: dict[str, Graded] = {}
    for each in graded:
        if len(kept) < most:
            kept.setdefault(each.item.id, each)
    return [
        Sample(id, suite, prompt_text(each.item.prompt), each.written.text, each.item.expected, _is_right(each.grade))
        for id, each in kept.items()
    ]


def _is_right(grade: Grade | None) -> bool:
    return grade is not None and next(iter(grade.scores.values()), 0.0) == 1.0


def prompt_text(prompt: Question | Conversation) -> str:
    """A prompt for people to read."""
    if isinstance(prompt, Question):
        return as_text(prompt)
    return "\n\n".join(f"{message.role}: {message.content}" for message in prompt.messages)


def grades_by_item(suite: str, graded: Sequence[Graded]) -> dict[str, list[Grade]]:
    """The grades of every question that has any."""
    if not graded:
        raise DataError("there are no questions", place=f"suite {suite}", fix="give files with rows")
    found: dict[str, list[Grade]] = {}
    for each in graded:
        if each.grade is not None:
            found.setdefault(each.item.id, []).append(each.grade)
    if not found:
        raise CheckFailed(
            f"no answer could be graded: {graded[0].problem}",
            place=f"suite {suite}",
            fix=f"{graded[0].fix or 'put that right'}; it says nothing about the model",
        )
    return found
