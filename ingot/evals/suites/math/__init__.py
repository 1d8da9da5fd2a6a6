r"""MATH and MATH-500 (Hendrycks et al. 2021, arXiv 2103.03874): competition problems whose answers are LaTeX.

Worked examples end in Minerva's closing sentence (minerva.py), as the LM evaluation harness has them; they are four of our own,
so scores are near the harness's and not equal to them (`lm_eval:minerva_math500` is exactly its task). Two readings:

    verified     the answer that the reply marks (a box, the closing sentence, "the answer is"), compared as mathematics
    exact_match  the closing sentence only: equal in Minerva's spelling, or equal as mathematics after it

A chat model that boxes its answers scores 0 in exact_match: `verified` is the number to look at. Without examples (`shots: 0`)
the question asks for \boxed{}.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from pydantic import Field

from ingot.envs.tasks.math import Math as Environment
from ingot.envs.verifiers.children import CHILDREN
from ingot.envs.verifiers.math.answer_text import canonical
from ingot.envs.verifiers.math.same_answer import extract_answer, same_answer
from ingot.evals.bases.generations import GeneratedSuite, Grade, Item
from ingot.evals.bases.identity import text_ids
from ingot.evals.bases.suite import Subject
from ingot.evals.bases.word_problems import BOXED
from ingot.evals.engine.request import Question
from ingot.evals.suites.math.minerva import INVALID, final_answer, respelled

CLOSING = "Final Answer: The final answer is ${}$. I hope it is correct."
EXAMPLES = (
    (
        r"For which real numbers $x$ is $\frac{1}{\sqrt{3-x}} + \sqrt{x+4}$ defined? Give the set as an interval.",
        r"The first root stands in a denominator, so $3-x>0$, that is $x<3$. The second needs $x+4\ge0$, that is $x\ge-4$. "
        r"Both hold for $\boxed{[-4,3)}$.",
        "[-4,3)",
    ),
    (
        "A printer makes 18 pages a minute. How many seconds does it need for 45 pages?",
        r"One minute has 60 seconds, so a page takes $\frac{60}{18}=\frac{10}{3}$ seconds, and 45 pages take "
        r"$45\cdot\frac{10}{3}=\boxed{150}$ seconds.",
        "150",
    ),
    (
        "Let $f(x)=2x-5$. For which $c$ is $f(f(c))=c$?",
        r"We have $f(f(c))=2(2c-5)-5=4c-15$. From $4c-15=c$ follows $3c=15$, so $c=\boxed{5}$.",
        "5",
    ),
    (
        "Two fair coins and a fair die are thrown. What is the probability of exactly one head and an even number?",
        r"Exactly one head has probability $\frac{2}{4}=\frac12$, an even number $\frac36=\frac12$. They are independent, so the "
        r"probability is $\frac12\cdot\frac12=\boxed{\frac{1}{4}}$.",
        r"\frac{1}{4}",
    ),
)

ENVIRONMENT = Environment()  # whose rows are read


class Math(GeneratedSuite):
    """Competition problems with LaTeX answers."""

    local: ClassVar[tuple[str, ...]] = ("math/math500*.jsonl*", "math_500/test*.jsonl*", "math/test*.jsonl*")
    hub: ClassVar[tuple[str, ...]] = ("hf:HuggingFaceH4/MATH-500:test",)
    labels: ClassVar[Mapping[str, str]] = {
        "verified": "MATH, answer compared as mathematics",
        "exact_match": "MATH, closing sentence",
    }
    votes: ClassVar[bool] = True
    graders: ClassVar[int] = CHILDREN

    shots: int = Field(4, ge=0, le=len(EXAMPLES), description="worked examples; 0: none, and the answer goes in a box")
    max_new_tokens: int = Field(1024, ge=1, description="tokens of an answer at most")
    levels: tuple[int, ...] = Field((), description="only problems of these levels, 1 to 5")

    def stops(self, subject: Subject) -> tuple[str, ...]:
        return ("Problem:",) if self.shots else ()

    def items(self, subject: Subject) -> Sequence[Item]:
        rows = [(place, row) for place, row in self.rows(subject) if not self.levels or _level(row) in self.levels]
        problems = [ENVIRONMENT.problem(row, place) for place, row in rows]
        ids = text_ids(problem for problem, _, _ in problems)
        return [Item(id, self._prompt(problem), answer) for id, (problem, answer, _) in zip(ids, problems, strict=True)]

    def _prompt(self, problem: str) -> Question:
        if not self.shots:
            return Question(f"{problem}\n\n{BOXED}")
        shots = [(_ask(text), f"{worked}\n{CLOSING.format(answer)}") for text, worked, answer in EXAMPLES[: self.shots]]
        return Question(_ask(problem), shots=tuple(shots))

    def grade(self, item: Item, answer: str) -> Grade:
        marked, closing = extract_answer(answer), respelled(final_answer(answer))
        verified = marked is not None and same_answer(marked, item.expected)
        exact = closing != INVALID and (
            closing == respelled(item.expected) or same_answer(closing, respelled(item.expected))
        )
        scores = {"verified": float(verified), "exact_match": float(exact)}
        return Grade(scores, None if marked is None else canonical(marked))


def _ask(problem: str) -> str:
    return f"Problem:\n{problem}\n\nSolution:"


def _level(row: Mapping[str, object]) -> int:
    """5 and "Level 5" are the same."""
    digits = "".join(sign for sign in str(row.get("level", "")) if sign.isdigit())
    return int(digits or 0)
