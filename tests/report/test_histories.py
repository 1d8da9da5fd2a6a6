"""Scores over steps on the page: the numbers of the files, the class of each metric, marks, and the share of measuring."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ingot.report.build import contents
from ingot.report.read import read_run
from ingot.workspace.files import write_json

from .browsing import NARROW, Open, overflow, texts
from .example_run import SECONDS, write_run
from .example_scores import TRAINED, history


@pytest.fixture(scope="module")
def data(finished_run: Path) -> dict[str, Any]:
    return contents(read_run(finished_run))


def test_curves_are_those_of_the_files(data: dict[str, Any]) -> None:
    [found] = data["histories"]
    assert (found["checkpoint"], found["stage"]) == ("pretrain", "eval-pretrain")
    curves = {curve["metric"]: curve for curve in found["metrics"]}
    for metric, curve in curves.items():
        assert curve["steps"] == list(history())
        assert curve["values"] == [rows[metric]["value"] for rows in history().values()]
        assert curve["errors"] == [rows[metric]["standard_error"] for rows in history().values()]
    kinds = {metric: curve["signal"]["kind"] for metric, curve in curves.items()}
    assert kinds == {
        "bits_per_byte": "stable",
        "quiz/accuracy": "stable",
        "exam/accuracy": "blind",
        "puzzles/accuracy": "noisy",
    }


def test_the_share_of_measuring(data: dict[str, Any]) -> None:
    training = sum(SECONDS.get(name, 9.6) for name in TRAINED)
    measuring = sum(SECONDS.get(f"eval-{name}", 9.6) for name in TRAINED)
    assert data["compute"]["share"] == pytest.approx(measuring / (measuring + training))


def test_what_made_a_decision_is_marked(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run")
    rows = {row["metric"]: row for row in contents(read_run(run))["evaluations"]["rows"]}
    assert [name for name, row in rows.items() if not row["held_out"]] == ["accuracy/strings"]
    assert rows["needle/512"]["chance"] == 0.1
    folder = next(run.glob("extend-*"))
    write_json(folder / "choice.json", {"metric": "needle/512", "step": 300, "values": {}})
    rows = {row["metric"]: row for row in contents(read_run(run))["evaluations"]["rows"]}
    assert [name for name, row in rows.items() if not row["held_out"]] == ["accuracy/strings", "needle/512"]


def test_what_a_person_sees(page: Any) -> None:
    cards = page.locator(".history")
    assert cards.count() == 4
    tags = {card.get_attribute("data-metric"): texts(card, ".tag")[0] for card in cards.all()}
    assert tags == {
        "bits_per_byte": "stable",
        "quiz/accuracy": "stable",
        "exam/accuracy": "blind",
        "puzzles/accuracy": "noisy",
    }
    assert texts(page, '.evals tr[data-metric="accuracy/strings"] .tag') == ["not held out"]
    assert page.locator(".evals .tag").count() == 1
    assert "of the time of training and measuring" in texts(page, "#eval-share")[0]
    points = page.locator('.history[data-metric="quiz/accuracy"] circle')
    assert points.count() == 8
    heights = [float(points.nth(number).get_attribute("cy")) for number in range(8)]
    assert heights == sorted(heights, reverse=True)  # it rises: up on the page


def test_a_narrow_page_does_not_overflow(open_page: Open, report_page: Path) -> None:
    assert overflow(open_page(report_page, width=NARROW)) <= 0
