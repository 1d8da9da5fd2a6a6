"""`ingot eval`: a model and suites on the command line, the list of suites, and what is wrong said plainly."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
from typer.testing import CliRunner

from ingot.cli.app import app
from ingot.cli.show import show_rows
from ingot.evals.bases.choices import Item, ItemLikelihoods, choice_metrics
from ingot.evals.bases.suites import SUITES
from ingot.evals.engine.request import Likely
from ingot.evals.scores.history import save_step
from ingot.evals.scores.printed import score_rows
from ingot.evals.scores.scores import load_scores, metric_of_units, save_scores
from ingot.workspace.errors import IngotError, RecipeError
from tests.evals.conftest import World, world  # noqa: F401
from tests.making.rows import write_rows
from tests.post.making import checkpoint_of, tiny_model

SUITE = '''"""Which of two words is likelier."""

from ingot.evals.bases.file_suite import FileSuite
from ingot.evals.engine.request import Likelihood, Question
from ingot.evals.scores.scores import metric_of_units
from ingot.evals.bases.suite import Measured


class Words(FileSuite):
    """Which of two words is likelier."""

    local = ("words/*.jsonl",)

    def measure(self, subject):
        rows = [row for _, row in self.rows(subject)]
        answers = yield [Likelihood(Question(row["text"]), word) for row in rows for word in row["words"]]
        right = {row["text"]: float(first.logprob > second.logprob)
                 for row, first, second in zip(rows, answers[::2], answers[1::2])}
        return Measured([metric_of_units("words/accuracy", right, "Accuracy, words", chance=0.5)])
'''


def ingot(*words: object) -> str:
    """What the command prints."""
    result = CliRunner().invoke(app, [str(word) for word in words])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result.stdout


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "mine.py").write_text(SUITE)
    (tmp_path / "data" / "words").mkdir(parents=True)
    rows = [{"text": f"The sum {number}", "words": ["numbers", "return"]} for number in range(7)]
    write_rows(tmp_path / "data" / "words" / "test.jsonl", rows)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_model_is_measured_with_a_suite_of_ones_own(world: World, folder: Path) -> None:  # noqa: F811
    asked = ("eval", world.checkpoint, "--suite", "mine.py:Words", "--form", "text", "--limit", 5, "--device", "cpu")
    text = ingot(*asked, "--data", "data")
    (scores,) = folder.glob("runs/eval-*/eval-*/scores")
    found = load_scores(scores)["words/accuracy"]
    assert found.estimate.count == 5 and f"{found.estimate.value:.4f}" in text
    assert str(scores.relative_to(folder)) in text and "ingot eval compare" in text
    said = json.loads(ingot(*asked, "--data", "data", "--json"))
    assert said["stages"][0]["status"] == "reused"
    assert said["stages"][0]["summary"]["words/accuracy"] == found.estimate.value
    # a run stands for its last scores
    assert ingot("eval", "compare", scores.parents[1], scores) == ingot("eval", "compare", scores.parent, scores)
    chat = ("--form", "chat", "--thinking", "both")
    both = json.loads(ingot(*asked, "--data", "data", *chat, "--json"))["stages"][0]["summary"]
    assert set(both) == {"think/words/accuracy", "no_think/words/accuracy"}
    with pytest.raises(IngotError, match="not there"):
        ingot(*asked)
    with pytest.raises(IngotError, match="no scores here") as caught:  # the last run has none
        ingot("eval", "compare", scores, scores.parents[1])
    assert str(scores.parent) in (caught.value.fix or "")


def test_a_file_of_options_is_measured_as_before(world: World, folder: Path) -> None:  # noqa: F811
    (folder / "evals.yaml").write_text("device: cpu\nsuites: [{suite: continuations, texts: [The], tokens: 3}]\n")
    assert "done" in ingot("eval", "evals.yaml", "--input", f"checkpoint={world.checkpoint}")


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("MODEL",), "no suite is named"),
        (("--suite", "tasks"), "give a model or --endpoint"),
        (("MODEL", "--endpoint", "http://127.0.0.1:1/v1", "--suite", "tasks"), "give a model or --endpoint"),
        (("MODEL", "--suite", "task"), "there is no eval suite task"),
        (("nothing", "--suite", "tasks"), "there is no model nothing"),
        (("MODEL", "--suite", "tasks", "--form", "verse"), "form"),
        (("MODEL", "--suite", "tasks", "--set", "slotz=3"), "slotz"),
    ],
)
def test_wrong_words_are_named(world: World, folder: Path, words: tuple[str, ...], problem: str) -> None:  # noqa: F811
    given = [str(world.checkpoint) if word == "MODEL" else word for word in words]
    with pytest.raises(RecipeError, match=problem):
        ingot("eval", *given)
    assert not (folder / "runs").exists()


def test_every_suite_is_listed_and_says_what_it_measures() -> None:
    rows = json.loads(ingot("eval", "list", "--json"))
    assert [row["name"] for row in rows] == SUITES.names() and all(len(row["about"]) > 10 for row in rows)
    assert "lm_eval:TASK" in ingot("eval", "list")


def test_signals_of_several_runs(tmp_path: Path) -> None:
    """One metric rises in all runs and ranks two models alike; one stays at chance."""
    generator = random.Random(0)
    for run, lead in (("a", 0.0), ("b", 0.0), ("c", 0.2)):
        for step in range(100, 1000, 100):
            chances = {"good": 0.25 + lead + step / 2500, "bad": 0.25}
            metrics = [
                metric_of_units(
                    name, {str(unit): float(generator.random() < chance) for unit in range(500)}, name, chance=0.25
                )
                for name, chance in chances.items()
            ]
            save_step(tmp_path / run / "history", step, metrics, [], 1.0)
    named = ("small=" + str(tmp_path / "a"), "small=" + str(tmp_path / "b"), "large=" + str(tmp_path / "c"))
    rows = {row["metric"]: row for row in json.loads(ingot("eval", "signal", *named, "--json"))}
    assert (rows["good"]["kind"], rows["bad"]["kind"]) == ("stable", "blind")
    assert rows["good"]["seed_noise"] is not None and rows["good"]["ordering"] == 1  # two seeds, and two models
    assert "stable" in ingot("eval", "signal", *named)
    with pytest.raises(RecipeError, match="no history of several steps"):
        ingot("eval", "signal", tmp_path)
    with pytest.raises(RecipeError, match="no such run or stage"):
        ingot("eval", "signal", tmp_path / "nothing")


@pytest.mark.slow
def test_a_model_divided_over_two_processes(world: World, folder: Path) -> None:  # noqa: F811
    """The same scores to the last digits; it is the same work, so that a result is found again. Weights are not looked into."""
    assert world.model.tokenizer is not None
    model = checkpoint_of(tiny_model(world.model.tokenizer), folder / "model")  # that of the world has one key head
    asked = ("eval", model, "--suite", "mine.py:Words", "--form", "text", "--device", "cpu", "--data", "data")
    kept = ("--set", "remember=false", "--json")
    found = json.loads(ingot(*asked, *kept, "--set", "tensor=2", "--runs", "divided"))["stages"][0]
    whole = json.loads(ingot(*asked, *kept, "--runs", "whole"))["stages"][0]
    assert found["summary"] == whole["summary"] and found["status"] == whole["status"] == "done"
    assert json.loads(ingot(*asked, *kept, "--runs", "divided"))["stages"][0]["status"] == "reused"
    with pytest.raises(RecipeError, match="the model is divided over devices"):
        ingot("eval", model, "--suite", "preferences", "--device", "cpu", "--set", "tensor=2")


def test_a_score_is_found_by_the_name_that_others_give_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """HellaSwag's accuracy by characters is what the LM evaluation harness calls acc_norm."""
    items = [Item(f"Question {number}", ("a", "bbbb"), 0) for number in range(3)]
    answered = [
        ItemLikelihoods(str(n), item, (Likely(-1.0, True, 1), Likely(-2.0, False, 4)), None)
        for n, item in enumerate(items)
    ]
    save_scores(tmp_path / "scores", choice_metrics("hellaswag", answered, ("raw", "character", "token")), [])
    loaded = load_scores(tmp_path)
    assert [metric.also for metric in loaded.values()] == ["acc", "acc_norm", ""]
    show_rows(score_rows(loaded.values()))
    shown = [line.split()[:3] for line in capsys.readouterr().out.splitlines()[1:]]
    assert ["hellaswag/accuracy_by_character", "(acc_norm)", "0.0000"] in shown
    assert ["hellaswag/accuracy", "(acc)", "1.0000"] in shown
