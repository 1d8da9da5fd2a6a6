"""Each stage as a function: what it gives, and that its recipe from the command line is the same work, to the bit."""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch
from datasets import Dataset
from pyarrow import parquet
from typer.testing import CliRunner

import ingot
from ingot.cli.app import app
from ingot.envs.environment import Environment, reward
from ingot.envs.episode import Episode
from ingot.envs.task import Task
from ingot.python.call import OF_EVERY_CALL
from ingot.python.result import Result
from ingot.recipe.stages import STAGES
from ingot.train.losses.terms import Distributions
from ingot.workspace.errors import CheckFailed, DataError, RecipeError
from ingot.workspace.files import read_json, read_jsonl
from ingot.workspace.progress import Progress
from tests.python.conftest import PAIRS, TALK, TINY

SAMPLED = {**TINY, "steps": 2, "prompts_per_step": 2, "max_new_tokens": 4, "record_every": 1}
SMALL_MODEL = {
    "width": 16,
    "layers": "layer*1",
    "blocks": {"layer": {"mixer": {"heads": 2, "key_value_heads": 1, "head_width": 8}, "feed_forward": {"width": 32}}},
}


class Digits(Environment):
    """Say a digit."""

    def draw(self, rng: random.Random) -> Task:
        number = str(rng.randrange(10))
        return self.ask(f"Say {number}.", number, thinking=False)

    @reward()
    def right(self, episode: Episode) -> float:
        return float(episode.answer == episode.task.answer)


def brevity(episode: Episode) -> float:
    return 1 - min(len(episode.answer), 10) / 10


def squared(tokens: Distributions) -> torch.Tensor:
    return tokens.logits.logsumexp(-1).square()


def sequences(step: int) -> list[dict[str, Any]]:
    return [TALK[step % len(TALK)], {"tokens": [5, 6, 7, 8], "weight": [0, 0, 1, 1]}]


def texts() -> Iterator[dict[str, str]]:
    for number in range(30):
        yield {"text": f"The cat number {number} sat on the mat and looked at the dog. " * 3}


def raw_to_model() -> Result:
    """From raw rows to a model of one's own: each stage takes the result of the one before it."""
    documents = ingot.curate(texts, ["fix_text", {"step": "exact_dedup"}], workers=1)
    words = ingot.tokenizer(documents, vocabulary_size=280)
    shards = ingot.tokenize(documents, words)
    phases = [{"until": 1, "weights": {"all": 1}}]
    size = {"sequence_length": 32, "batch_tokens": 64, "steps": 2, "device": "cpu", "precision": "float32"}
    return ingot.pretrain(shards, words, model=SMALL_MODEL, phases=phases, **size)


CALLS: dict[str, Callable[[Path], Result]] = {
    "sft": lambda model: ingot.sft(model, TALK, batch_conversations=4, lora={"rank": 2}, **TINY),
    "prefer": lambda model: ingot.prefer(
        model, PAIRS, batch_pairs=4, algorithm={"algorithm": "dpo", "beta": 0.2}, **TINY
    ),
    "reward": lambda model: ingot.reward(model, PAIRS, batch_answers=4, **TINY),
    "rl": lambda model: ingot.rl(model, Digits, rewards={brevity: 0.5}, group=2, **SAMPLED),
    "prompts": lambda model: ingot.rl(model, ["1 + 1?", "2 + 1?"], rewards=[brevity], group=2, **SAMPLED),
    "distill": lambda model: ingot.distill(model, model, {Digits: 1.0}, **SAMPLED),
    "merge": lambda model: ingot.merge({"one": model, "two": model}, weights=[1.0, 3.0]),
    "fit": lambda model: ingot.fit(model, sequences, squared, **TINY),
    "fit_list": lambda model: ingot.fit(model, [TALK[:3], TALK[3:6]], squared, **TINY),
    "pretrain": lambda model: raw_to_model(),
}


def weights(stage: Path) -> dict[str, str]:
    """The hash of every file with weights."""
    found = [file for name in ("checkpoint", "reward_model") for file in (stage / name).rglob("*.distcp")]
    assert found
    return {str(file.relative_to(stage)): hashlib.sha256(file.read_bytes()).hexdigest() for file in found}


def from_command_line(recipe: str, *words: str) -> dict[str, Any]:
    """The only stage of what `ingot run` does with the recipe."""
    Path("recipe.yaml").write_text(recipe, encoding="utf-8")
    done = CliRunner().invoke(app, ["run", "recipe.yaml", "--json", *words], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    (stage,) = json.loads(done.stdout)["stages"]
    return dict(stage)


@pytest.mark.parametrize("name", CALLS)
def test_a_call_is_its_recipe(name: str, model: Path) -> None:
    """The command line reuses what the call made, and makes the same weights where there is nothing to reuse."""
    result = CALLS[name](model)
    assert result.finished and result.stage.status == "done"
    reused = from_command_line(result.as_recipe())
    assert reused["status"] == "reused" and reused["folder"] == result.folder.name
    made = from_command_line(result.as_recipe(), "--runs", "others")
    assert made["status"] == "done" and made["folder"] == result.folder.name
    assert weights(Path("others") / result.recipe.name / made["folder"]) == weights(result.folder)
    assert CALLS[name](model).stage.status == "reused"


def test_a_result_is_a_path_with_numbers(model: Path) -> None:
    result = ingot.sft(str(model), TALK, name="mine", seed=3, **TINY)
    assert result.folder.parent == Path("runs/mine") and result.recipe.seed == 3
    assert result.checkpoint == result.folder / "checkpoint"
    assert result.metrics == read_jsonl(result.folder / "metrics.jsonl") and len(result.metrics) == TINY["steps"]
    assert result.metrics.columns["loss"] == [row["loss"] for row in result.metrics]
    assert result.summary["loss"] == result.metrics[-1]["loss"]
    assert ingot.load(result).config == ingot.load(result.checkpoint).config
    assert read_json(ingot.export_model(result, "exported") / "config.json")["vocab_size"]


def test_the_report_is_of_the_result_that_is_asked(model: Path) -> None:
    """Although a later call was the run's last."""
    first = ingot.sft(model, TALK, **TINY)
    second = ingot.sft(model, TALK, **{**TINY, "steps": 2})
    for result, other in ((first, second), (second, first), (first, second)):
        page = result.report().read_text(encoding="utf-8")
        assert result.folder.name in page and other.folder.name not in page


def test_rows_are_as_good_as_a_file(model: Path) -> None:
    """A list, a generator, a function that gives one, a data set, and a file with the same lines."""
    lines = "".join(json.dumps(row) + "\n" for row in TALK)
    Path("talk.jsonl").write_text(lines, encoding="utf-8")
    rows: list[Any] = [TALK, (row for row in TALK), lambda: iter(TALK), Dataset.from_list(TALK)]
    given = [*rows, "talk.jsonl", [Path("talk.jsonl")]]
    made = [ingot.sft(model, each, **TINY) for each in given]
    (written,) = Path("runs/sft/rows").iterdir()
    assert written.stat().st_mode == Path("talk.jsonl").stat().st_mode  # others may read it as they may any file
    assert len({json.dumps(weights(each.folder)) for each in made}) == 1
    assert [each.stage.status for each in made] == ["done", "reused", "reused", "reused", "done", "reused"]
    other = ingot.sft(model, [*TALK[1:], TALK[0]], **TINY)
    assert other.folder.name not in {each.folder.name for each in made}


def test_an_eval_has_scores_with_errors(model: Path) -> None:
    suites = [{"suite": "tasks", "kinds": [{"kind": Digits, "count": 2}], "max_new_tokens": 3, "rewards": [brevity]}]
    result = ingot.evaluate(model, suites, device="cpu")
    graded = [
        1 - min(len(each["completion"] or ""), 10) / 10 for each in read_jsonl(result.folder / "scores/samples.jsonl")
    ]
    assert result.scores["reward/brevity"].estimate.value == pytest.approx(sum(graded) / 2)
    shown = repr(result)
    assert f"reward/brevity: {sum(graded) / 2:.4g} ±" in shown and "(2)" in shown
    again = from_command_line(result.as_recipe())
    assert again["status"] == "reused" and again["folder"] == result.folder.name


def test_suites_by_name_file_and_limit(model: Path) -> None:
    Path("own.yaml").write_text(
        "rows: questions.jsonl\nquestion: '{{q}}'\noptions: '{{o}}'\nanswer: '{{a}}'\n", encoding="utf-8"
    )
    rows = [{"q": "1 + 1?", "o": ["2", "3"], "a": "2"}, {"q": "2 + 1?", "o": ["2", "3"], "a": "3"}]
    Path("questions.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    result = ingot.evaluate(model, ["own.yaml"], limit=1, device="cpu")
    assert {each.estimate.count for each in result.scores.values()} == {1}


def test_curated_rows_are_what_the_steps_leave() -> None:
    rows = [*texts(), *texts()]
    result = ingot.curate(rows, [{"step": "exact_dedup"}], workers=1)
    kept = [
        row for part in (result.folder / "documents").glob("*.parquet") for row in parquet.read_table(part).to_pylist()
    ]
    assert sorted(row["text"].strip() for row in kept) == sorted({row["text"].strip() for row in rows})
    by_file = ingot.curate(
        str(Path(result.folder / "../rows").resolve() / "*.jsonl"), [{"step": "exact_dedup"}], workers=1
    )
    assert by_file.summary["documents"] == result.summary["documents"] == 30


def test_a_reward_moves_what_it_rewards(model: Path) -> None:
    """Rewarded for a letter, the policy writes it more; what each answer earned is what the function says of it."""
    options = {
        **SAMPLED,
        "steps": 30,
        "prompts_per_step": 4,
        "group": 8,
        "optimizer": {"lr": 3e-3, "weight_decay": 0.0},
    }
    result = ingot.rl(model, ["1 + 1?", "2 + 1?", "3 + 1?", "4 + 1?"], rewards=[brevity], **options, canary=None)
    earned = result.metrics.columns["reward/brevity"]
    assert sum(earned[-5:]) / 5 > sum(earned[:5]) / 5 + 0.1
    rows = read_jsonl(result.folder / "trajectories.jsonl")
    assert rows and all(row["reward"] == pytest.approx(row["rewards"]["brevity"]) for row in rows)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda model: ingot.sft(model, TALK, stepz=3), "ingot.sft: unknown key sft.stepz\n  fix: did you mean steps?"),
        (lambda model: ingot.sft(model, TALK, **TINY, lora={"rnk": 2}), "sft.lora.rnk\n  fix: did you mean rank?"),
        (lambda model: ingot.sft(model, TALK, **TINY, files=["x"]), "ingot.sft: files is given twice"),
        (lambda model: ingot.sft(model, TALK, **TINY, checkpoint=model), "ingot.sft: checkpoint is given twice"),
        (
            lambda model: ingot.sft(model, TALK, **TINY, name="a", folder="b"),
            "name and folder both say where the run is",
        ),
        (lambda model: ingot.sft("nowhere", TALK, **TINY), "nowhere is neither an earlier stage nor an existing path"),
        (
            lambda model: ingot.sft(cast("Any", ingot.load(model)), TALK, **TINY),
            "checkpoint: a Transformer is no input",
        ),
        (lambda model: ingot.sft(model, [["a"]], **TINY), "row 1 of the data: it is a list, not a mapping"),
        (lambda model: ingot.sft(model, [{"text": {1, 2}}], **TINY), "row 1 of the data: it is not plain JSON"),
        (lambda model: ingot.sft(model, TALK[0], **TINY), "a mapping is one row, and rows are wanted"),
        (lambda model: ingot.sft(model, [], **TINY), "there are no rows"),
        (lambda model: ingot.sft(model, cast("Any", 5), **TINY), "the data: a int holds no rows\n  fix: give a list"),
        (lambda model: ingot.fit(model, 5, squared, **TINY), "the data: a int holds no rows"),
        (lambda model: ingot.rl(model, Digits(), **SAMPLED), "is no task kind\n  fix: give a class of Environment"),
        (lambda model: ingot.rl(model, dict, **SAMPLED), "<class 'dict'> is no task kind"),
        (lambda model: ingot.merge([]), "ingot.merge: merge.inputs.checkpoints: none is named"),
        (lambda model: ingot.evaluate(model, "gsm8k", data="nowhere"), "data: nowhere: there is no such folder"),
        (
            lambda model: ingot.prefer(model, PAIRS[:1], **TINY),
            "a step needs 16\n  fix: give more rows, a lower batch_p",
        ),
        (lambda model: ingot.sft(model, TALK, **TINY, name=""), "ingot.sft: name: '' is no name of a run"),
        (lambda model: ingot.sft(model, TALK, **TINY, name="../up"), "'../up' is no name of a run"),
        (lambda model: ingot.sft(model, TALK, **TINY, folder=__file__), f"{__file__} is a file"),
        (lambda model: ingot.sft(model, TALK, **TINY, progress=False), "ingot.sft: progress: a bool is no display"),
        (lambda model: ingot.rl(model, ["a"], rewards=brevity, **SAMPLED), "rl.rewards: write a list of functions"),
        (lambda model: ingot.rl(model, "arithmetik", **SAMPLED), "fix: did you mean arithmetic?"),
        (lambda model: ingot.rl(model, ["a"], rewards=[lambda e: 1.0], **SAMPLED), "a lambda has no source of its own"),
        (lambda model: ingot.fit(model, sequences, lambda: 0, **TINY), "a lambda has no source"),
        (lambda model: ingot.prefer(model, PAIRS, **TINY, reward_model=3), "reward_model: a int is no input"),
        (lambda model: ingot.prefer(ingot.sft(model, TALK, dry_run=True, **TINY), PAIRS), "this stage has not run yet"),
    ],
)
def test_what_is_wrong_is_said(call: Callable[[Path], Result], said: str, model: Path) -> None:
    with pytest.raises((RecipeError, DataError, CheckFailed)) as caught:
        call(model)
    assert said in str(caught.value)


def raising(tokens: Any) -> Any:
    return tokens.streams["missing"]


def detached(tokens: Any) -> Any:
    return tokens.logits.detach().logsumexp(-1)


def test_a_loss_without_a_gradient_is_named(model: Path) -> None:
    with pytest.raises(CheckFailed, match="detached: the loss has no gradient"):
        ingot.fit(model, sequences, detached, **TINY)


def test_a_loss_that_raises_is_named(model: Path) -> None:
    with pytest.raises(CheckFailed, match="test_stages:raising: the loss raised KeyError: 'missing'"):
        ingot.fit(model, sequences, raising, **TINY)


class Lines(Progress):
    """What is said, as a list."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def say(self, text: str) -> None:
        self.said.append(text)


@pytest.mark.parametrize(
    ("row", "rewards", "warned"),
    [({}, [], True), ({"answer": "2"}, [], False), ({}, [brevity], False)],
)
def test_prompts_that_can_earn_nothing_are_warned_of(row: Any, rewards: Any, warned: bool, model: Path) -> None:
    shown = Lines()
    ingot.rl(model, [{"prompt": "1 + 1?", **row}], rewards=rewards, group=2, progress=shown, **SAMPLED)
    assert any("whatever is answered earns 0" in line for line in shown.said) is warned


def test_numbers_of_numpy_are_numbers(model: Path) -> None:
    """As those of a sweep in a notebook are."""
    plain = ingot.sft(model, TALK, dry_run=True, **TINY, optimizer={"lr": 0.25}, batch_conversations=4)
    rate, size = np.float32(0.25), np.int64(4)
    found = ingot.sft(model, TALK, dry_run=True, **TINY, optimizer={"lr": rate}, batch_conversations=size)
    assert found.folder == plain.folder and found.as_recipe() == plain.as_recipe()


def test_a_dry_run_runs_nothing_and_knows_its_folder(model: Path) -> None:
    planned = ingot.sft(model, TALK, dry_run=True, **TINY)
    assert not planned.finished and not planned.folder.exists() and planned.checkpoint is None
    assert ingot.sft(model, TALK, **TINY).folder == planned.folder


def test_torchrun_is_sent_to_the_command(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(RecipeError, match="torchrun started several processes") as caught:
        ingot.sft(model, TALK, **TINY)
    assert "ingot.sft(…, dry_run=True).as_recipe()" in str(caught.value)


def test_no_option_of_a_stage_has_the_name_of_an_input_or_of_a_keyword_of_every_call() -> None:
    for stage in STAGES.values():
        options = set(stage.config.model_fields)
        assert not options & {*stage.needs, *OF_EVERY_CALL}, stage.kind
