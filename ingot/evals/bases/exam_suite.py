"""The base of exams: questions with choices whose answer is the likeliest choice, or one that the model writes.

    {suite: mmlu}                                                       the likeliest letter, for base models
    {suite: mmlu, answer: written}                                      zero-shot chain of thought, for chat models
    {suite: gpqa, answer: written, samples: 8, temperature: 0.6, max_new_tokens: 16384}

A written choice is asked for and found as written_choice.py says. An answer that names no choice is wrong; the share of such
answers is the metric `no_answer`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal, Self

from pydantic import Field, model_validator

from ingot.evals.bases import generations
from ingot.evals.bases.choice_suite import ChoiceSuite
from ingot.evals.bases.choices import LETTERS, Item, chance_of, item_ids
from ingot.evals.bases.generations import Grade, Graded, grading, kept_samples, several_metrics, trouble_metrics
from ingot.evals.bases.suite import Measured, Measuring, Subject, check_top_p
from ingot.evals.bases.written_choice import ask_for_letter, written_choice
from ingot.evals.engine.request import Generation, Question
from ingot.evals.scores.scores import Metric, metric_of_units

OF_LIKELY = ("scores", "draw", "shot_files")  # and worked examples
OF_WRITTEN = ("samples", "temperature", "top_p", "max_new_tokens")
RIGHT, SILENT = "accuracy_written", "no_answer"


class ExamSuite(ChoiceSuite):
    """A suite of exam questions; its items have a `question` without anything around it."""

    answer: Literal["likely", "written"] = Field(
        "likely",
        description="the likeliest choice; or the one that the model writes after thinking, without worked examples",
    )
    samples: int = Field(1, ge=1, description="written answers to each question (the k of avg@k and pass@k)")
    temperature: float = Field(0.0, ge=0, description="sampling temperature of written answers; 0 is greedy")
    top_p: float = Field(1.0, gt=0, le=1, description="nucleus sampling of written answers")
    max_new_tokens: int = Field(2048, ge=1, description="tokens of a written answer at most")

    @model_validator(mode="after")
    def _options_fit(self) -> Self:
        given = self.chosen(*(OF_WRITTEN if self.answer == "likely" else OF_LIKELY))
        if self.answer == "written":
            if "shots" in self.model_fields_set and self.shots:
                given = ["shots", *given]
            self.__dict__["shots"] = 0  # frozen, but it is still being made; recipe.yaml says what is done
        if given:
            other = "written" if self.answer == "likely" else "likely"
            raise ValueError(f"{', '.join(given)}: only with answer: {other}")
        if self.samples > 1 and self.temperature == 0:
            raise ValueError("several samples need a temperature above 0: greedy samples are all the same")
        check_top_p(self, self.temperature)
        return self

    def measure(self, subject: Subject) -> Measuring:
        """Likelihoods of choices; or written answers, graded and counted."""
        if self.answer == "likely":
            return (yield from super().measure(subject))
        exam = dict(zip(item_ids(items := self.items(subject)), items, strict=True))
        asked = [_as_written(id, item) for id, item in exam.items() for _ in range(self.samples)]
        requests = [
            Generation(item.prompt, self.max_new_tokens, (), self.temperature, self.top_p, number % self.samples)
            for number, item in enumerate(asked)
        ]
        graded: list[Graded] = list((yield grading(requests, asked, lambda item, text: grade(exam[item.id], text))))
        return Measured(list(self._metrics(exam, graded)), kept_samples(self.metric_prefix, graded))

    def _metrics(self, exam: dict[str, Item], graded: Sequence[Graded]) -> Iterator[Metric]:
        name = self.metric_prefix
        yield from self._means(exam, graded)
        if self.samples > 1:
            yield from several_metrics(name, graded, votes=True)
        yield from trouble_metrics(name, graded)
        if self.by_group:
            for group in sorted({item.group for item in exam.values()}):
                members = [each for each in graded if exam[each.item.id].group == group]
                if any(each.grade for each in members):
                    yield from self._means(exam, members, f"/{group}")

    def _means(self, exam: dict[str, Item], graded: Sequence[Graded], ending: str = "") -> Iterator[Metric]:
        name, by_item = self.metric_prefix, generations.grades_by_item(self.short_name, graded)
        clusters = {id: exam[id].cluster for id in by_item if exam[id].cluster}
        for score, label in ((RIGHT, "accuracy, written"), (SILENT, "no choice written")):
            units = {id: sum(grade.scores[score] for grade in grades) / len(grades) for id, grades in by_item.items()}
            yield metric_of_units(
                f"{name}/{score}{ending}",
                units,
                f"{name}{ending}, {label}",
                higher_is_better=score == RIGHT,
                clusters=clusters,
                chance=chance_of([exam[id] for id in by_item]) if score == RIGHT else None,
            )


def grade(item: Item, text: str) -> Grade:
    """Whether the choice that was written is right, and whether there is one."""
    pick = written_choice(text, len(item.choices))
    right = pick is not None and (pick == item.gold or pick in item.also_gold)
    return Grade({RIGHT: float(right), SILENT: float(pick is None)}, None if pick is None else LETTERS[pick])


def _as_written(id: str, item: Item) -> generations.Item:
    prompt = Question(ask_for_letter(item.question, item.options or item.choices))
    return generations.Item(id, prompt, expected=LETTERS[item.gold], cluster=item.cluster)
