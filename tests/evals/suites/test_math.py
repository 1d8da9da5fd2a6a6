r"""MATH: Minerva's reading and spelling by the LM evaluation harness's own code, and real solutions in several forms."""

from __future__ import annotations

import random
import re
import types
from pathlib import Path
from typing import Any

from ingot.evals.engine.request import Generation, Question
from ingot.evals.suites.math import EXAMPLES, Math
from ingot.evals.suites.math.minerva import final_answer, respelled
from tests.evals.suites import harness
from tests.evals.suites.asking import measure, recorded, subject, values
from tests.making.rows import read_rows

ODD = [
    "",
    "x=5",
    r"\left(3,4\right)",
    "2\\pi cm",
    r"5\text{ ft}",
    "1,000",
    "0,1",
    "12,34",
    "a 5",
    r"\$5.00",
    r"\frac12",
    r"\sqrt2",
]
ODD += [
    r"\sqrt[3]8",
    r"\sqrt[3]{8}",
    r"\textbf{(A)}",
    r"$7$.",
    "an apple",
    r"3\ldots",
    r"10^\circ",
    r"\mbox{cm}^2",
    "6 square units",
]
ODD += [
    r"\boxed{4}",
    r"\overline{AB}",
    r"1,\!000",
    r"50\%",
    '"yes"',
    r"x \text{ and } y",
    "5 hours 3 minutes",
    r"\dots",
    "childrentickets",
]


def published_code() -> Any:
    """minerva_math/utils.py of lm-eval; its versions of SymPy's parser, which only is_equiv uses, are not installed here."""
    path = harness.folder() / "minerva_math" / "utils.py"
    source = re.sub(
        r"^    from sympy.parsing.latex.*\n|^    assert version.*\n", "", path.read_text(), flags=re.MULTILINE
    )
    module = types.ModuleType("minerva_utils")
    exec(compile(source, str(path), "exec"), module.__dict__)
    return module


def test_spelling_and_closing_sentence_are_the_harness_s(shared_data: Path) -> None:
    """All 4,743 reference answers, odd ones, and both of them in and out of the closing sentence."""
    published = published_code()
    rows = read_rows(shared_data / "math" / "math500_dev.jsonl.gz")
    rows += read_rows(shared_data / "math" / "math_test_minus_math500.jsonl.gz")
    answers = [row["answer"] for row in rows] + ODD
    assert len(answers) == 4743 + len(ODD)
    for answer in answers:
        assert respelled(answer) == published.normalize_final_answer(answer), answer
    rng = random.Random(0)
    for _ in range(500):
        sentence = f"So it is.\nFinal Answer: The final answer is ${rng.choice(answers)}$. I hope it is correct."
        whole = sentence + rng.choice(["", "\nProblem:", sentence])
        text = rng.choice([whole, whole[: rng.randrange(len(whole))], sentence.removesuffix("I hope it is correct.")])
        assert final_answer(text) == published.get_unnormalized_answer(text), text


def prompt_of(request: Generation) -> str:
    assert isinstance(request.prompt, Question)
    return request.prompt.text.removeprefix("Problem:\n").partition("\n\nSolution:")[0].partition("\n\nPut your")[0]


def test_real_solutions_in_several_forms(shared_data: Path) -> None:
    rows = {row["problem"]: row for row in read_rows(shared_data / "math" / "math500_dev.jsonl.gz")[:80]}
    about = subject(shared_data)
    closing = "{}\nFinal Answer: The final answer is ${}$. I hope it is correct."

    def solved(request: Generation) -> str:
        row = rows[prompt_of(request)]
        return closing.format(row["solution"], row["answer"])

    assert values(measure(Math(limit=80), solved, about)) == {"math/verified": 1, "math/exact_match": 1}
    boxed = measure(Math(limit=80, shots=0), lambda request: rows[prompt_of(request)]["solution"], about)
    assert values(boxed) == {"math/verified": 1, "math/exact_match": 0}  # no closing sentence
    wrong = values(measure(Math(limit=80), lambda request: closing.format("", "7919"), about))
    assert wrong == {"math/verified": 0, "math/exact_match": 0}


def test_levels_and_stops(shared_data: Path) -> None:
    rows = read_rows(shared_data / "math" / "math500_dev.jsonl.gz")
    hard = [row["problem"] for row in rows if row["level"] in (5, "Level 5")]
    asked = recorded(Math(levels=(5,)), subject(shared_data))
    assert [prompt_of(request) for request in asked] == hard and 20 < len(hard) < 200
    assert asked[0].stop == ("Problem:",) and len(asked[0].prompt.shots) == len(EXAMPLES)  # type: ignore[union-attr]
