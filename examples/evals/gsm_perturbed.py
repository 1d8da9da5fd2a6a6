"""GSM8K's problems and variants of them made by rule, as GSM-Plus has them (Li et al. 2024, arXiv 2402.19255).

    ingot eval MODEL --suite examples/evals/gsm_perturbed.py:GsmPerturbed

    original     the problem as it was
    numbers      other numbers, and the answer computed anew from the solution's own arithmetic
    spelled      the same numbers in words
    distractor   one more sentence, true and of no use
    wording      the question in a frame of other words

GSM8K's solutions mark what was computed: <<48/2=24>>. A number of the question may change if only marks depend on it: each
operand of every mark must be a number of the question, a result of an earlier mark or a constant (7 days, "twice"), and only one
of these. Then the marks are replayed with the new numbers, in fractions. A variant is kept if all results are as
whole and as positive as they were; a problem without such a variant has the others only.

What a model has learned by heart does not survive. Variants of one problem are one cluster; `consistent` is the share of problems
that are solved in every variant.
"""

from __future__ import annotations

import ast
import random
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from itertools import pairwise
from typing import Any, ClassVar

from pydantic import Field

from ingot.envs.rows import need
from ingot.envs.tasks.gsm8k import Gsm8k
from ingot.evals.bases.generations import Grade, Graded, Item, score_metrics, trouble_metrics
from ingot.evals.bases.identity import text_ids
from ingot.evals.bases.suite import Subject
from ingot.evals.bases.word_problems import WordProblems
from ingot.evals.scores.scores import Metric, metric_of_units

SMALL = (
    *("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"),
    *("ten", "eleven", "twelve", "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen"),
)
TENS = ("", "", "twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")


def words(number: int) -> str:
    """A number below 1,000 in English words."""
    if number < 20:
        return SMALL[number]
    if number < 100:
        return TENS[number // 10] + (f"-{SMALL[number % 10]}" if number % 10 else "")
    rest = f" and {words(number % 100)}" if number % 100 else ""
    return f"{SMALL[number // 100]} hundred{rest}"


SPELLED = {words(number): number for number in range(100)}
WORD = re.compile(rf"\b(?:{'|'.join(sorted(SPELLED, key=len, reverse=True))})\b", re.IGNORECASE)


def spelled_numbers(text: str) -> set[int]:
    """The numbers below 100 that a text has in words."""
    return {SPELLED[word.lower()] for word in WORD.findall(text)}


MARK = re.compile(r"<<([^<>=]+)=([^<>=]+)>>")
NUMBER = re.compile(r"(?<![\w.,:/-])\$?(\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?(?![\w:/%]|[.,]\d|-\d| ?percent|,\d)")
WRITTEN = re.compile(r"(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?")
SMALLEST = 6  # smaller numbers often count what the question lists
CONSTANTS = frozenset({1, 7, 12, 24, 30, 31, 52, 60, 100, 365, 1000})  # days, months, minutes, percent
SAID = {
    2: "half|halv|twice|doubl|pair|both|couple",
    3: "tripl|thrice|third",
    4: "quarter|fourth",
    5: "fifth",
    10: "tenth",
}
LARGEST = 10**6
TRIES = 40
DISTRACTORS = (
    "A neighbor had painted a fence with {} boards the summer before.",
    "The local library owns {} books about birds.",
    "On the same street there is a house with {} windows.",
    "A cousin once read a story that was {} pages long.",
    "In another town, {} people visited a museum that week.",
    "A radio in the background played {} songs in the meantime.",
)
FRAMES = (
    "Read the following and work out what is asked at the end. {}",
    "{} Give the number that answers this.",
    "Here is what is known, and then a question: {}",
    "A teacher puts this to the class. {} What should they answer?",
)


@dataclass(frozen=True)
class Variant:
    """A problem that was changed, with its answer."""

    kind: str
    question: str
    answer: str


@dataclass(frozen=True)
class Step:
    """One mark: an expression, its result as the solution states it, and whether it is that."""

    tree: ast.expr
    operands: tuple[Fraction, ...]
    result: Fraction
    exact: bool


def variants(question: str, solution: str, answer: str, rng: random.Random) -> Iterator[Variant]:
    """All variants that the rules can make of a problem."""
    if changed := with_other_numbers(question, solution, answer, rng):
        yield Variant("numbers", *changed)
    if (spelled := in_words(question)) != question:
        yield Variant("spelled", spelled, answer)
    yield Variant("distractor", _insert(question, rng.choice(DISTRACTORS).format(rng.randint(13, 97))), answer)
    yield Variant("wording", rng.choice(FRAMES).format(question), answer)


def with_other_numbers(question: str, solution: str, answer: str, rng: random.Random) -> tuple[str, str] | None:
    """The question with other numbers, and the answer to it; None if the rules cannot be sure of one."""
    steps, given = read_steps(solution), numbers_of(question)
    if not steps or steps[-1].result != _value(answer) or replay(steps, {}) != _value(answer):
        return None
    movable = movable_numbers(question, steps, given)
    if not movable:
        return None
    for _ in range(TRIES):
        new = {number: _another(number, rng) for number in movable}
        if not _same_order([*given.values()], new):
            continue  # what was more must not become less, nor equal
        found = replay(steps, new)
        if found is not None:
            changed = NUMBER.sub(partial(_replaced, new=new), question)
            return changed, str(found)
    return None


def read_steps(solution: str) -> list[Step] | None:
    """The marks of a solution; None if one is no arithmetic."""
    steps = []
    for expression, result in MARK.findall(solution):
        try:
            tree = ast.parse(expression.replace(",", "").strip().lstrip("+"), mode="eval").body
            operands = tuple(_exact(node) for node in ast.walk(tree) if isinstance(node, ast.Constant))
            steps.append(Step(tree, operands, _value(result), _evaluate(tree, {}) == _value(result)))
        except (SyntaxError, ValueError, ZeroDivisionError):
            return None
    return steps


def numbers_of(question: str) -> dict[int, int]:
    """Whole numbers of a question that stand alone, by where they begin."""
    return {match.start(): int(match[1].replace(",", "")) for match in NUMBER.finditer(question) if "." not in match[0]}


def movable_numbers(question: str, steps: Sequence[Step], given: Mapping[int, int]) -> list[int]:
    """The numbers of a question that may change; none if it is not certain where each operand comes from."""
    values, results = list(given.values()), set[Fraction]()
    written = [_value(text) for text in WRITTEN.findall(question)]
    said = spelled_numbers(question)
    said |= {number for number, parts in SAID.items() if re.search(rf"\b({parts})", question, re.IGNORECASE)}
    fixed = {*CONSTANTS, *said, *(number for number in written if number not in values)}
    used: set[int] = set()
    for step in steps:
        for operand in step.operands:
            if [operand in results, operand in values, operand in fixed].count(True) != 1:
                return []
            if operand in values:
                used.add(int(operand))
                if step.operands.count(operand) > 1:
                    return []  # 5 classes on 5 days
        if step.result in results:
            return []
        results.add(step.result)
    operands = {operand for step in steps for operand in step.operands}
    if any(step.result not in operands for step in steps[:-1]):
        return []  # a result that no mark uses: there is a step without a mark
    return sorted(number for number in used if number >= SMALLEST and written.count(Fraction(number)) == 1)


def replay(steps: Sequence[Step], new: Mapping[int, int]) -> Fraction | None:
    """The last result with other numbers; None if a result is wrong, or not as whole and positive as it was."""
    values: dict[Fraction, Fraction] = {Fraction(old): Fraction(number) for old, number in new.items()}
    result = None
    for step in steps:
        try:
            result = _evaluate(step.tree, values)
        except (ZeroDivisionError, ValueError):
            return None
        whole = step.result.denominator != 1 or result.denominator == 1
        if not step.exact or not whole or (result <= 0 < step.result) or result > LARGEST:
            return None
        values[step.result] = result
    return result


def in_words(question: str) -> str:
    """The question with its whole numbers below 1,000 in words; amounts of money stay."""

    def spell(match: re.Match[str]) -> str:
        plain = match[0].isdigit() and len(match[0]) <= 3 and not match[0].startswith("0")
        text = words(int(match[0])) if plain else match[0]
        return text.capitalize() if plain and match.start() == 0 else text

    return NUMBER.sub(spell, question)


def _evaluate(node: ast.expr, values: Mapping[Fraction, Fraction]) -> Fraction:
    match node:
        case ast.Constant():
            number: Any = node.value
            return values.get(number, number)
        case ast.UnaryOp(op=ast.USub(), operand=inner):
            return -_evaluate(inner, values)
        case ast.BinOp(left=left, op=operator, right=right):
            one, other = _evaluate(left, values), _evaluate(right, values)
            match operator:
                case ast.Add():
                    return one + other
                case ast.Sub():
                    return one - other
                case ast.Mult():
                    return one * other
                case ast.Div():
                    return one / other
    raise ValueError("not plain arithmetic")


def _exact(node: ast.Constant) -> Fraction:
    """The value of a literal, which is put in its place: 0.1 is a tenth."""
    if isinstance(node.value, bool) or not isinstance(node.value, int | float):
        raise ValueError("no number")
    number = Fraction(node.value) if isinstance(node.value, int) else Fraction(repr(node.value))
    node.value = number  # type: ignore[assignment]
    return number


def _value(text: str) -> Fraction:
    bare = text.replace(",", "").replace("$", "").strip()
    return Fraction(int(bare)) if bare.isdigit() else Fraction(bare)


def _another(number: int, rng: random.Random) -> int:
    """A number of about the same size, and even where it was."""
    spread = max(3, number // 2)
    moved = number + rng.choice((-1, 1)) * rng.randint(1, spread)
    moved = moved + (number - moved) % 2 if number % 10 else round(moved, -1)
    return moved if moved > 1 and moved != number else number + (10 if number % 10 == 0 else 2)


def _same_order(values: Sequence[int], new: Mapping[int, int]) -> bool:
    old = sorted(set(values))
    moved = [new.get(number, number) for number in old]
    return all(one < other for one, other in pairwise(moved))


def _replaced(match: re.Match[str], new: Mapping[int, int]) -> str:
    digits = match[1]
    value = int(digits.replace(",", ""))
    if value not in new or "." in match[0]:
        return match[0]
    return match[0].replace(digits, f"{new[value]:,}" if "," in digits else str(new[value]))


def _insert(question: str, sentence: str) -> str:
    """The sentence before the last one, which asks."""
    head, mark, last = question.rstrip().rpartition(". ")
    return f"{head}{mark}{sentence} {last}" if mark else f"{sentence} {question}"


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
