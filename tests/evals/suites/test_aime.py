r"""AIME: which number a reply gives, and votes over several replies."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ingot.evals.suites.aime import Aime, read_integer
from ingot.workspace.errors import DataError
from tests.evals.suites.asking import measure, recorded, subject, values

READ = {
    r"so \boxed{073}.": "73",
    r"\boxed{0}": "0",
    r"\boxed{ 204 }": "204",
    r"\boxed{1000}": None,
    r"\boxed{-3}": None,
    r"\boxed{3.0}": None,
    r"\boxed{12} or \boxed{13}": None,  # two answers are none
    r"\boxed{12}, as said: \boxed{12}": "12",
    "The answer is 540.": "540",
    "We get $x=4$, hence $25$": "25",
    "Forty": None,
    "": None,
    r"\boxed{": None,
}


@pytest.mark.parametrize("text", READ)
def test_the_number_of_a_reply(text: str) -> None:
    assert read_integer(text) == READ[text]


def test_average_and_votes(tmp_path: Path) -> None:
    file = tmp_path / "aime.jsonl"
    file.write_text(json.dumps({"problem": "p", "answer": "073"}) + "\n" + json.dumps({"problem": "q", "answer": 5}))
    said = [r"\boxed{73}", r"\boxed{5}", r"\boxed{073}", "nothing"]
    script = lambda request: said[request.sample]  # noqa: E731
    found = values(measure(Aime(files=(str(file),), samples=4), script))
    assert found["aime/accuracy"] == pytest.approx((2 / 4 + 1 / 4) / 2)
    assert found["aime/cons@4"] == 0.5  # 73 has two votes of three
    assert found["aime/pass@4"] == 1


def test_what_is_asked(tmp_path: Path) -> None:
    file = tmp_path / "aime.jsonl"
    file.write_text(json.dumps({"problem": "p", "answer": "10.5"}))
    with pytest.raises(DataError, match="not a whole number"):
        Aime(files=(str(file),)).items(subject())
    file.write_text(json.dumps({"problem": "p", "answer": "10"}))
    asked = recorded(Aime(files=(str(file),), samples=3))
    assert [one.sample for one in asked] == [0, 1, 2] and {one.temperature for one in asked} == {0.6}
