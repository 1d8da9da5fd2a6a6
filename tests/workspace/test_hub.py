"""Names of the hub, by the real client against a hub of this process: they are found, cached, pinned by commit, or refused."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import huggingface_hub.constants as constants
import pytest
import torch

import ingot
from ingot.recipe.load import make_recipe
from ingot.recipe.work import list_work
from ingot.workspace.errors import ArtifactError, RecipeError
from ingot.workspace.hub import is_hub_name
from ingot.workspace.runs import find_checkpoint
from tests.post.making import tiny_model, tiny_tokenizer
from tests.workspace.fake_hub import FakeHub, Files, fake_hub


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> list[Files]:
    """The files of two models in Hugging Face's layout, and one in a folder below, which is no part of the model."""
    made = []
    for seed in (1, 2):
        folder = ingot.export_model(tiny_model(tiny_tokenizer(), seed), tmp_path_factory.mktemp("models") / str(seed))
        made.append({file.name: file.read_bytes() for file in folder.iterdir()} | {"original/x.safetensors": b"no"})
    return made


@pytest.fixture
def hub(models: list[Files], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeHub]:
    monkeypatch.chdir(tmp_path)
    with fake_hub() as found:
        monkeypatch.setattr(constants, "ENDPOINT", found.url)
        monkeypatch.setattr(
            constants, "HUGGINGFACE_CO_URL_TEMPLATE", found.url + "/{repo_id}/resolve/{revision}/{filename}"
        )
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
        found.add("me/model", models[0])
        yield found


def weights(path: str | Path) -> torch.Tensor:
    return ingot.load(path).embedding.weight.detach()


def test_a_name_is_the_model_of_that_name(hub: FakeHub, models: list[Files]) -> None:
    first = find_checkpoint(Path("me/model"))
    assert {file.name for file in first.iterdir()} == {name for name in models[0] if "/" not in name}
    assert all((first / name).read_bytes() == data for name, data in models[0].items() if "/" not in name)
    torch.testing.assert_close(
        weights("me/model"), tiny_model(tiny_tokenizer(), 1).embedding.weight.detach(), rtol=0, atol=0
    )


def test_what_is_in_the_cache_is_not_fetched_again(hub: FakeHub) -> None:
    find_checkpoint(Path("me/model"))
    fetched = [each for each in hub.requests if each.startswith("GET me/model/resolve")]
    find_checkpoint(Path("me/model"))
    assert fetched and [each for each in hub.requests if each.startswith("GET me/model/resolve")] == fetched


def test_revisions_are_commits_and_other_work(hub: FakeHub, models: list[Files], tmp_path: Path) -> None:
    """A branch that moves gives another hash; a commit stays what it was."""

    def work(name: str) -> str:
        stage = {"inputs": {"checkpoint": name}, "steps": 1, "task_conversations": 4}
        return list_work(make_recipe({"name": "a", "stages": {"sft": stage}}, "here"), tmp_path)[0].hash

    old = hub.branches["me/model"]["main"]
    before = work("me/model")
    new = hub.add("me/model", models[1])
    assert find_checkpoint(Path("me/model")).name == new and find_checkpoint(Path(f"me/model@{old}")).name == old
    assert work("me/model") != before == work(f"me/model@{old}") and work("me/model@main") == work("me/model")
    assert not torch.equal(weights("me/model"), weights(f"me/model@{old}"))


def test_a_path_that_exists_wins(hub: FakeHub) -> None:
    Path("me").mkdir()
    assert not is_hub_name(Path("me/model")) and find_checkpoint(Path("me/model")) == Path("me/model")
    assert hub.requests == []


@pytest.mark.parametrize(
    "name", ["model", "runs/sft", "a/b/c", "../a/b", "/a/b", "a/b.gguf", "a/b.yaml", "a b/c", "a/b@"]
)
def test_other_paths_are_no_names(name: str, hub: FakeHub) -> None:
    assert find_checkpoint(Path(name)) == Path(name) and hub.requests == []


@pytest.mark.parametrize(
    ("name", "said", "fix"),
    [
        ("me/nothing", "neither a path that exists nor a model of the hub", "check the path and the name"),
        ("me/model@v9", "the model has no revision v9", "a branch, a tag or a commit after @"),
        ("me/gated", "only to those who were let in", "hf auth login"),
        ("me/empty", "has no config.json", "a model in safetensors"),
    ],
)
def test_what_the_hub_does_not_give_is_said(name: str, said: str, fix: str, hub: FakeHub) -> None:
    hub.add("me/gated", {"config.json": b"{}"})
    hub.add("me/empty", {"README.md": b""})
    hub.gated.add("me/gated")
    with pytest.raises(ArtifactError) as caught:
        find_checkpoint(Path(name))
    assert said in str(caught.value) and fix in str(caught.value) and name in str(caught.value)
    with pytest.raises(RecipeError) as in_recipe:
        make_recipe({"name": "a", "stages": {"sft": {"inputs": {"checkpoint": name}, "steps": 1}}}, "here")
    assert f"here: sft.inputs.checkpoint: {name}: " in str(in_recipe.value) and said in str(in_recipe.value)


def test_without_a_network_the_cache_serves_and_the_message_helps(
    hub: FakeHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = find_checkpoint(Path("me/model"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert find_checkpoint(Path("me/model")) == found
    with pytest.raises(ArtifactError) as caught:
        find_checkpoint(Path("me/other"))
    assert "the hub cannot be asked" in str(caught.value) and "hf download me/other --local-dir other" in str(
        caught.value
    )


def test_a_plan_downloads_nothing(hub: FakeHub) -> None:
    Path("recipe.yaml").write_text("stages: {sft: {inputs: {checkpoint: me/model}, steps: 1}}", encoding="utf-8")
    ingot.plan("recipe.yaml")
    assert hub.requests == []


def test_the_command_line_and_the_environment(hub: FakeHub, tmp_path: Path) -> None:
    """A program of its own, told by HF_ENDPOINT, HF_HOME and HF_TOKEN alone."""
    environment = os.environ | {"HF_ENDPOINT": hub.url, "HF_HOME": str(tmp_path / "home"), "HF_TOKEN": "hf_secret"}
    environment["PYTHONPATH"] = str(Path(ingot.__file__).parents[1])
    words = [sys.executable, "-m", "ingot", "import", "me/model", "imported"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    assert "Bearer hf_secret" in hub.tokens
    assert json.loads(Path("imported/config.json").read_text(encoding="utf-8"))
    torch.testing.assert_close(weights("imported"), weights("me/model"), rtol=0, atol=0)
