"""AlpacaEval (Li et al. 2023; length control: arXiv 2404.04475): how often a judge prefers the model's answer to a baseline's.

Rows: {"instruction", "output"}, the output being the baseline's; a column `input` is added to the instruction. Both orders are
asked: a preference that changes with the order is a tie.

    win_rate                 1 won, 0 lost, 0.5 a tie
    length_controlled        what it would be if answers were as long as the baseline's (length_control.py)
    characters               the mean length of the model's answers
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar

from pydantic import Field

from ingot.envs.rows import Row, need
from ingot.envs.verifiers.judges.judge import Judge
from ingot.envs.verifiers.judges.pairwise import compare
from ingot.evals.bases.generations import Grade, Graded, Item, score_metrics, trouble_metrics
from ingot.evals.bases.identity import text_ids
from ingot.evals.bases.judged import JudgedSuite
from ingot.evals.bases.suite import Subject
from ingot.evals.engine.request import Question
from ingot.evals.scores.scores import Metric


class Alpaca(JudgedSuite):
    """Win rate against a baseline's answers, with length control."""

    local: ClassVar[tuple[str, ...]] = ("alpaca_eval/*.jsonl*", "alpaca_eval/*.parquet")
    hub: ClassVar[tuple[str, ...]] = ("hf:tatsu-lab/alpaca_eval:alpaca_eval_gpt4_baseline:eval",)
    labels: ClassVar[Mapping[str, str]] = {
        "win_rate": "AlpacaEval, win rate",
        "characters": "AlpacaEval, characters of an answer",
    }

    max_new_tokens: int = Field(2048, ge=1, description="tokens of an answer at most")

    def items(self, subject: Subject) -> Sequence[Item]:
        rows = self.rows(subject)
        questions = [_instruction(row, place) for place, row in rows]
        return [
            Item(id, Question(question), need(row, "output", str, place))
            for id, question, (place, row) in zip(text_ids(questions), questions, rows, strict=True)
        ]

    def judged(self, item: Item, answer: str, judge: Judge) -> Grade:
        question = item.prompt.text if isinstance(item.prompt, Question) else ""
        won = compare(judge, question, answer, item.expected) if answer.strip() else 0.0
        return Grade({"win_rate": won, "characters": float(len(answer))})

    def metrics(self, graded: Sequence[Graded]) -> Iterator[Metric]:
        from ingot.evals.suites.alpaca.length_control import length_controlled

        yield from score_metrics(self.short_name, graded, self.labels)
        known = [(each, each.grade.scores) for each in graded if each.grade is not None]
        found = length_controlled(
            [scores["win_rate"] for _, scores in known],
            [round(scores["characters"]) for _, scores in known],
            [len(each.item.expected) for each, _ in known],
        )
        yield Metric(f"{self.short_name}/length_controlled", found, "AlpacaEval, win rate at equal lengths")
        yield from trouble_metrics(self.short_name, graded)


def _instruction(row: Row, place: str) -> str:
    given = str(row.get("input") or "").strip()
    return f"{need(row, 'instruction', str, place)}\n\n{given}".strip()
