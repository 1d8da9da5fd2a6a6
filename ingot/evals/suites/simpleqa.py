"""SimpleQA (Wei et al. 2024, arXiv 2411.04368): short questions of fact, where not to know is better than to be wrong.

A judge says of each answer whether it is correct (A), incorrect (B) or no attempt (C).

    correct, not_attempted     shares of all questions
    correct_given_attempted    share of those that were attempted
    f1                         harmonic mean of correct and correct_given_attempted = 2c / (n + c + i)

The judge replies in a form that is read strictly; the published reader takes the first letter A, B or C of any text.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, Literal

from ingot.envs.rows import need
from ingot.envs.verifiers.judges.judge import Judge, JudgeRequest, ask_judge
from ingot.envs.verifiers.judges.quote import draw_code, quote
from ingot.evals.bases.generations import Grade, Graded, Item, score_metrics, trouble_metrics
from ingot.evals.bases.identity import text_ids
from ingot.evals.bases.judged import JudgedSuite
from ingot.evals.bases.suite import Subject
from ingot.evals.engine.request import Question
from ingot.evals.scores.scores import Metric, metric_of_units
from ingot.evals.scores.statistics import Estimate

Letter = Literal["A", "B", "C"]
TASK = """Compare the ANSWER with the REFERENCE, which is right, and grade it:
A  correct: it has all that the REFERENCE says and nothing that contradicts it. Guesses marked as such, other wording, other
   capitals, typing errors in names and more detail do not matter; a number must be right to the last digit of the REFERENCE.
B  incorrect: any statement of fact contradicts the REFERENCE, also with a hedge.
C  not attempted: the REFERENCE is not given, and nothing contradicts it."""


class Simpleqa(JudgedSuite):
    """Short questions of fact: correct, incorrect or not attempted."""

    local: ClassVar[tuple[str, ...]] = ("simpleqa/*.jsonl*", "simpleqa/*.parquet")
    hub: ClassVar[tuple[str, ...]] = ("hf:basicv8vc/SimpleQA:test",)
    labels: ClassVar[Mapping[str, str]] = {"correct": "SimpleQA, correct", "not_attempted": "SimpleQA, not attempted"}

    def items(self, subject: Subject) -> Sequence[Item]:
        rows = self.rows(subject)
        questions = [need(row, "problem", str, place) for place, row in rows]
        return [
            Item(id, Question(question), need(row, "answer", str, place))
            for id, question, (place, row) in zip(text_ids(questions), questions, rows, strict=True)
        ]

    def judged(self, item: Item, answer: str, judge: Judge) -> Grade:
        question = item.prompt.text if isinstance(item.prompt, Question) else ""
        letter = ask_judge(judge, lambda: grading(question, answer, item.expected, draw_code()))
        return Grade({"correct": float(letter == "A"), "not_attempted": float(letter == "C")})

    def metrics(self, graded: Sequence[Graded]) -> Iterator[Metric]:
        correct, missing = score_metrics(self.short_name, graded, self.labels)
        yield from (correct, missing)
        attempted = {id: correct.units[id] for id, share in missing.units.items() if share < 1}
        if attempted:
            label = "SimpleQA, correct of those attempted"
            yield metric_of_units(f"{self.short_name}/correct_given_attempted", attempted, label)
        shares = [(correct.units[id], 1 - missing.units[id]) for id in correct.units]
        yield Metric(f"{self.short_name}/f1", f1(shares), "SimpleQA, F1")
        yield from trouble_metrics(self.short_name, graded)


def grading(question: str, answer: str, reference: str, code: str) -> JudgeRequest[Letter]:
    """The request for one grade; the name in its reply carries a part of the code."""
    name = f"grade_{code[:4]}"
    parts = [quote(text, title, code) for title, text in _named(question, reference, answer)]
    text = "\n\n".join([TASK, *parts, f'Reply {{"{name}": "A"}}, {{"{name}": "B"}} or {{"{name}": "C"}}.'])
    schema = {
        "type": "object",
        "properties": {name: {"type": "string", "enum": ["A", "B", "C"]}},
        "required": [name],
        "additionalProperties": False,
    }

    def read(reply: Mapping[str, Any]) -> Letter | None:
        return reply[name] if set(reply) == {name} and reply[name] in ("A", "B", "C") else None

    return JudgeRequest(text, read, schema)


def f1(shares: Sequence[tuple[float, float]]) -> Estimate:
    """F1 of (correct, attempted) by question, with the standard error of the jackknife."""

    def value(correct: float, attempted: float, count: int) -> float:
        return 2 * correct / (count + attempted)

    right, tried, count = sum(one for one, _ in shares), sum(other for _, other in shares), len(shares)
    without = [value(right - one, tried - other, count - 1) for one, other in shares] if count > 1 else []
    if not without:
        return Estimate(value(right, tried, count), float("inf"), count)
    mean = sum(without) / count
    error = ((count - 1) / count * sum((each - mean) ** 2 for each in without)) ** 0.5
    return Estimate(value(right, tried, count), error, count)


def _named(question: str, reference: str, answer: str) -> tuple[tuple[str, str], ...]:
    return (("QUESTION", question), ("REFERENCE", reference), ("ANSWER", answer))
