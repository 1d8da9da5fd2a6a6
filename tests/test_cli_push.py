"""`ingot push`: what arrives on a hub is what an export writes, with a card whose numbers are those of the run."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import huggingface_hub.constants as constants
import pytest
import torch
import yaml
from typer.testing import CliRunner

import ingot
from ingot.cli.app import app
from ingot.evals.scores.scores import load_scores
from ingot.workspace.errors import ArtifactError, IngotError
from ingot.workspace.runs import find_stage
from tests.post.making import checkpoint_of, tiny_model, tiny_tokenizer
from tests.workspace.fake_hub import FakeHub, fake_hub

RECIPE = """
name: mine
inputs: {checkpoint: FOLDER/base}
stages:
  sft: {device: cpu, precision: float32, sequence_length: 128, steps: 2, tasks: {weights: {no_think: 1}}, task_conversations: 16}
  eval: {device: cpu, suites: [{suite: tasks, kinds: [{kind: no_think, count: 4}], max_new_tokens: 3}]}
  verdict: {claims: [{metric: accuracy/no_think, stage: sft, not_above: 2.0, sigmas: 0}]}
"""


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeHub]:
    monkeypatch.chdir(tmp_path)
    with fake_hub() as found:
        monkeypatch.setattr(constants, "ENDPOINT", found.url)
        monkeypatch.setattr(
            constants, "HUGGINGFACE_CO_URL_TEMPLATE", found.url + "/{repo_id}/resolve/{revision}/{filename}"
        )
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
        yield found


@pytest.fixture
def run(hub: FakeHub, tmp_path: Path) -> Path:
    checkpoint_of(tiny_model(tiny_tokenizer()), tmp_path / "base")
    Path("recipe.yaml").write_text(RECIPE.replace("FOLDER", str(tmp_path)), encoding="utf-8")
    return ingot.run("recipe.yaml", report=False).folder


def push(*words: str) -> str:
    done = CliRunner().invoke(app, ["push", *words], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.output


def test_a_model_arrives_as_it_was_exported(run: Path, hub: FakeHub) -> None:
    """And comes back by its name."""
    printed = push(str(run), "me/small")
    assert "pushed: " in printed and "ingot chat me/small" in printed
    found = hub.files("me/small", "main")
    assert found is not None and hub.private == {"me/small": False}
    exported = ingot.export_model(run, "exported")
    files = {file.name: file.read_bytes() for file in exported.iterdir()}
    assert {name: data for name, data in found[1].items() if name != "README.md"} == files
    ours, theirs = (dict(ingot.load(path).named_parameters()) for path in (run, "me/small"))
    assert all(torch.equal(weight, theirs[name]) for name, weight in ours.items())


def test_the_card_has_the_numbers_of_the_run(run: Path, hub: FakeHub, tmp_path: Path) -> None:
    card = push(str(run), "me/small", "--dry-run")
    assert hub.requests == []
    _, head, text = card.split("---\n", 2)
    assert yaml.safe_load(head) == {"library_name": "transformers", "tags": ["ingot", "sft"]}
    for name, metric in load_scores(find_stage(run / "eval")).items():
        value, error, count = re.search(rf"\| {name} \| (\S+) \| (\S+) \| (\S+) \|", text).groups()  # type: ignore[union-attr]
        assert float(value) == pytest.approx(metric.estimate.value, rel=1e-3) and int(count) == metric.estimate.count
        assert float(error) == pytest.approx(metric.estimate.standard_error, rel=0.05)
    assert re.search(r"- .*accuracy/no_think.*: held", text) and "steps: 2" in text
    assert str(tmp_path) not in card and "checkpoint: base" in text


def test_scores_of_another_run_and_a_base_of_the_hub(run: Path, hub: FakeHub) -> None:
    folder = ingot.export_model(run, "exported")
    commit = hub.add("you/base", {file.name: file.read_bytes() for file in folder.iterdir()})
    row = {
        "messages": [{"role": "user", "content": "1 + 1?"}, {"role": "assistant", "content": "2"}],
        "thinking": False,
    }
    taught = ingot.sft("you/base", [row], steps=1, sequence_length=128, device="cpu", precision="float32")
    suite = {"suite": "tasks", "kinds": [{"kind": "no_think", "count": 3}], "max_new_tokens": 3}
    ingot.evaluate(taught, [suite], device="cpu", name="measured")
    card = push(str(taught.folder), "me/taught", "--scores", "runs/measured", "--dry-run")
    assert yaml.safe_load(card.split("---\n")[1])["base_model"] == ["you/base"]
    assert commit in card and "| accuracy/no_think |" in card and "warning" not in card
    other = push(str(run), "me/small", "--scores", "runs/measured", "--dry-run")  # the output has stderr, too
    assert f"are of {taught.checkpoint}, and the model is {find_stage(run / 'sft')}" in other
    own = push(str(run), "me/small", "--scores", str(run), "--dry-run")
    assert "| accuracy/no_think |" in own and "warning" not in own


def test_what_cannot_be_a_name_is_refused_before_anything_is_asked(run: Path, hub: FakeHub) -> None:
    for name in ("a b/c", "a/b/c", "a/b@main", "a/"):
        with pytest.raises(ArtifactError, match="this cannot be a name on the hub"):
            push(str(run), name, "--dry-run")
    assert hub.requests == []


def test_a_dry_run_refuses_what_the_export_would(run: Path, hub: FakeHub) -> None:
    with pytest.raises(IngotError, match="qwen9") as refused:
        push(str(run), "me/small", "--as", "qwen9", "--dry-run")
    with pytest.raises(IngotError) as exported:
        ingot.export_model(run, "out", model_type="qwen9")
    assert str(refused.value) == str(exported.value) and hub.requests == []


def test_private_models_and_branches(run: Path, hub: FakeHub) -> None:
    push(str(run), "me/secret", "--private", "--revision", "first")
    assert hub.private == {"me/secret": True}
    first, main = hub.files("me/secret", "first"), hub.files("me/secret", "main")
    assert first is not None and main is not None and "model.safetensors" in first[1] and main[1] == {}
    push(str(run), "me/open")
    with pytest.raises(ArtifactError, match="the model is on the hub, and public"):
        push(str(run), "me/open", "--private")


def test_without_a_hub_nothing_is_lost(run: Path, hub: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(ArtifactError, match=r"me/small: the hub did not take it: .*\n  fix: .*hf auth login"):
        push(str(run), "me/small")
    with pytest.raises(ArtifactError, match="nowhere: there is no such model"):
        push("nowhere", "me/small")


def test_the_program_with_its_environment(run: Path, hub: FakeHub) -> None:
    """HF_ENDPOINT and HF_TOKEN alone tell it where, and as whom."""
    environment = os.environ | {
        "HF_ENDPOINT": hub.url,
        "HF_TOKEN": "hf_secret",
        "PYTHONPATH": str(Path(ingot.__file__).parents[1]),
    }
    words = [sys.executable, "-m", "ingot", "push", str(run), "me/small"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    found = hub.files("me/small", "main")
    assert found is not None and "model.safetensors" in found[1] and "Bearer hf_secret" in hub.tokens
