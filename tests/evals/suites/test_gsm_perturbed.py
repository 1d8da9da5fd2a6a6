"""Perturbed GSM8K: solutions are replayed against what they state, and changed ones against Python's own arithmetic."""

from __future__ import annotations

import random
import re
from fractions import Fraction
from pathlib import Path

import pytest

from examples.evals.gsm_perturbed import (
    MARK,
    GsmPerturbed,
    in_words,
    numbers_of,
    read_steps,
    replay,
    variants,
    with_other_numbers,
    words,
)
from tests.evals.suites.asking import last_text, measure, subject, units, values
from tests.making.rows import read_rows


def parts(row: dict[str, str]) -> tuple[str, str, str]:
    solution, _, answer = row["answer"].rpartition("####")
    return row["question"], solution, answer.strip().replace(",", "")


def test_all_train_solutions_replay_to_what_they_state(shared_data: Path) -> None:
    """With the original numbers: every mark gives the result that is written there, and the last one the answer.

    117 solutions round (10/3=3.3) or err, 376 have a last step without a mark: no numbers of these are ever changed.
    """
    rows = read_rows(shared_data / "gsm8k" / "train.jsonl.gz")
    found = {"the answer": 0, "refused": 0, "another value": 0}
    for row in rows:
        _, solution, answer = parts(row)
        steps = read_steps(solution)
        last = replay(steps, {}) if steps else None
        if not steps or last is None:
            found["refused"] += 1
        else:
            assert last == steps[-1].result
            found["the answer" if last == Fraction(answer) else "another value"] += 1
    assert found == {"the answer": 6980, "refused": 117, "another value": 376}


def test_changed_problems_are_changed_throughout(shared_data: Path) -> None:
    """The answer to new numbers by Python: the solution's text with each old value replaced, mark after mark."""
    rows = read_rows(shared_data / "gsm8k" / "train.jsonl.gz")[::4]
    made = 0
    for row in rows:
        question, solution, answer = parts(row)
        changed = with_other_numbers(question, solution, answer, random.Random(question))
        if changed is None:
            continue
        made += 1
        old, new = numbers_of(question), numbers_of(changed[0])
        assert len(old) == len(new) and old != new
        moved = dict(zip(old.values(), new.values(), strict=True))
        known = {float(before): float(after) for before, after in moved.items()}
        for left, right in MARK.findall(solution):
            swap = lambda match, known=known: repr(known.get(float(match[0]), float(match[0])))  # noqa: E731
            value = eval(re.sub(r"\d+\.\d+|\.\d+|\d+", swap, left.replace(",", "").lstrip("+")))
            known[float(Fraction(right.replace(",", "")))] = value
        assert value == pytest.approx(float(Fraction(changed[1]))), (changed, solution)
        ranks = [sorted(numbers.values()) for numbers in (old, new)]
        assert [moved[number] for number in ranks[0]] == ranks[1]  # what was more is still more
    assert made > 200


def test_words() -> None:
    assert [words(number) for number in (0, 13, 20, 42, 100, 305, 999)] == [
        *("zero", "thirteen", "twenty", "forty-two", "one hundred", "three hundred and five"),
        "nine hundred and ninety-nine",
    ]
    assert in_words("12 men paid $5 for 1,200 of 3.5 kg at 8:30, 20% off, on 9 days.") == (
        "Twelve men paid $5 for 1,200 of 3.5 kg at 8:30, 20% off, on nine days."
    )


def test_a_model_that_knows_the_test_by_heart(shared_data: Path) -> None:
    """It answers what the original says: right where the answer stays, wrong where the numbers change."""
    rows = read_rows(shared_data / "gsm8k" / "test_dev.jsonl.gz")[:60]
    suite, about = GsmPerturbed(limit=60, shots=0), subject(shared_data)
    items = {item.prompt.text: item for item in suite.items(about)}  # type: ignore[union-attr]
    originals = {item.cluster: item.expected for item in items.values() if item.id.endswith("/original")}
    found = measure(suite, lambda request: f"#### {originals[items[last_text(request)].cluster]}", about)
    scores = values(found)
    kinds = ("original", "spelled", "distractor", "wording")
    assert all(scores[f"gsm_perturbed/{kind}"] == 1 for kind in kinds) and scores["gsm_perturbed/numbers"] < 0.1
    changed = units(found)["gsm_perturbed/numbers"]
    assert len(changed) >= 5 and scores["gsm_perturbed/consistent"] == pytest.approx(
        1 - (len(changed) - sum(changed.values())) / 60
    )
    every = next(metric for metric in found.metrics if metric.name == "gsm_perturbed/accuracy")
    assert len(set(every.clusters.values())) == len(rows) and set(every.clusters) == set(every.units)


def test_the_same_variants_every_time(shared_data: Path) -> None:
    question, solution, answer = parts(read_rows(shared_data / "gsm8k" / "test_dev.jsonl.gz")[0])
    once, again = (list(variants(question, solution, answer, random.Random("a"))) for _ in range(2))
    assert once == again and [one.kind for one in once] == ["numbers", "spelled", "distractor", "wording"]
