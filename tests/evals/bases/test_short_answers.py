"""Short answers are compared as others compare them: SQuAD's script (a copy of which lm-eval has), lm-eval's TriviaQA."""

from __future__ import annotations

import json
import runpy
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ingot.evals.bases.short_answers import cleaned, contains, exact_match, f1
from ingot.evals.bases.suite import Measured
from ingot.evals.bases.suites import SUITES
from ingot.evals.engine.prompt import plain_text
from ingot.evals.engine.request import Generation, Written
from ingot.evals.suites.coqa import distinct, left_out
from ingot.evals.suites.popqa import stands_in
from ingot.evals.suites.triviaqa import is_alias
from tests.evals.against_lm_eval.asking import evaluated, subject
from tests.evals.against_lm_eval.published import rows_of
from tests.making.rows import write_rows

ODD = [
    "",
    " ",
    ".",
    "the",
    "The the a.",
    "  A Tower,of London!",
    "U.S.",
    "naïve",
    "1,000",
    "an apple a day",
    "É",
    "İstanbul",
    "a-b",
]


def answers_of(rows: list[dict[str, Any]]) -> list[str]:
    """What was accepted elsewhere, cut, doubled, in other cases: near misses of every kind."""
    accepted = [answer for row in rows for answer in row["answers"]]
    changed = [f"The {answer}." for answer in accepted[::3]] + [answer.upper() for answer in accepted[1::3]]
    return [*ODD, *changed, *(answer[: len(answer) // 2] for answer in accepted[2::3])]


@pytest.fixture(scope="module")
def squad() -> Any:
    """lm-eval's copy of SQuAD's script; its folder is no package."""
    lm_eval = pytest.importorskip("lm_eval", reason="needs lm-eval (pip install 'ingot[evals]')")
    return SimpleNamespace(**runpy.run_path(str(Path(lm_eval.__file__).parent / "tasks/qasper/metrics.py")))


def test_squad(squad: Any, shared_data: Path) -> None:
    rows = rows_of(shared_data, "core_icl/squad_1000", 15)
    for row in rows:
        accepted = row["answers"]
        for written in [*answers_of([row]), *answers_of(rows[:5])]:
            clean = squad.normalize_answer(written)
            assert cleaned(written) == clean
            assert exact_match(written, accepted) == float(clean in map(squad.normalize_answer, accepted))
            if clean:  # version 1.1 of the script gives 0 where both are empty, 2.0 gives 1, and so do we
                best = max(squad.f1_abstractive([written], [answer]) for answer in accepted)
                assert f1(written, accepted) == pytest.approx(best)
    assert f1("the", ["a."]) == 1.0


def test_contains() -> None:
    task = pytest.importorskip("lm_eval.tasks.squad_completion.task", reason="needs lm-eval")
    for written in ODD:
        for accepted in (["a"], ["THE", "x"], ["London"], ["."], ["of lon"]):
            assert contains(written, accepted) == task.contains_score(written, accepted)


def test_coqa(squad: Any, shared_data: Path) -> None:
    """Each person's answer is left out once; written with sets here, as the paper says it."""
    rows = rows_of(shared_data, "core_icl/coqa_2000", 40)
    several = [row for row in rows if len(distinct(row["answers"])) > 1]
    assert several
    for row in several:
        accepted = list(distinct(row["answers"]))
        for written in [*answers_of([row]), *(f"{answer}\nQ: next" for answer in accepted)]:
            line = squad.normalize_answer(written.strip().split("\n")[0])
            counts = Counter(map(squad.normalize_answer, accepted))
            among_others = [line in counts - Counter([squad.normalize_answer(one)]) for one in accepted]
            assert left_out(exact_match)(written, accepted) == pytest.approx(sum(among_others) / len(accepted))


def test_triviaqa(shared_data: Path) -> None:
    peer = pytest.importorskip("lm_eval.api.metrics", reason="needs lm-eval").exact_match_hf_evaluate
    for row in rows_of(shared_data, "core_icl/triviaqa_sm_sub", 12):
        aliases = row["aliases"]
        for written in [
            *ODD,
            *aliases,
            *(f" {alias.upper()}'s!" for alias in aliases),
            *(alias[1:] for alias in aliases),
        ]:
            predictions = [written.strip()] * len(aliases)
            score = peer(predictions, aliases, ignore_case=True, ignore_punctuation=True)["exact_match"]
            assert is_alias(written, aliases) == float(score > 0)


def test_popqa_takes_three_spellings() -> None:
    assert stands_in("He was a Politician.", ["politician"]) == 1.0
    assert stands_in("he was a POLITICIAN", ["politician"]) == 0.0


def test_popqa_asks_as_its_authors_do(tmp_path: Path) -> None:
    """Sixteen relations in the published columns: 15 examples, one of every other relation, shown with the column `obj`."""
    rows: list[dict[str, Any]] = [
        {
            "id": 16 * number + relation,
            "subj": f"thing {number}",
            "prop": f"relation {relation}",
            "obj": f"Object {relation}-{number}",
            "possible_answers": json.dumps([f"alias {relation}-{number}", f"Object {relation}-{number}"]),
            "question": f"What is relation {relation} of thing {number}?",
        }
        for number in range(4)
        for relation in range(16)
    ]
    file = write_rows(tmp_path / "popqa.jsonl", rows)
    measuring = SUITES.read({"suite": "popqa", "files": [str(file)]}).measure(subject())
    assert not isinstance(measuring, Measured)
    requests = [request for request in next(measuring) if isinstance(request, Generation)]
    shown = {f"Q: {row['question']} A: {row['obj']}": row["prop"] for row in rows}
    orders = set()
    for row, request in zip(rows, requests, strict=True):
        *examples, asked = plain_text(request.prompt).split("\n\n")
        assert asked == f"Q: {row['question']} A:"
        relations = [shown[example] for example in examples]
        assert sorted([*relations, row["prop"]]) == sorted({each["prop"] for each in rows})
        orders.add(tuple(relations))
        assert (request.max_new_tokens, request.stop, request.temperature) == (15, ("\n",), 0.0)
    assert len(orders) > 60  # the order is drawn anew for each
    replies = [f" It is alias {row['prop'].split()[1]}-{row['id'] // 16}" if row["id"] % 2 else " None" for row in rows]
    found = evaluated(measuring, [Written(reply, None, "stop", 3) for reply in replies])
    assert found["popqa/accuracy"].estimate.value == 0.5


@pytest.mark.parametrize("name", ["squad", "coqa", "triviaqa", "jeopardy"])
def test_right_answers_score_one(name: str, shared_data: Path) -> None:
    """Those of the file, whatever the columns are; and questions on one passage share a cluster."""
    suite = SUITES.read({"suite": name, "limit": 30})
    measuring = suite.measure(subject(shared_data))
    assert not isinstance(measuring, Measured)
    requests = [request for request in next(measuring) if isinstance(request, Generation)]
    asked = [suite.short(row, place) for place, row in suite.rows(subject(shared_data))]  # type: ignore[attr-defined]
    assert len(requests) == len(asked) == 30
    found = evaluated(measuring, [Written(each.answers[0], None, "stop", 3) for each in asked])
    for metric in found.values():
        single = name == "coqa"  # an answer that only one person gave is no match for the others
        assert metric.estimate.value == 1.0 or (single and metric.estimate.value > 0.5)
    if name == "coqa":
        clusters = set(next(iter(found.values())).clusters.values())
        assert 1 < len(clusters) < 30
