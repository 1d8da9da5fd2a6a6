r"""Word problems with a number as the answer, asked and read as the LM evaluation harness does for GSM8K.

A prompt is `Question: …\nAnswer:`; worked examples are whole solutions that end in `#### n`. They are drawn anew for every
question (few_shot.py), so scores can be compared with the harness's. Three readings of an answer:

    strict     what follows the first ####
    flexible   the last number anywhere. A closing "..." is taken for one, as in the harness
    verified   the answer that the text marks (a box, ####, "the answer is"), else its last number, compared as mathematics

Without examples (`shots: 0`) the question asks for \boxed{}, as reports on chat models do.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import ClassVar

from pydantic import Field

from ingot.envs.rows import Row, need
from ingot.envs.verifiers.children import CHILDREN
from ingot.envs.verifiers.math.answer_text import canonical
from ingot.envs.verifiers.math.same_answer import extract_answer, same_answer
from ingot.evals.bases.few_shot import FewShot
from ingot.evals.bases.file_suite import rows_of
from ingot.evals.bases.generations import GeneratedSuite, Grade, Item
from ingot.evals.bases.suite import Subject
from ingot.evals.engine.request import Question

STOPS = ("Question:", "</s>", "<|im_end|>")
MARKED = re.compile(r"#### (\-?[0-9\.\,]+)")
NUMBERS = re.compile(r"(-?[$0-9.,]{2,})|(-?[0-9]+)")
IGNORED = tuple(map(re.compile, (",", r"\$", r"(?s).*#### ", r"\.$")))
INVALID = "[invalid]"
BOXED = r"Put your final answer in \boxed{}."


class WordProblems(GeneratedSuite):
    """Problems with GSM8K's columns: {"question", "answer"}, where the answer is a solution that ends in #### n."""

    votes: ClassVar[bool] = True
    graders: ClassVar[int] = CHILDREN
    local_shots: ClassVar[tuple[str, ...]] = ("gsm8k/train*.jsonl*", "gsm8k/train*.parquet")
    hub_shots: ClassVar[tuple[str, ...]] = ("hf:openai/gsm8k:main:train",)

    shots: int = Field(
        5, ge=0, description="worked examples before each question; 0: none, and the answer goes in a box"
    )
    shot_files: tuple[str, ...] = Field((), description="files of worked examples, instead of GSM8K's train set")

    def prompts(self, rows: Sequence[Row], subject: Subject) -> list[Question]:
        """The questions with their examples, in the order of the rows."""
        if not self.shots:
            return [Question(f"{row['question']}\n\n{BOXED}") for row in rows]
        specs = self.shot_files or self.local_shots
        pool = rows_of(specs, self.hub_shots, subject.data, given=bool(self.shot_files), suite=self.short_name)
        examples = [_shot(row, place) for place, row in pool]
        draw = FewShot(examples, self.shots, "random")
        return [Question(_ask(str(row["question"])), shots=tuple(draw(row))) for row in rows]

    def stops(self, subject: Subject) -> tuple[str, ...]:
        return STOPS if self.shots else ()

    def grade(self, item: Item, answer: str) -> Grade:
        marked = extract_answer(answer, last_number=True)
        verified = marked is not None and same_answer(marked, item.expected)
        scores = {
            "verified": float(verified),
            "flexible": float(same_number(last_number(answer), item.expected)),
            "strict": float(same_number(marked_number(answer), item.expected)),
        }
        return Grade(scores, None if marked is None else canonical(marked))


def marked_number(text: str) -> str:
    """What follows the first ####, as the harness's strict-match reads it."""
    found = MARKED.search(text)
    return found[1].strip() if found else INVALID


def last_number(text: str) -> str:
    """The last thing that looks like a number, as the harness's flexible-extract reads it."""
    found = NUMBERS.findall(text)
    return (found[-1][0] or found[-1][1]).strip() if found else INVALID


def same_number(given: str, expected: str) -> bool:
    """Equal texts once commas, dollar signs and a last full stop are gone: the harness's exact_match."""
    for pattern in IGNORED:
        given, expected = pattern.sub("", given), pattern.sub("", expected)
    return given.lower() == expected.lower()


def _ask(question: str) -> str:
    return f"Question: {question}\nAnswer:"


def _shot(row: Row, place: str) -> tuple[str, str]:
    return _ask(need(row, "question", str, place)), need(row, "answer", str, place)
