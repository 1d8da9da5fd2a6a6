"""RULER: what a model still finds, follows and counts in a text of a given length (Hsieh et al. 2024, arXiv 2404.06654).

Thirteen tasks are made for each length in tokens of the model (evals/ruler/). The answer's beginning is given to the model; an
answer is scored by the references that it contains. Published numbers stand on Paul Graham's essays and on 500 samples a task:
with another text the scores are not comparable with them.

Samples of `qa_1` and `qa_2` about the same paragraph are one cluster.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal, get_args

from pydantic import Field, field_validator

from ingot.envs.rows import fingerprints, need
from ingot.evals.bases.file_suite import rows_of
from ingot.evals.bases.suite import Measured, Measuring, Subject, Suite
from ingot.evals.engine.prompt import chat_tokens
from ingot.evals.engine.request import Conversation, Generation, Question
from ingot.evals.scores.scores import Metric, Sample, metric_of_units, spread
from ingot.evals.suites.ruler.needles import Needles
from ingot.evals.suites.ruler.questions import read_library
from ingot.evals.suites.ruler.sample import PromptBudget, RulerSample
from ingot.evals.suites.ruler.score import any_contained, share_contained
from ingot.evals.suites.ruler.variables import Variables
from ingot.evals.suites.ruler.words import CommonWords, FrequentWords
from ingot.tokens.chat import ChatFormat, Message

TaskName = Literal[
    "niah_single_1",
    "niah_single_2",
    "niah_single_3",
    "niah_multikey_1",
    "niah_multikey_2",
    "niah_multikey_3",
    "niah_multivalue",
    "niah_multiquery",
    "vt",
    "cwe",
    "fwe",
    "qa_1",
    "qa_2",
]
NEEDLES: Mapping[str, Needles] = {
    "niah_single_1": Needles("noise"),
    "niah_single_2": Needles("essay"),
    "niah_single_3": Needles("essay", value_type="uuids"),
    "niah_multikey_1": Needles("essay", keys=4),
    "niah_multikey_2": Needles("needles"),
    "niah_multikey_3": Needles("needles", key_type="uuids", value_type="uuids"),
    "niah_multivalue": Needles("essay", values=4),
    "niah_multiquery": Needles("essay", keys=4, queries=4),
}
OTHERS: Mapping[str, Callable[[PromptBudget, int, int], list[RulerSample]]] = {
    "vt": Variables().samples,
    "cwe": CommonWords().samples,
    "fwe": FrequentWords().samples,
}
ANSWER_TOKENS = {**dict.fromkeys(NEEDLES, 128), "vt": 30, "cwe": 120, "fwe": 50, "qa_1": 32, "qa_2": 32}
ESSAYS = ("ruler/essays*.json*", "standard_ebooks/books*.jsonl*")
QUESTIONS = {
    "qa_1": (("ruler/squad*.jsonl*", "core_icl/squad_1000.jsonl*"), ("hf:rajpurkar/squad:plain_text:validation",)),
    "qa_2": (("ruler/hotpotqa*.jsonl*",), ("hf:hotpotqa/hotpot_qa:distractor:validation",)),
}


class Ruler(Suite):
    """RULER's 13 tasks (needles, variables, word counts, questions) at any length."""

    lengths: tuple[int, ...] = Field((4096,), min_length=1, description="tokens of prompt and answer, one score each")
    tasks: tuple[TaskName, ...] = Field(get_args(TaskName), min_length=1, description="which of the thirteen tasks")
    count: int = Field(500, ge=1, description="samples for each task and length; --limit cuts it")
    essays: tuple[str, ...] = Field(
        (),
        description="files with a column `text`: where needles are hidden; published numbers take Paul Graham's essays",
    )
    squad: tuple[str, ...] = Field((), description="files of questions for qa_1, in SQuAD's columns")
    hotpotqa: tuple[str, ...] = Field((), description="files of questions for qa_2, in HotpotQA's columns")
    seed: int = Field(42, description="of everything that is drawn; RULER's own is 42")

    @field_validator("lengths", "tasks")
    @classmethod
    def _distinct(cls, values: tuple[Any, ...]) -> tuple[Any, ...]:
        if len(set(values)) != len(values):
            raise ValueError("one of them stands there twice")
        return values

    def outside(self) -> dict[str, str]:
        """The texts and questions are part of what is measured."""
        return fingerprints((*self.essays, *self.squad, *self.hotpotqa))

    def measure(self, subject: Subject) -> Measuring:
        """`ruler/LENGTH` over all tasks and `ruler/TASK/LENGTH`, for every length."""
        asked = list(self.samples(subject))
        answers = yield [
            Generation(Question(each.sample.text, start=each.sample.start), max_new_tokens=ANSWER_TOKENS[each.task])
            for each in asked
        ]
        scored = [
            replace(each, text=answer.text, score=score_of(each.task)(answer.text, each.sample.answers))
            for each, answer in zip(asked, answers, strict=True)
        ]
        metrics = []
        for length in self.lengths:
            members = [each for each in scored if each.length == length]
            metrics.append(_metric(f"ruler/{length}", members, f"RULER at {length} tokens"))
            for task in self.tasks:
                own = [each for each in members if each.task == task]
                metrics.append(_metric(f"ruler/{task}/{length}", own, f"RULER {task} at {length} tokens"))
        return Measured(metrics, [each.kept() for each in spread(scored)])

    def samples(self, subject: Subject) -> Iterator[SampleResult]:
        """Everything that is asked."""
        count = min(self.count, subject.limit or self.count)
        makers = {task: self._maker(task, subject) for task in self.tasks}
        around = tokens_around(subject)
        tokenizer = subject.tokenizer
        for length in self.lengths:
            for task, make in makers.items():
                subject.stop.check()
                room = PromptBudget(length, ANSWER_TOKENS[task], lambda text: len(tokenizer.encode(text)), around)
                for number, sample in enumerate(make(room, count, self.seed)):
                    yield SampleResult(f"ruler-{task}-{length}-{number}", task, length, sample)

    def _maker(self, task: TaskName, subject: Subject) -> Callable[[PromptBudget, int, int], list[RulerSample]]:
        if task in QUESTIONS:
            given = self.squad if task == "qa_1" else self.hotpotqa
            files, hub = QUESTIONS[task]
            return read_library(rows_of(given or files, hub, subject.data, given=bool(given), suite="ruler")).samples
        if task in NEEDLES:
            needles = NEEDLES[task]
            return partial(needles.samples, essay=self._essay(subject)) if needles.reads_essay else needles.samples
        return OTHERS[task]

    def _essay(self, subject: Subject) -> list[str]:
        """The essays, word by word."""
        rows = rows_of(self.essays or ESSAYS, (), subject.data, given=bool(self.essays), suite="ruler")
        return re.sub(r"\s+", " ", "".join(need(row, "text", str, place) for place, row in rows)).split(" ")


@dataclass(frozen=True)
class SampleResult:
    """A sample, and what became of it."""

    id: str
    task: TaskName
    length: int
    sample: RulerSample
    text: str = ""
    score: float = 0.0

    def kept(self) -> Sample:
        """What of it people read."""
        expected = ", ".join(self.sample.answers)
        return Sample(self.id, f"ruler/{self.task}", self.sample.whole, self.text, expected, self.score == 1)


def score_of(task: str) -> Callable[[str, Sequence[str]], float]:
    """The rule by which answers of a task are scored."""
    return any_contained if task in QUESTIONS else share_contained


def tokens_around(subject: Subject) -> int:
    """Tokens of a prompt besides its question: what opens a text, or the turns of a conversation."""
    if subject.form == "text":
        return len(subject.tokenizer.opening)
    empty = Conversation((Message("user", ""),))
    return len(chat_tokens(ChatFormat(subject.tokenizer), empty, subject.thinking is not False))


def _metric(name: str, members: Sequence[SampleResult], label: str) -> Metric:
    units = {each.id: each.score for each in members}
    clusters = {each.id: f"{each.task}-{each.sample.cluster}" if each.sample.cluster else each.id for each in members}
    return metric_of_units(name, units, label, clusters=clusters)
