"""Checkpoints and folders from a stranger: nothing in them runs, and no name in them leads out of the folder."""

from __future__ import annotations

import io
import json
import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.distributed.checkpoint.metadata import Metadata, TensorStorageMetadata

import ingot
from ingot.checkpoints.checkpoint import save_checkpoint, verify_checkpoint
from ingot.checkpoints.convert import export_model
from ingot.checkpoints.state_files import load_state_files, save_state, stored_shapes
from ingot.workspace.errors import ArtifactError
from ingot.workspace.files import file_sha256, inside, read_json, write_json
from tests.model.tiny import config, random_model


class Command:
    """A pickle that runs a shell command when it is loaded."""

    def __init__(self, command: str) -> None:
        self.command = command

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return os.system, (self.command,)


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    save_checkpoint(tmp_path / "checkpoint", random_model(config()))
    return tmp_path / "checkpoint"


def sign(folder: Path, name: str) -> None:
    """Put the file's own sha256 into the manifest, as its author does."""
    manifest = read_json(folder / "manifest.json")
    write_json(folder / "manifest.json", manifest | {name: file_sha256(folder / name)})


def rewrite(folder: Path, change: Callable[[Metadata], object]) -> None:
    path = folder / "state" / ".metadata"
    metadata = pickle.loads(path.read_bytes())
    path.write_bytes(pickle.dumps(change(metadata) or metadata))
    sign(folder, "state/.metadata")


def test_a_command_in_the_metadata_does_not_run(checkpoint: Path, tmp_path: Path) -> None:
    proof = tmp_path / "proof"
    rewrite(checkpoint, lambda metadata: setattr(metadata, "planner_data", Command(f"touch {proof}")))
    with pytest.raises(ArtifactError, match=r"\.metadata: not the metadata of a checkpoint: it asks for posix\.system"):
        ingot.load(checkpoint)
    with pytest.raises(ArtifactError, match=r"posix\.system"):
        stored_shapes(checkpoint / "state")
    with pytest.raises(ArtifactError, match=r"posix\.system"):
        load_state_files({}, checkpoint / "state")
    assert not proof.exists()


def test_a_command_in_a_value_does_not_run(tmp_path: Path) -> None:
    proof, state = tmp_path / "proof", tmp_path / "state"
    save_state({"weights": torch.zeros(2), "step": Command(f"touch {proof}")}, state)
    assert not proof.exists()
    with pytest.raises(ArtifactError, match="step is not a plain value"):
        load_state_files({"weights": torch.ones(2), "step": 0}, state)
    assert not proof.exists()


def test_a_command_in_a_tensor_does_not_run(checkpoint: Path, tmp_path: Path) -> None:
    proof, file = tmp_path / "proof", checkpoint / "state" / "__0_0.distcp"
    buffer = io.BytesIO()
    torch.save(Command(f"touch {proof}"), buffer)
    file.write_bytes(buffer.getvalue())
    sign(checkpoint, "state/__0_0.distcp")

    def point(metadata: Metadata) -> None:
        for home in metadata.storage_data.values():
            home.offset, home.length = 0, len(buffer.getvalue())

    rewrite(checkpoint, point)
    with pytest.raises(ArtifactError, match="a value is not a plain tensor"):
        ingot.load(checkpoint)
    assert not proof.exists()


def test_plain_values_come_back(tmp_path: Path) -> None:
    save_state({"nested": {"step": 7, "name": "adamw"}, "weights": torch.arange(3.0)}, tmp_path / "state")
    state: dict[str, Any] = {"nested": {"step": 0, "name": ""}, "weights": torch.zeros(3)}
    load_state_files(state, tmp_path / "state")
    assert state["nested"] == {"step": 7, "name": "adamw"}
    assert state["weights"].tolist() == [0, 1, 2]


def of_other_types(metadata: Metadata) -> None:
    name = next(iter(metadata.state_dict_metadata))
    metadata.state_dict_metadata[name] = TensorStorageMetadata("properties", [1], None)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda metadata: {"not": "metadata"}, "it holds something else"),
        (of_other_types, "is not described as a tensor"),
        (lambda metadata: setattr(metadata, "storage_data", None), "it has no table of tensors"),
        (lambda metadata: metadata.storage_data.update({"name": "file"}), "'name' is not a part of a file"),
    ],
)
def test_metadata_of_another_form_is_refused(
    change: Callable[[Metadata], object], message: str, checkpoint: Path
) -> None:
    rewrite(checkpoint, change)
    with pytest.raises(ArtifactError, match=message):
        ingot.load(checkpoint)


@pytest.mark.parametrize(
    "data", [b"", b"\x80\x04", b"cos\nsystem\n(S'true'\ntR.", b"not a pickle", b"\x80\x04}}\x86b."]
)
def test_damaged_metadata_is_refused(data: bytes, checkpoint: Path) -> None:
    (checkpoint / "state" / ".metadata").write_bytes(data)
    sign(checkpoint, "state/.metadata")
    with pytest.raises(ArtifactError, match="not the metadata of a checkpoint"):
        ingot.load(checkpoint)


@pytest.mark.parametrize("name", ["../../secret.distcp", "/etc/passwd", "a/../../b", "", 3])
def test_a_tensor_outside_the_folder_is_refused(name: object, checkpoint: Path) -> None:
    def move(metadata: Metadata) -> None:
        for home in metadata.storage_data.values():
            home.relative_path = name

    rewrite(checkpoint, move)
    with pytest.raises(ArtifactError, match="is not the name of a file in this folder"):
        ingot.load(checkpoint)


def test_a_manifest_cannot_name_files_outside(checkpoint: Path, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret")
    manifest = read_json(checkpoint / "manifest.json")
    write_json(checkpoint / "manifest.json", manifest | {"../secret": file_sha256(tmp_path / "secret")})
    with pytest.raises(ArtifactError, match=r"manifest\.json: '\.\./secret' is not the name of a file in this folder"):
        verify_checkpoint(checkpoint)


@pytest.mark.parametrize("absolute", [True, False])
def test_a_safetensors_index_cannot_name_files_outside(absolute: bool, tmp_path: Path) -> None:
    folder = export_model(random_model(config()), tmp_path / "model")
    weights = (folder / "model.safetensors").rename(tmp_path / "model.safetensors")
    name = str(weights) if absolute else "../model.safetensors"
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"lm_head.weight": name}}))
    with pytest.raises(ArtifactError, match=r"index\.json: '.*' is not the name of a file in this folder"):
        ingot.load(folder)


def test_a_shard_may_be_a_link_as_in_the_hugging_face_cache(tmp_path: Path) -> None:
    folder = export_model(random_model(config()), tmp_path / "model")
    weights = (folder / "model.safetensors").rename(tmp_path / "blob")
    (folder / "model.safetensors").symlink_to(weights)
    assert ingot.load(folder).config.width == config().width


@pytest.mark.parametrize("name", ["file", "folder/file", "..file", "a..b/c"])
def test_names_inside_the_folder_are_kept(name: str, tmp_path: Path) -> None:
    assert inside(tmp_path, name, tmp_path / "index") == tmp_path / name


def test_the_exploit_of_these_tests_works(tmp_path: Path) -> None:
    """Where pickle is trusted, it runs."""
    pickle.load(io.BytesIO(pickle.dumps(Command(f"touch {tmp_path / 'proof'}"))))
    assert (tmp_path / "proof").exists()
