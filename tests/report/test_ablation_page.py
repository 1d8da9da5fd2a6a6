"""The notebook of an ablation in a real browser: the forest plot, the table and the links are the numbers of the runs."""

from __future__ import annotations

import os
import statistics
from pathlib import Path

import pytest
import scipy.stats

from ingot.lab.ablation import plan_ablation
from ingot.lab.findings import find
from ingot.lab.state import LabState
from ingot.recipe.flow import run_recipe
from ingot.report.ablation import write_notebook
from ingot.workspace.files import read_json
from tests.lab.toy_lab import TABLE

from .browsing import CHROMIUM, Open, overflow, texts

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason="needs Debian's chromium (apt-get install chromium)"),
]
RECIPE = """
name: small
stages:
  make: { text: a }
  train: { steps: 4, optimizer: { learning_rate: 0.1 } }
"""
FILE = """
baseline: r.yaml
seeds: 3
measure: { stage: train, metric: loss, lower_is_better: true }
interventions:
  better: { set: { train.optimizer.learning_rate: 0.3 }, predicted: <b>better</b> }
  worse: { set: { train.optimizer.learning_rate: 0.05 } }
  other: { set: { make.text: b } }
  broken: { set: { train.fail_at: 6 } }
  rate: { values: { train.optimizer.learning_rate: [0.2, 0.4] } }
"""


@pytest.fixture(scope="module")
def notebook(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder, here = tmp_path_factory.mktemp("ablation"), Path.cwd()
    os.chdir(folder)
    try:
        Path("r.yaml").write_text(RECIPE)
        Path("a.yaml").write_text(FILE)
        made, state = plan_ablation(Path("a.yaml"), TABLE), LabState()
        for run in made.runs:
            if run.arm.name == "broken":
                state.failed[run.name] = "CheckFailed: <b>NaN</b>"
                continue
            run_recipe(run.recipe, folder / "runs", only=made.needs(run.recipe), table=TABLE)
        state.predict("better", "<b>better</b>", measured=False)
        return write_notebook(find(made, folder / "runs", state), made.folder(folder / "runs"))
    finally:
        os.chdir(here)


def test_the_forest_is_the_gains_and_their_intervals(open_page: Open, notebook: Path) -> None:
    page = open_page(notebook)
    found = read_json(notebook.with_name("ablation.json"))
    values: dict[str, list[float]] = {}
    for run in found["runs"]:
        if run["values"]:
            values.setdefault(run["arm"], []).append(run["values"]["loss"])
    base = values["baseline"]
    names = ["better", "worse", "other", "broken", "rate-learning_rate=0.2", "rate-learning_rate=0.4"]
    rows = dict(zip(names, page.locator("#decisions .forest-row").all_text_contents(), strict=True))
    assert all(row.startswith(name) for name, row in rows.items())
    assert "not measured" in rows["broken"]
    test = scipy.stats.ttest_ind(values["other"], base, equal_var=False)  # other documents: not paired
    interval = test.confidence_interval()
    low, high = (100 * -end / statistics.fmean(base) for end in (interval.high, interval.low))
    assert f"[{low:+.2f} %, {high:+.2f} %]".replace("-", "−") in rows["other"]
    # one percent is one length in pixels, from the line of no difference
    zero = float(page.locator("#decisions .zero").first.get_attribute("x1"))
    dots = page.locator("#decisions .forest-row .dot").evaluate_all(
        "dots => dots.map(dot => Number(dot.getAttribute('cx')))"
    )
    gains = [1 - statistics.fmean(values[name]) / statistics.fmean(base) for name in names if name in values]
    unit = (dots[0] - zero) / gains[0]
    assert [(dot - zero) / unit for dot in dots] == pytest.approx(gains, abs=1e-6)
    bar = page.locator("#decisions .forest-row .error-bar").nth(2).bounding_box()
    assert bar["width"] == pytest.approx((high - low) / 100 * unit, abs=2.5)


def test_verdicts_predictions_and_failures_are_words(open_page: Open, notebook: Path) -> None:
    page = open_page(notebook)
    table = texts(page, "#decisions tbody tr")
    assert "adopt better at loss" in table[1] and "reject worse at loss" in table[2]
    assert "cannot tell" in table[3] and "cannot tell nothing was measured" in table[4]
    assert any("<b>better</b>" in row for row in texts(page, "#arms tbody tr"))
    assert page.locator("#arms b, #runs b").count() == 0  # what a person or an error wrote is never markup
    assert sum("failed" in row for row in texts(page, "#runs tbody tr")) == 3
    assert any("paired by seed, but other, broken not: other data (Welch)" in note for note in texts(page, "#notes li"))


def test_a_sweep_has_its_parabola(open_page: Open, notebook: Path) -> None:
    page = open_page(notebook)
    assert page.locator("#sweeps .dot").count() == 3  # the values that were tried, the baseline's among them
    assert (
        "at the largest value that was tried" in texts(page, "#sweeps .legend")[0]
        or "no optimum" in texts(page, "#sweeps .legend")[0]
    )


def test_it_fits_a_narrow_window(open_page: Open, notebook: Path) -> None:
    assert overflow(open_page(notebook, width=390)) == 0
