"""Arena-Hard (Li et al. 2024, arXiv 2406.11939): hard prompts of real users, compared by a judge with a baseline's answers.

Rows: {"uid", "category", "prompt"}; `baseline` names files of the baseline's answers, {"uid", "messages"} as published, or
{"uid", "answer"}. The judge sees both orders and says [[A>>B]], [[A>B]], [[A=B]], [[B>A]] or [[B>>A]]; a clear verdict
counts as three games. A question's score is the mean of its games, and the win rate is that over questions; the published one
pools all games.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from pydantic import Field

from ingot.envs.rows import need, read_rows
from ingot.envs.verifiers.judges.judge import Judge
from ingot.evals.bases.generations import Grade, Item
from ingot.evals.bases.judged import JudgedSuite, ask
from ingot.evals.bases.suite import Subject
from ingot.evals.engine.request import Question
from ingot.workspace.errors import DataError, RecipeError

STRONG = 3
VERDICTS = (re.compile(r"\[\[([AB<>=]+)\]\]"), re.compile(r"\[([AB<>=]+)\]"))
FOR_A = {"A>>B": 1.0, "B<<A": 1.0, "A>B": 1.0, "B<A": 1.0, "A=B": 0.5, "B=A": 0.5}
FOR_B = {"B>>A": 0.0, "A<<B": 0.0, "B>A": 0.0, "A<B": 0.0}
SCORES = {**FOR_A, **FOR_B}
TASK = (
    "Which ANSWER helps the user of the QUESTION more? Work out an answer of your own first, then look for mistakes in both, and "
    "then at what is missing or of no use; length by itself is no merit. End with your verdict, one of [[A>>B]] (A is much "
    "better), [[A>B]], [[A=B]], [[B>A]], [[B>>A]]."
)


class ArenaHard(JudgedSuite):
    """Hard prompts, compared with a baseline's answers by a judge."""

    local: ClassVar[tuple[str, ...]] = ("arena_hard/question*.jsonl*",)
    labels: ClassVar[Mapping[str, str]] = {"win_rate": "Arena-Hard, win rate"}

    max_new_tokens: int = Field(4096, ge=1, description="tokens of an answer at most")
    baseline: tuple[str, ...] = Field((), description="files of the baseline's answers: uid, and messages or answer")
    categories: tuple[str, ...] = Field((), description="only these categories, as hard_prompt or creative_writing")

    def items(self, subject: Subject) -> Sequence[Item]:
        if not self.baseline:
            raise RecipeError(
                "it compares with a baseline, and none is given",
                place=f"suite {self.short_name}",
                fix="write baseline: [FILE] with the baseline's answers by uid",
            )
        known = {str(row.get("uid")): _answer(row, place) for file in self.baseline for place, row in read_rows(file)}
        rows = [one for one in self.rows(subject) if not self.categories or one[1].get("category") in self.categories]
        missing = [place for place, row in rows if str(row.get("uid")) not in known]
        if missing:
            raise DataError(
                "the baseline has no answer to this prompt", place=missing[0], fix="give all of its answers"
            )
        return [
            Item(row["uid"], Question(need(row, "prompt", str, place)), known[str(row["uid"])]) for place, row in rows
        ]

    def judged(self, item: Item, answer: str, judge: Judge) -> Grade:
        question = item.prompt.text if isinstance(item.prompt, Question) else ""

        def games(first: str, second: str) -> list[float]:
            quoted = {"QUESTION": question, "ANSWER A": first, "ANSWER B": second}
            return ask(judge, TASK, quoted, read_verdict)

        found = [*games(answer, item.expected), *(1 - score for score in games(item.expected, answer))]
        return Grade({"win_rate": sum(found) / len(found)})


def read_verdict(reply: str) -> list[float] | None:
    """The scores of A, one a game, from the last verdict of a reply."""
    for pattern in VERDICTS:
        if found := pattern.findall(reply.upper()):
            score = SCORES.get(found[-1])
            return (
                None if score is None else [score] * (STRONG if found[-1].count(">") + found[-1].count("<") == 2 else 1)
            )
    return None


def _answer(row: Mapping[str, Any], place: str) -> str:
    if isinstance(row.get("answer"), str):
        return str(row["answer"])
    content = need(dict(row), "messages", list, place)[-1]["content"]
    return str(content["answer"] if isinstance(content, dict) else content)
