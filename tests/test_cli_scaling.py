"""`ingot scaling fit` from the command line: what it reads, prints and refuses."""

from __future__ import annotations

import csv
import gzip
import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner, Result

from ingot.cli.app import app
from ingot.lab.fit_law import MeasuredRun, fit_law
from ingot.lab.loss_law import LossLaw
from ingot.workspace.errors import DataError, IngotError

TRUTH = LossLaw(1.8, 480.0, 2000.0, 0.35, 0.37)
SIZES = (2e7, 5e7, 1e8, 2e8, 4e8)
RATIOS = (5.0, 20.0, 80.0)


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Fifteen runs of a known law with half a percent of noise."""
    monkeypatch.setenv("COLUMNS", "200")
    random = np.random.default_rng(0)
    path = tmp_path / "runs.csv"
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["N", "D", "FLOPs 6ND", "loss", "data"])
        for size in SIZES:
            for ratio in RATIOS:
                loss = TRUTH.loss(size, ratio * size) * float(np.exp(random.normal(0, 0.005)))
                writer.writerow([size, ratio * size, 6 * ratio * size**2, loss, "web"])
    return path


def fit(*words: object) -> Result:
    return CliRunner().invoke(app, ["scaling", "fit", *map(str, words), "--draws", "100"], catch_exceptions=False)


def measured(table: Path) -> list[MeasuredRun]:
    """The table read a second time."""
    with table.open() as file:
        rows = csv.DictReader(file)
        return [MeasuredRun(float(row["N"]), float(row["D"]), float(row["loss"]), str(i)) for i, row in enumerate(rows)]


def test_json_answers_every_question(table: Path) -> None:
    words = ("--budget", "1e21", "--ratio", "200", "--serve", "1e12", "--at", "7e9,1e11", "--hold-out", "1", "--json")
    found = json.loads(fit(table, *words).stdout)
    rows = sorted(measured(table), key=lambda row: row.parameters * row.tokens)
    law = fit_law(rows[:-1], draws=100).law
    assert found["law"] == pytest.approx(
        {name: getattr(law, name) for name in ("E", "A", "B", "alpha", "beta")}, rel=1e-6
    )
    best, ratio, serve = (each["model"]["parameters"] for each in found["budgets"])
    assert [best, ratio, serve] == pytest.approx(
        [law.best(1e21).parameters, (1e21 / 6 / 200) ** 0.5, law.best_to_serve(1e21, 1e12).parameters], rel=1e-5
    )
    asked, held = found["predictions"]
    assert asked["loss"]["value"] == pytest.approx(law.loss(7e9, 1e11), rel=1e-6)
    assert asked["measured"] is None and asked["miss"] is None
    assert held["measured"] == rows[-1].loss
    assert held["miss"] == pytest.approx(law.loss(4e8, 3.2e10) / rows[-1].loss - 1, rel=1e-5)
    assert held["beyond"] == pytest.approx(4)  # the next: 2e8 at 80, a quarter of its compute


def test_text_says_what_was_counted_and_missed(table: Path) -> None:
    text = fit(table, "--at", "7e9,2e12", "--hold-out", "1").stdout
    assert "14 rows of 14 runs; N is `N`, 2e+07 to 4e+08; D is `D`, 1e+08 to 1.6e+10; loss is `loss`; 1 of most" in text
    assert "held out: " in text and " of 1 runs inside their interval, mean miss " in text
    assert "a prediction beyond 100 x the fitted compute: its interval assumes that the law goes on" in text
    assert ["400M", "32B"] in [line.split()[:2] for line in text.splitlines()]


def test_tokens_from_flops_and_a_nested_table_in_a_zip_give_the_same_law(table: Path, tmp_path: Path) -> None:
    plain = json.loads(fit(table, "--json").stdout)["law"]
    flops = json.loads(fit(table, "--flops", "FLOPs 6ND", "--json").stdout)["law"]
    assert flops == pytest.approx(plain, rel=1e-6)
    path = tmp_path / "runs.jsonl.gz"
    lines = [
        {"of": {"size": row.parameters, "seen": row.tokens}, "eval": [0, {"loss": row.loss}], "data": data}
        for data in ("web", "code")
        for row in measured(table)
    ]
    path.write_bytes(gzip.compress("\n".join(map(json.dumps, lines)).encode()))
    names = ("--parameters", "of.size", "--tokens", "of.seen", "--loss", "eval.1.loss")
    assert json.loads(fit(path, *names, "--where", "data=code", "--json").stdout)["law"] == pytest.approx(
        plain, rel=1e-6
    )


def test_runs_that_follow_no_law_are_called_so(table: Path) -> None:
    """A loss that falls ever faster with tokens, as early in training, and steeply with the size."""
    with table.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["N", "D", "loss"])
        for size in SIZES:
            for ratio in RATIOS:
                writer.writerow([size, ratio * size, 8 - 0.02 * np.log10(ratio * size) ** 2 + (2e7 / size) ** 3])
    text = " ".join(fit(table).stdout.split())
    assert "E went to zero: the loss falls faster than this law" in text
    assert "alpha above 1.5 is unusually steep" in text


def test_the_highest_losses_can_be_dropped(table: Path) -> None:
    dropped = json.loads(fit(table, "--drop-highest", "2", "--json").stdout)["law"]
    law = fit_law(sorted(measured(table), key=lambda row: row.loss)[:-2], draws=100).law
    assert dropped["alpha"] == pytest.approx(law.alpha, rel=1e-6)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--ratio", "20"), "--ratio needs a budget"),
        (("--budget", "-1"), "a number above zero is needed"),
        (("--at", "7e9"), "this is not N,D"),
        (("--at", "0,1"), "N and D are above zero"),
        (("--where", "data"), "a column and its value are needed"),
        (("--where", "data=books"), "no row has data = books\n  fix: its values are web"),
        (("--loss", "data"), "runs.csv:2: data is 'web', not a number above zero"),
        (("--loss", "bits"), "runs.csv:2: there is no bits"),
        (("--tokens", "D", "--flops", "FLOPs 6ND"), "tokens are given twice"),
        (("--hold-out", "15"), "of 15 rows none is left for the fit"),
    ],
)
def test_refusals(table: Path, words: tuple[str, ...], said: str) -> None:
    with pytest.raises(IngotError) as refused:
        fit(table, *words)
    assert said in str(refused.value)


def test_a_table_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    for name, content, said in (
        ("a.txt", "", "a table is .csv or .jsonl"),
        ("a.csv", "N,D,loss\n", "the table has no rows"),
        (
            "b.csv",
            "size,D,loss\n1,2,3\n",
            "no column of parameters\n  fix: name it, --parameters COLUMN: one of D, loss, size",
        ),
        ("c.csv", "N,params,D,loss\n1,1,2,3\n", "several columns of parameters: N, params"),
        ("d.csv", "N,loss\n1,1\n", "no column of tokens"),
        ("a.jsonl", "{", "a.jsonl:1: this is not JSON"),
        ("b.jsonl", "[]", "b.jsonl:1: this is not an object"),
    ):
        path = tmp_path / name
        path.write_text(content)
        with pytest.raises(DataError) as refused:
            fit(path)
        assert said in str(refused.value)
    with pytest.raises(DataError, match="there is no such table"):
        fit(tmp_path / "none.csv")
