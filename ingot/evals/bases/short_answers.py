"""Short answers that a model writes, compared with the answers that are accepted.

    exact_match  equal to one of them, after SQuAD's clean-up: lower case, no punctuation, no articles, single spaces
    f1           the best overlap of words with one of them, after the same clean-up
    contains     one of them stands somewhere in the answer, in any case of letters

Measures of one set that differ from these stand with that set's suite.
"""

from __future__ import annotations

import re
import string
from abc import abstractmethod
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from pydantic import Field

from ingot.envs.rows import Row
from ingot.evals.bases.few_shot import Draw, FewShot
from ingot.evals.bases.file_suite import FileSuite, rows_of
from ingot.evals.bases.identity import digest, unique
from ingot.evals.bases.suite import Measured, Measuring, Subject
from ingot.evals.engine.request import Generation, Question
from ingot.evals.scores.scores import KEPT_SAMPLES, Sample, metric_of_units

ARTICLES = re.compile(r"\b(a|an|the)\b", re.UNICODE)
NO_PUNCTUATION = str.maketrans("", "", string.punctuation)
Measure = Callable[[str, Sequence[str]], float]  # of what was written, and what is accepted


def cleaned(text: str) -> str:
    """A text as SQuAD's measures compare it."""
    return " ".join(ARTICLES.sub(" ", text.lower().translate(NO_PUNCTUATION)).split())


def exact_match(written: str, accepted: Sequence[str]) -> float:
    """Whether it is one of them, after the clean-up."""
    return float(any(cleaned(written) == cleaned(answer) for answer in accepted))


def f1(written: str, accepted: Sequence[str]) -> float:
    """The best harmonic mean of precision and recall of words."""
    return max(_overlap(cleaned(written).split(), cleaned(answer).split()) for answer in accepted)


def _overlap(words: Sequence[str], expected: Sequence[str]) -> float:
    if not words or not expected:
        return float(words == expected)
    common = sum((Counter(words) & Counter(expected)).values())
    return 2 * common / (len(words) + len(expected))


def contains(written: str, accepted: Sequence[str]) -> float:
    """Whether one of them is somewhere in it."""
    return float(any(answer.lower() in written.lower() for answer in accepted))


@dataclass(frozen=True)
class Short:
    """A question and the answers that are accepted; the first is the one of a worked example."""

    text: str
    answers: tuple[str, ...]
    cluster: str = ""  # questions on one passage share it
    relation: str = ""  # what is asked about a thing, where a set has many questions of one kind


class ShortAnswerSuite(FileSuite):
    """A suite of questions with short answers: a subclass reads a row."""

    measures: ClassVar[Mapping[str, Measure]] = {"exact_match": exact_match, "f1": f1, "contains": contains}
    stop: ClassVar[tuple[str, ...]] = ("\n",)
    shot_hub: ClassVar[tuple[str, ...]] = ()
    shots: int = Field(0, ge=0, description="worked examples before each question")
    draw: Draw = Field(
        "random", description="worked examples: the first of their file, or random ones for each question"
    )
    shot_files: tuple[str, ...] = Field(
        (), description="files of worked examples; without any, other rows of the suite"
    )
    max_new_tokens: int = Field(48, ge=1, description="tokens of an answer at most")

    @abstractmethod
    def short(self, row: Row, place: str) -> Short:
        """The question of a row."""

    def measure(self, subject: Subject) -> Measuring:
        """Ask for every answer, and compare."""
        asked = [self.short(row, place) for place, row in self.rows(subject)]
        answers = yield [
            Generation(Question(each.text, shots=shots), max_new_tokens=self.max_new_tokens, stop=self.stop)
            for each, shots in zip(asked, self._shots(subject, asked), strict=True)
        ]
        ids = unique(digest(each.text) for each in asked)
        clusters = {name: each.cluster for name, each in zip(ids, asked, strict=True) if each.cluster}
        units = {
            measure: {
                name: value(answer.text, each.answers) for name, each, answer in zip(ids, asked, answers, strict=True)
            }
            for measure, value in self.measures.items()
        }
        kind = self.short_name
        first = units[next(iter(self.measures))]
        samples = [
            Sample(name, kind, each.text, answer.text, each.answers[0], first[name] == 1.0)
            for name, each, answer in list(zip(ids, asked, answers, strict=True))[:KEPT_SAMPLES]
        ]
        metrics = [
            metric_of_units(f"{kind}/{name}", found, f"{kind}, {name.replace('_', ' ')}", clusters=clusters)
            for name, found in units.items()
        ]
        return Measured(metrics, samples)

    def examples(self, asked: Sequence[Short], pool: Sequence[Short]) -> list[list[Short]]:
        """The worked examples of each question, out of a pool of questions."""
        draw = FewShot(pool, self.shots, self.draw, itself=not self.given_shots)
        return [draw(each) for each in asked]

    def _shots(self, subject: Subject, asked: Sequence[Short]) -> list[tuple[tuple[str, str], ...]]:
        if not self.shots:
            return [()] * len(asked)
        given, hub = self.given_shots or self.given, self.shot_hub or self.hub
        rows = rows_of(given or self.local, hub, subject.data, given=bool(given), suite=self.short_name)
        examples = self.examples(asked, [self.short(row, place) for place, row in rows])
        return [tuple((example.text, example.answers[0]) for example in each) for each in examples]
