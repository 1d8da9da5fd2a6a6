"""Questions with choices, answered by likelihood: the choice that the model finds likeliest.

    raw            log p(choice | question)                             the harness's acc
    character      log p / characters of the choice                     its acc_norm
    byte           log p / UTF-8 bytes of the choice                    its acc_bytes
    token          log p / tokens of the choice                         lighteval's
    unconditional  log p(choice | question) - log p(choice | nothing)   its acc_mutual_info; twice the requests
    gold           no accuracy: bits per byte of the right choice       a smooth score, for models that are near chance

Lengths are those of the choice without the delimiter before it; among equals the first choice counts. A choice is either a
letter, after a question that lists the choices (`letters`), or the text itself (`cloze`), which is what small models can do.
Most sets put the choices after one question; some (WinoGrande) put them before one shared ending: `Item.contexts`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from ingot.envs.rows import Row, need
from ingot.evals.bases.identity import digest, unique
from ingot.evals.engine.request import Likelihood, Likely, Question
from ingot.evals.scores.scores import KEPT_SAMPLES, Metric, Sample, metric_of_units
from ingot.workspace.errors import DataError

Score = Literal["raw", "token", "byte", "character", "unconditional", "gold"]
LABELS: dict[Score, tuple[str, str]] = {
    "raw": ("accuracy", "accuracy"),
    "token": ("accuracy_by_token", "accuracy, likelihood by token"),
    "byte": ("accuracy_by_byte", "accuracy, likelihood by byte"),
    "character": ("accuracy_by_character", "accuracy, likelihood by character"),
    "unconditional": ("accuracy_unconditional", "accuracy, over the choice's own likelihood"),
    "gold": ("gold_bits_per_byte", "bits per byte of the right choice"),
}
HARNESS: dict[Score, str] = {  # what the LM evaluation harness calls them
    "raw": "acc",
    "byte": "acc_bytes",
    "character": "acc_norm",
    "unconditional": "acc_mutual_info",
}
LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


@dataclass(frozen=True)
class Item:
    """A question with its choices."""

    text: str  # what stands before a choice
    choices: tuple[str, ...]
    gold: int  # the right one
    contexts: tuple[str, ...] = ()  # instead of `text`, one for each choice
    description: str = ""  # before everything
    delimiter: str = " "  # between a question and its answer
    group: str = ""  # a part of the suite, such as MMLU's subjects
    cluster: str = ""  # items of one passage share it: they are not independent
    pool: str = ""  # its worked examples are rows of the same name
    also_gold: tuple[int, ...] = ()  # other right choices
    question: str = ""  # what is asked, without anything around it: for answers that are written (exam_suite.py)
    options: tuple[str, ...] = ()  # the texts of the choices, where `choices` are letters

    def context(self, number: int) -> str:
        """What stands before this choice."""
        return self.contexts[number] if self.contexts else self.text

    @property
    def shot(self) -> tuple[str, str]:
        """The question with its answer, as a worked example."""
        return self.context(self.gold), self.choices[self.gold]


def lettered(choices: Sequence[str], form: str = "{letter}. {choice}") -> str:
    """Choices one a line, each with its letter."""
    return "\n".join(form.format(letter=LETTERS[number], choice=choice) for number, choice in enumerate(choices))


def gold_index(answer: Any, count: int, place: str) -> int:
    """The number of the right choice, of a number or a letter."""
    if isinstance(answer, str) and len(answer.strip()) == 1 and answer.strip().upper() in LETTERS[:count]:
        return LETTERS.index(answer.strip().upper())
    try:
        number = int(answer)
    except (TypeError, ValueError):
        number = -1
    if not 0 <= number < count:
        raise DataError(
            f"the right choice is {answer!r}, and there are {count} choices",
            place=place,
            fix="give 0 or A for the first",
        )
    return number


def labelled_choices(row: Row, place: str) -> tuple[tuple[str, ...], int]:
    """The choices {text, label} of a row as the hub has them, and the number of the one that `answerKey` names."""
    choices, key = need(row, "choices", dict, place), need(row, "answerKey", str, place).strip()
    texts, labels = (tuple(map(str, need(choices, column, list, place))) for column in ("text", "label"))
    if len(texts) != len(labels) or key not in labels:
        raise DataError(
            f"the right choice is {key!r}, and {len(texts)} choices have the labels {', '.join(labels)}",
            place=place,
            fix="give as many labels as texts, and one of them as answerKey",
        )
    return texts, labels.index(key)


def ask_choices(items: Sequence[Item], shots: Sequence[Sequence[Item]]) -> list[Likelihood]:
    """The requests for every choice of every item."""
    return [
        Likelihood(
            Question(
                item.context(number),
                shots=tuple(example.shot for example in examples),
                description=item.description,
                delimiter=item.delimiter,
            ),
            choice,
        )
        for item, examples in zip(items, shots, strict=True)
        for number, choice in enumerate(item.choices)
    ]


def ask_alone(items: Sequence[Item]) -> list[Likelihood]:
    """The requests for every choice after nothing."""
    return [Likelihood(Question("", delimiter=item.delimiter), choice) for item in items for choice in item.choices]


def by_item(items: Sequence[Item], answers: Iterable[Likely]) -> list[list[Likely]]:
    """The answers of each item's choices."""
    remaining = iter(answers)
    return [[next(remaining) for _ in item.choices] for item in items]


@dataclass(frozen=True)
class ItemLikelihoods:
    """An item with the likelihoods of its choices; `alone`: those after nothing."""

    id: str
    item: Item
    likely: Sequence[Likely]
    alone: Sequence[Likely] | None = None

    def values(self, score: Score) -> list[float]:
        """What the choices are ranked by."""
        logprobs, choices = [each.logprob for each in self.likely], self.item.choices
        match score:
            case "token":
                sizes = [each.tokens for each in self.likely]
            case "byte":
                sizes = [len(choice.encode("utf-8")) for choice in choices]
            case "character":
                sizes = [len(choice) for choice in choices]
            case "unconditional":
                assert self.alone is not None
                return [value - other.logprob for value, other in zip(logprobs, self.alone, strict=True)]
            case _:
                return logprobs
        return [value / max(1, size) for value, size in zip(logprobs, sizes, strict=True)]

    def unit(self, score: Score) -> float:
        """Whether the choice that is ranked first is right; or the bits per byte of the right one."""
        item = self.item
        if score == "gold":
            return -self.likely[item.gold].logprob / math.log(2) / max(1, len(item.choices[item.gold].encode("utf-8")))
        pick = picked(self.values(score))
        return float(pick == item.gold or pick in item.also_gold)


def picked(values: Sequence[float]) -> int:
    """The first of the largest."""
    return max(range(len(values)), key=values.__getitem__)


def choice_metrics(
    name: str, answered: Sequence[ItemLikelihoods], scores: Sequence[Score], group: str = ""
) -> list[Metric]:
    """A metric for each score; `group` names the part of the suite, if it is not the whole."""
    items = [each.item for each in answered]
    chance = chance_of(items)
    clusters = {each.id: each.item.cluster for each in answered if each.item.cluster}
    ending = f"/{group}" if group else ""
    return [
        metric_of_units(
            f"{name}/{LABELS[score][0]}{ending}",
            {each.id: each.unit(score) for each in answered},
            f"{name}{ending}, {LABELS[score][1]}",
            higher_is_better=score != "gold",
            clusters=clusters,
            chance=None if score == "gold" else chance,
            also=HARNESS.get(score, ""),
        )
        for score in scores
    ]


def chance_of(items: Sequence[Item]) -> float:
    """How often a guess is right."""
    return math.fsum((1 + len(item.also_gold)) / len(item.choices) for item in items) / len(items)


def item_ids(items: Sequence[Item]) -> list[str]:
    """The ids of items: by what they ask."""
    return unique(digest(item.group, item.text, *item.contexts, *item.choices) for item in items)


def choice_samples(
    kind: str, items: Sequence[Item], ids: Sequence[str], likely: Sequence[Sequence[Likely]]
) -> list[Sample]:
    """What the raw likelihood picks."""
    samples = []
    for name, item, answers in list(zip(ids, items, likely, strict=True))[:KEPT_SAMPLES]:
        pick = picked([each.logprob for each in answers])
        expected = item.context(item.gold) if item.contexts else item.choices[item.gold]
        right = pick == item.gold or pick in item.also_gold
        samples.append(Sample(name, kind, item.context(pick), item.choices[pick], expected, right))
    return samples
