"""Checkpoints: what was saved is what is loaded, and damage is named."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch
from torch.distributed.checkpoint.state_dict_saver import save as save_distributed

import ingot
from ingot.checkpoints.checkpoint import find_checkpoint, load_model, save_checkpoint, verify_checkpoint
from ingot.model.transformer import Transformer
from ingot.tokens.tokenizer import Tokenizer
from ingot.workspace.errors import ArtifactError
from ingot.workspace.files import read_json, write_json
from tests.model.tiny import config, mixed_config, random_model, random_tokens


def assert_same_weights(one: Transformer, other: Transformer) -> None:
    assert one.state_dict().keys() == other.state_dict().keys()
    assert all(torch.equal(value, other.state_dict()[name]) for name, value in one.state_dict().items())


@pytest.mark.parametrize("tied", [True, False])
def test_weights_configuration_and_tokenizer_come_back(tied: bool, tokenizer: Tokenizer, tmp_path: Path) -> None:
    model = random_model(mixed_config(tied_embeddings=tied))
    model.tokenizer = tokenizer
    save_checkpoint(tmp_path / "stage" / "checkpoint", model)
    for place in (tmp_path / "stage", tmp_path / "stage" / "checkpoint"):
        again = ingot.load(place)
        assert again.config == model.config
        assert_same_weights(again, model)
        assert again.tokenizer is not None
        assert again.tokenizer.encode("the sum") == tokenizer.encode("the sum")
    tokens = random_tokens(2, 9)
    assert torch.equal(again(tokens), model(tokens))


def test_a_checkpoint_replaces_the_one_before(tmp_path: Path) -> None:
    first, second = random_model(config(), seed=1), random_model(config(), seed=2)
    save_checkpoint(tmp_path / "checkpoint", first)
    save_checkpoint(tmp_path / "checkpoint", second)
    assert_same_weights(load_model(tmp_path), second)
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint"]


def test_a_checkpoint_of_whole_tensors_is_read_too(tmp_path: Path) -> None:
    """As torch writes them without being asked for chunks, and as checkpoints were before."""
    model = random_model(mixed_config())
    save_checkpoint(tmp_path / "checkpoint", model)
    shutil.rmtree(tmp_path / "checkpoint" / "state")
    save_distributed({"model": model.state_dict()}, checkpoint_id=tmp_path / "checkpoint" / "state", no_dist=True)
    manifest = read_json(tmp_path / "checkpoint" / "manifest.json")
    manifest = {name: digest for name, digest in manifest.items() if not name.startswith("state")}
    write_json(tmp_path / "checkpoint" / "manifest.json", manifest)
    assert_same_weights(load_model(tmp_path / "checkpoint"), model)


def test_a_model_is_loaded_in_float32_unless_another_dtype_is_asked_for(tmp_path: Path) -> None:
    save_checkpoint(tmp_path / "checkpoint", random_model(config()).bfloat16())
    assert load_model(tmp_path / "checkpoint").embedding.weight.dtype == torch.float32
    assert load_model(tmp_path / "checkpoint", dtype=torch.bfloat16).embedding.weight.dtype == torch.bfloat16
    assert ingot.load(tmp_path / "checkpoint", dtype=torch.float64).embedding.weight.dtype == torch.float64


@pytest.fixture
def checkpoint(tokenizer: Tokenizer, tmp_path: Path) -> Path:
    model = random_model(config())
    model.tokenizer = tokenizer
    save_checkpoint(tmp_path / "checkpoint", model)
    return tmp_path / "checkpoint"


def test_every_damaged_file_is_named(checkpoint: Path) -> None:
    files = [file for file in sorted(checkpoint.rglob("*")) if file.is_file() and file.name != "manifest.json"]
    assert {"config.json", ".metadata", "__0_0.distcp", "tokenizer.json"} <= {file.name for file in files}
    verify_checkpoint(checkpoint)
    for file in files:
        content = file.read_bytes()
        middle = len(content) // 2
        file.write_bytes(content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :])
        with pytest.raises(ArtifactError) as caught:
            load_model(checkpoint)
        assert str(caught.value).startswith(f"{file}: the file is damaged: its sha256")
        assert "use an earlier checkpoint" in str(caught.value)
        file.write_bytes(content)
    verify_checkpoint(checkpoint)


def test_a_missing_file_and_a_missing_or_torn_manifest(checkpoint: Path) -> None:
    (checkpoint / "tokenizer" / "chat_template.jinja").unlink()
    with pytest.raises(ArtifactError, match=r"chat_template\.jinja: a file of the checkpoint is missing"):
        load_model(checkpoint)
    for content in ("", '{"config.json": "12', "[1, 2]"):
        (checkpoint / "manifest.json").write_text(content)
        with pytest.raises(ArtifactError, match=r"manifest\.json: the file is damaged"):
            load_model(checkpoint)
    (checkpoint / "manifest.json").unlink()
    with pytest.raises(ArtifactError, match=r"this is not a checkpoint: it has no manifest\.json"):
        load_model(checkpoint)


def test_a_folder_that_is_no_checkpoint(checkpoint: Path, tmp_path: Path) -> None:
    shutil.rmtree(checkpoint / "state")
    for place in (checkpoint, tmp_path, tmp_path / "nowhere"):
        with pytest.raises(ArtifactError) as caught:
            find_checkpoint(place)
        assert str(caught.value).startswith(f"{place}: no checkpoint here")
        assert "give a checkpoint folder" in str(caught.value)


@torch.no_grad()
def test_positions_can_be_configured_when_a_model_is_loaded(tmp_path: Path) -> None:
    """Dual chunks change nothing while a text fits into one chunk, and something beyond it; the weights are the same."""
    model = random_model(config())
    save_checkpoint(tmp_path / "checkpoint", model)
    changed = load_model(tmp_path / "checkpoint", configure=lambda shape: shape.with_dual_chunk(12, 4, 256))
    assert changed.config.context == 256
    assert all(torch.equal(value, changed.state_dict()[name]) for name, value in model.state_dict().items())
    tokens = random_tokens(1, 30)
    torch.testing.assert_close(changed(tokens)[:, :12], model(tokens)[:, :12], rtol=1e-5, atol=1e-5)
    assert (changed(tokens)[:, 20:] - model(tokens)[:, 20:]).abs().max() > 1e-3
