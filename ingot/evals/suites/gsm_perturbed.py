"""GSM8K's problems and variants of them made by rule (perturb.py): what a model has learned by heart does not survive.

Variants of one problem are one cluster. Besides each kind by itself and all together, `consistent` is the share of problems
that are solved in every variant. `original` are the problems as they were, to compare with.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar

from pydantic import Field

from ingot.envs.rows import need
from ingot.envs.tasks.gsm8k import Gsm8k
from ingot.evals.bases.generations import Grade, Graded, Item, score_metrics, trouble_metrics
from ingot.evals.bases.identity import text_ids
from ingot.evals.bases.suite import Subject
from ingot.evals.bases.word_problems import WordProblems
from ingot.evals.perturb import Variant, variants
from ingot.evals.scores.scores import Metric, metric_of_units

ENVIRONMENT = Gsm8k()  # whose rows are read
ORIGINAL = "original"
KINDS = {
    ORIGINAL: "as they were",
    "numbers": "other numbers",
    "spelled": "numbers in words",
    "distractor": "a useless sentence more",
    "wording": "in other words",
}


class GsmPerturbed(WordProblems):
    """GSM8K with other numbers, numbers in words, distractors and other wording."""

    local: ClassVar[tuple[str, ...]] = ("gsm8k/test*.jsonl*", "gsm8k/test*.parquet")
    hub: ClassVar[tuple[str, ...]] = ("hf:openai/gsm8k:main:test",)
    labels: ClassVar[Mapping[str, str]] = {"accuracy": "GSM8K, perturbed, all variants"}

    kinds: tuple[str, ...] = Field(
        tuple(KINDS), description="variants: original, numbers, spelled, distractor, wording"
    )

    def items(self, subject: Subject) -> Sequence[Item]:
        rows = self.rows(subject)
        questions = [need(row, "question", str, place) for place, row in rows]
        found: list[tuple[str, Variant]] = []
        for id, question, (place, row) in zip(text_ids(questions), questions, rows, strict=True):
            _, answer, _ = ENVIRONMENT.problem(row, place)
            made = variants(question, row["answer"].rpartition("####")[0], answer, random.Random(id))
            found += [(id, one) for one in (Variant(ORIGINAL, question, answer), *made) if one.kind in self.kinds]
        prompts = self.prompts([{"question": one.question} for _, one in found], subject)
        return [
            Item(f"{id}/{one.kind}", prompt, one.answer, {"kind": one.kind}, cluster=id)
            for (id, one), prompt in zip(found, prompts, strict=True)
        ]

    def grade(self, item: Item, answer: str) -> Grade:
        grade = super().grade(item, answer)
        return Grade({"accuracy": grade.scores["verified"]}, grade.vote)

    def metrics(self, graded: Sequence[Graded]) -> Iterator[Metric]:
        yield from score_metrics(self.short_name, graded, self.labels)
        for kind in self.kinds:
            members = [each for each in graded if each.item.data["kind"] == kind and each.grade is not None]
            if members:
                (metric,) = score_metrics(self.short_name, members, {"accuracy": f"GSM8K, {KINDS[kind]}"})
                yield metric_of_units(f"{self.short_name}/{kind}", metric.units, metric.label)
        every: dict[str, float] = {}
        for each in graded:
            if each.grade is not None:
                every[each.item.cluster] = min(every.get(each.item.cluster, 1.0), each.grade.scores["accuracy"])
        yield metric_of_units(f"{self.short_name}/consistent", every, "GSM8K, problems solved in every variant")
        yield from trouble_metrics(self.short_name, graded)
