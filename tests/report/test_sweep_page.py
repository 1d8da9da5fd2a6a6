"""The page of a sweep in a real browser: points, error bars, axes and the table are the numbers of the trials."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ingot.evals.scores.scores import Metric
from ingot.evals.scores.statistics import Estimate
from ingot.lab.grid import Axis, make_trials
from ingot.lab.sweep import Outcome, Sweep
from ingot.lab.target import Target
from ingot.report.sweep import write_sweep
from tests.making.rows import write_rows

from .browsing import CHROMIUM, Open, overflow, texts

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason="needs Debian's chromium (apt-get install chromium)"),
]
RATES, SIZES = (1e-4, 1e-3, 1e-2), (200, 2000)
VALUES = {
    (1e-4, 200): 0.1,
    (1e-3, 200): 0.5,
    (1e-2, 200): None,
    (1e-4, 2000): 0.2,
    (1e-3, 2000): 0.7,
    (1e-2, 2000): 0.3,
}
ERROR = 0.05


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Six trials, one of which failed, with curves of three steps."""
    folder = tmp_path_factory.mktemp("sweep")
    axes = (Axis("sft.optimizer.lr", RATES), Axis("sft.task_conversations", SIZES))
    trials = tuple(make_trials(axes, ()))
    sweep = Sweep(Path("r.yaml"), "small", axes, (), (), Target("accuracy", "sft", ()), ("sft",), trials, ())
    outcomes = []
    for number, trial in enumerate(trials):
        rate, size = (value for _, value in trial.values)
        value = VALUES[rate, size]
        if value is None:
            outcomes.append(Outcome(trial, "failed", folder / trial.folder, error="CheckFailed: <b>NaN</b>"))
            continue
        curves = write_rows(
            folder / f"{number}.jsonl", ({"step": s, "loss": 3.0 - s, "seconds": 1.0} for s in range(3))
        )
        metric = Metric("accuracy", Estimate(value, ERROR, 100), "Accuracy")
        sizes = (("tokens", size * 70.0),)
        outcomes.append(Outcome(trial, "done", folder / trial.folder, metric, None, 2.0, sizes, curves))
    return write_sweep(sweep, outcomes, folder)


def heights(page: Any) -> list[float]:
    found: list[float] = page.locator("#metric .dot").evaluate_all(
        "dots => dots.map(dot => Number(dot.getAttribute('cy')))"
    )
    return found


def test_points_bars_and_ticks(open_page: Open, swept: Path) -> None:
    page = open_page(swept)
    measured = [value for value in VALUES.values() if value is not None]
    assert page.locator("#metric .dot").count() == len(measured)
    assert page.locator("#metric .error-bar").count() == len(measured)
    ticks = page.locator("#metric text.tick").all_text_contents()
    assert {"0.0001", "0.001", "0.01"} <= set(ticks)
    # points of one line: 200 conversations first, each by its rate; one unit of accuracy is one length in pixels
    drawn = heights(page)
    expected = [0.1, 0.5, 0.2, 0.7, 0.3]
    unit = (drawn[0] - drawn[1]) / 0.4
    assert [(drawn[0] - y) / unit + 0.1 for y in drawn] == pytest.approx(expected, abs=0.005)
    bar = page.locator("#metric .error-bar").first.bounding_box()
    assert bar["height"] == pytest.approx(2 * ERROR * unit, abs=2.5)
    places = page.locator("#metric .dot").evaluate_all("dots => dots.map(dot => Number(dot.getAttribute('cx')))")
    assert places[1] - places[0] == pytest.approx(
        places[4] - places[3], abs=0.2
    )  # decades are equally wide: a log axis
    assert overflow(page) == 0


def test_the_data_size_can_be_the_axis(open_page: Open, swept: Path) -> None:
    page = open_page(swept)
    assert texts(page, "#metric .choice label") == ["lr", "task conversations", "tokens"]
    page.get_by_text("tokens", exact=True).first.click()
    places = page.locator("#metric .dot").evaluate_all("dots => dots.map(dot => Number(dot.getAttribute('cx')))")
    assert len(set(places)) == 2  # 14,000 and 140,000 tokens
    assert "along: tokens" in texts(page, "#metric .legend")[0]


def test_the_table_is_sorted_and_names_what_failed(open_page: Open, swept: Path) -> None:
    page = open_page(swept)
    rows = texts(page, "#settings tbody tr")
    assert [row.split()[2] for row in rows] == ["0.7", "0.5", "0.3", "0.2", "0.1", "–"]
    assert "best" in rows[0] and "failed" in rows[-1]
    notes = texts(page, "#notes li")
    assert notes[0].startswith("Best: lr=0.001, task_conversations=2000, 0.7 ± 0.05")
    assert "the largest that was tried" in notes[2]
    assert page.locator("#settings b").count() == 0  # an error's text is never markup


def test_curves_of_all_trials(open_page: Open, swept: Path) -> None:
    page = open_page(swept)
    assert texts(page, "#curves figcaption h3") == ["Loss"]
    assert page.locator("#curves .series-chip").count() == 5
    assert page.locator("#curves path.line").count() == 5


def test_it_fits_a_narrow_window(open_page: Open, swept: Path) -> None:
    assert overflow(open_page(swept, width=390)) == 0
