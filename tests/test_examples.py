"""Every file of examples/ does what its first lines say, on a tiny model: as its own command, with fewer steps."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pyarrow import parquet
from typer.testing import CliRunner

import ingot
from ingot.cli.app import app
from ingot.evals.scores.scores import load_scores
from ingot.workspace.files import read_jsonl
from tests.evals.conftest import World
from tests.evals.conftest import world as world
from tests.inference.fake_server import Reply, calls, fake_server, text
from tests.making.rows import write_rows

EXAMPLES = Path(__file__).parents[1] / "examples"
SMALL = "device=cpu precision=float32 sequence_length=128 steps=2 epochs=null"
RUNS = {  # recipe: the changes that make it small
    "sft.yaml": f"{SMALL} files=[conversations.jsonl] lora.rank=2",
    "dpo.yaml": f"{SMALL} pairs.files=[pairs.jsonl]",
    "rl.yaml": f"{SMALL.removesuffix(' epochs=null')} prompts_per_step=2 group=2 max_new_tokens=4 record_every=1",
    "distill.yaml": f"{SMALL.removesuffix(' epochs=null')} prompts_per_step=2 max_new_tokens=4",
    "eval.yaml": "device=cpu suites.0.kinds.0.count=4 suites.0.max_new_tokens=4",
    "curate.yaml": "sources.0.files=texts",
}
INPUTS = {"distill.yaml": ["teacher=CHECKPOINT"], "curate.yaml": None}
TALK = {"messages": [{"role": "user", "content": "hello"}, {"role": "assistant", "content": "hi"}]}
PAIR = {"prompt": "hello", "chosen": "hi", "rejected": "no"}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with data to run in."""
    monkeypatch.chdir(tmp_path)
    for name, row in (("conversations", TALK), ("pairs", PAIR)):
        write_rows(Path(f"{name}.jsonl"), [row] * 8)
    Path("texts").mkdir()
    words = "The cat and the dog have a house with a garden, and that is what they like to be in. " * 8
    Path("texts/page.html").write_text(f"<html><body><article><p>{words}</p></article></body></html>", encoding="utf-8")
    Path("texts/copy.txt").write_text(words, encoding="utf-8")
    return tmp_path


@pytest.mark.parametrize("name", sorted(RUNS))
def test_a_recipe(name: str, world: World) -> None:
    path = EXAMPLES / name
    kind = next(
        line.split()[2] for line in path.read_text(encoding="utf-8").splitlines() if line.startswith("#   ingot ")
    )
    words = [kind, str(path)]
    given = ["checkpoint=CHECKPOINT", *(INPUTS.get(name) or [])] if name != "curate.yaml" else []
    for each in given:
        words += ["--input", each.replace("CHECKPOINT", str(world.checkpoint))]
    for change in RUNS[name].split():
        words += ["--set", change]
    result = CliRunner().invoke(app, words, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    (stage,) = [done.parent for done in Path("runs").glob("*/*/DONE")]
    if kind == "curate":
        kept, removed = (
            [row for part in (stage / name).glob("*.parquet") for row in parquet.read_table(part).to_pylist()]
            for name in ("documents", "removed")
        )
        assert (
            len(kept) == 1 and "<" not in kept[0]["text"] and len(removed) == 1
        )  # a page, and a text that is its copy
    elif kind == "eval":
        assert load_scores(stage)["accuracy/backwards"].estimate.count == 4
    else:
        assert len(read_jsonl(stage / "metrics.jsonl")) >= 1
        assert ingot.load(stage).config.width == world.model.config.width


def program(name: str, *arguments: str, capsys: pytest.CaptureFixture[str]) -> str:
    """What a program of the examples prints."""
    before = sys.argv
    sys.argv = [name, *arguments]
    try:
        runpy.run_path(str(EXAMPLES / name), run_name="__main__")
    finally:
        sys.argv = before
    return capsys.readouterr().out


def test_sampling_in_a_batch(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    lines = program("sample.py", str(world.checkpoint), "def f", "import", capsys=capsys).splitlines()
    assert [line.split(" → ")[0] for line in lines] == ["'def f'"] * 2 + ["'import'"] * 2


def test_from_python(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    """Stages as functions; a script's own reward is in a file of the run, and what was run is reused."""
    for _ in range(2):
        *lines, recipe = program(
            "from_python.py", str(world.checkpoint), "conversations.jsonl", "2", capsys=capsys
        ).split("# ")
        assert "taught: " in lines[-1] and "brief: " in lines[-1] and "brevity-" in recipe
    assert [path.parent.parent.name for path in sorted(Path("runs").glob("*/*/DONE"))] == ["eval", "eval", "rl", "sft"]


def test_scoring_says_what_the_evals_say(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    """Bits per byte as a log-softmax by numpy in float64 gives them."""
    written = "def json(self):"
    *_, last = program("score.py", str(world.checkpoint), written, capsys=capsys).splitlines()
    tokens = [world.tokenizer.end_of_text, *world.tokenizer.encode(written)]
    with torch.inference_mode():
        logits = ingot.load(world.checkpoint)(torch.tensor([tokens]))[0].double().numpy()
    total = sum(row[token] - np.log(np.exp(row).sum()) for row, token in zip(logits, tokens[1:], strict=False))
    assert float(last.split()[0]) == pytest.approx(-total / np.log(2) / len(written), abs=1e-3)


def test_a_loop_of_ones_own_learns(capsys: pytest.CaptureFixture[str]) -> None:
    """It begins at the uniform distribution and ends below the entropy of the bytes' frequencies."""
    written = b"the quick brown fox jumps over the lazy dog. " * 40
    Path("text.txt").write_bytes(written)
    lines = program("train_loop.py", "text.txt", "61", capsys=capsys).splitlines()
    first, last = (float(line.split()[2]) for line in (lines[0], lines[-1]))
    shares = np.bincount(np.frombuffer(written, np.uint8)) / len(written)
    assert (
        first == pytest.approx(np.log(256), abs=0.1) and last < -(shares[shares > 0] * np.log(shares[shares > 0])).sum()
    )


def test_an_average_of_two(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    other = ingot.load(world.checkpoint)
    with torch.no_grad():
        other.embedding.weight.mul_(3.0)
    ingot.export_model(other, "other")
    program("average.py", "out", str(world.checkpoint), "other", capsys=capsys)
    mean, one = ingot.load("out"), ingot.load(world.checkpoint)
    torch.testing.assert_close(mean.embedding.weight, 2 * one.embedding.weight)


def test_a_client_runs_the_tool_that_the_server_asks_for(capsys: pytest.CaptureFixture[str]) -> None:
    def answer(body: dict[str, Any]) -> Reply:
        last = body["messages"][-1]
        return text(last["content"]) if last["role"] == "tool" else calls("add", '{"a": 2, ', '"b": 3}')

    with fake_server(answer) as server:
        assert program("ask_a_server.py", "2 + 3?", f"{server.url}/v1", capsys=capsys) == "5\n"


@pytest.mark.parametrize(
    ("name", "metric", "options"),
    [
        ("vibe.py:Vibe", "vibe/characters", {}),
        ("instruction_hierarchy.py:InstructionHierarchy", "instruction_hierarchy/followed", {}),
        ("gsm_perturbed.py:GsmPerturbed", "gsm_perturbed/original", {"shots": 0, "files": "[problems.jsonl]"}),
    ],
)
def test_a_suite(name: str, metric: str, options: dict[str, Any], world: World) -> None:
    """One that is no part of the package measures a model; its metrics have its class's name."""
    row = {"question": "Ann has 12 pens and buys 30. How many has she?", "answer": "12+30=<<12+30=42>>42\n#### 42"}
    write_rows(Path("problems.jsonl"), [row])
    words = [
        "eval",
        "model",
        str(world.checkpoint),
        "--suite",
        f"{EXAMPLES}/evals/{name}",
        "--device",
        "cpu",
        "--limit",
        "2",
    ]
    for key, value in ({"max_new_tokens": 3} | options).items():
        words += ["--set", f"suites.0.{key}={value}"]
    result = CliRunner().invoke(app, words, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    (stage,) = [done.parent for done in Path("runs").glob("*/*/DONE")]
    assert metric in load_scores(stage)
