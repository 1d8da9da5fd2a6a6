"""Term lists of every form, weights, and a classifier."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingot.data.apply import apply, as_table
from ingot.data.steps.classify.config import TrainConfig
from ingot.data.steps.classify.train import train_and_report
from ingot.data.steps.safety import SafetyStep, TermList, count_terms, term_hashes
from ingot.workspace.errors import DataError

TERMS = ["nerve agent", "sarin", "über gift", "a b a"]


@given(
    st.lists(st.sampled_from(["nerve", "Agent", "sarin", "SARIN,", "über", "Gift.", "a", "b", "-", "x"]), max_size=30)
)
def test_counts_equal_a_plain_search(words: list[str]) -> None:
    text = " ".join(words)
    plain = re.findall(r"\w+", text.lower())
    expected = 0
    for term in TERMS:
        wanted = term.split()
        expected += sum(plain[at : at + len(wanted)] == wanted for at in range(len(plain)))
    found = count_terms(as_table([text]).column("text"), [term_hashes(TERMS)], 3)
    assert found.tolist() == [[expected]]


def test_lists_weights_and_actions(tmp_path: Path) -> None:
    (tmp_path / "terms.txt").write_text("# comment\nNerve agent\nsarin\n", encoding="utf-8")
    hashes = "\n".join(f"{int(value):016x}" for value in term_hashes(["blister agent"]))
    (tmp_path / "hashed.txt").write_text(hashes, encoding="utf-8")
    (tmp_path / "regex.txt").write_text(r"enrich\w* uranium", encoding="utf-8")
    lists = [
        TermList(name="chemical", file=str(tmp_path / "terms.txt")),
        TermList(name="secret", file=str(tmp_path / "hashed.txt"), form="hashed", weight=2),
        TermList(name="nuclear", file=str(tmp_path / "regex.txt"), form="regex", weight=0.5),
    ]
    texts = ["Nerve-agent, SARIN; nerve\nagent", "a blister agent", "Enriched uranium, enriching uranium", "bread"]
    table = apply(SafetyStep(lists=lists, maximum=1.5), texts)
    assert table.column("safety_chemical").to_pylist() == [3, 0, 0, 0]
    assert table.column("safety_secret").to_pylist() == [0, 1, 0, 0]
    assert table.column("safety_nuclear").to_pylist() == [0, 0, 2, 0]
    assert table.column("safety").to_pylist() == [3, 2, 1, 0]
    removed = ["safety terms 3 > 1.5", "safety terms 2 > 1.5", None, None]
    assert table.column("removed_by").to_pylist() == removed
    marked = apply(SafetyStep(lists=lists, action="mark"), texts)
    assert marked.column("removed_by").to_pylist() == [None] * 4


def test_classifier(tmp_path: Path) -> None:
    pairs = [("mix the poison quietly", "unsafe"), ("bake the bread slowly", "safe")] * 10
    train_and_report(pairs, TrainConfig(held_out=0, epochs=20, learning_rate=0.5), tmp_path / "model")
    step = SafetyStep(model=str(tmp_path / "model"), label="unsafe")
    table = apply(step, ["mix poison", "bake bread"])
    first, second = table.column("safety_model").to_pylist()
    assert first > 0.5 > second
    assert [bool(reason) for reason in table.column("removed_by").to_pylist()] == [True, False]


def test_bad_lists_are_named(tmp_path: Path) -> None:
    path = tmp_path / "list.txt"
    for text, form, problem in (("", "terms", "empty"), ("xyz", "hashed", "not a hash"), ("(", "regex", "RE2")):
        path.write_text(text, encoding="utf-8")
        with pytest.raises(DataError, match=problem):
            apply(SafetyStep(lists=[TermList(name="x", file=str(path), form=form)]), ["text"])
