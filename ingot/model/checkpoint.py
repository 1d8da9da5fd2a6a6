"""Checkpoints on disk: everything needed to use a model, and to go on training it.

    checkpoint/
      config.json       the model's configuration
      state/            weights, and while training the optimizer's state (torch distributed checkpoint: loads at any world size)
      tokenizer/        tokenizer.json, chat_template.jinja
      training.json     step and data position; absent in a finished stage's checkpoint, which has weights only
      manifest.json     sha256 of every other file

A checkpoint is written under a temporary name and renamed, so one with its final name is complete; the manifest finds a
file that was damaged later. Loading a model also takes a plain Hugging Face folder (huggingface.py).
"""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import torch
from torch.distributed.checkpoint.state_dict_loader import load as load_distributed
from torch.distributed.checkpoint.state_dict_saver import save as save_distributed

from ingot.model.config import ModelConfig
from ingot.model.huggingface import import_huggingface, is_huggingface
from ingot.model.transformer import Transformer
from ingot.tokens.tokenizer import Tokenizer
from ingot.workspace.errors import ArtifactError
from ingot.workspace.files import atomic_folder, file_sha256, read_json, write_json

CONFIG, STATE, TOKENIZER, TRAINING, MANIFEST = "config.json", "state", "tokenizer", "training.json", "manifest.json"


def save_checkpoint(
    folder: Path,
    model: Transformer,
    *,
    optimizer_state: dict[str, Any] | None = None,
    training: dict[str, Any] | None = None,
) -> None:
    """Write a complete checkpoint to `folder`, replacing an older one of that name."""
    with atomic_folder(folder) as temporary:
        write_json(temporary / CONFIG, model.config.model_dump(mode="json"))
        state: dict[str, Any] = {"model": model.state_dict()}
        if optimizer_state is not None:
            state["optimizer"] = optimizer_state
        with warnings.catch_warnings():  # torch warns that no process group exists: one process is what is meant here
            warnings.filterwarnings("ignore", message="torch.distributed is disabled")
            save_distributed(state, checkpoint_id=temporary / STATE, no_dist=True)
        if model.tokenizer is not None:
            model.tokenizer.save(temporary / TOKENIZER)
        if training is not None:
            write_json(temporary / TRAINING, training)
        files = sorted(file for file in temporary.rglob("*") if file.is_file())
        write_json(temporary / MANIFEST, {str(file.relative_to(temporary)): file_sha256(file) for file in files})


def verify_checkpoint(folder: Path) -> None:
    """Raise an error that names the first file which is missing or not what was written."""
    manifest = folder / MANIFEST
    if not manifest.exists():
        raise ArtifactError(
            "this is no checkpoint: it has no manifest.json", place=str(folder), fix="use an earlier checkpoint"
        )
    try:
        digests = dict(read_json(manifest))
    except (ValueError, TypeError) as error:
        raise ArtifactError(
            f"the file is damaged: {error}", place=str(manifest), fix="use an earlier checkpoint"
        ) from error
    for name, digest in digests.items():
        if not (folder / name).exists():
            raise ArtifactError(
                "a file of the checkpoint is missing", place=str(folder / name), fix="use an earlier checkpoint"
            )
        if file_sha256(folder / name) != digest:
            raise ArtifactError(
                "the file is damaged: its sha256 is not the one in manifest.json",
                place=str(folder / name),
                fix="use an earlier checkpoint",
            )


def find_checkpoint(path: Path) -> Path:
    """The checkpoint or Hugging Face folder at `path`: the folder itself, or the `checkpoint` of a finished stage."""
    for candidate in (path, path / "checkpoint"):
        if (candidate / CONFIG).exists() and ((candidate / STATE).exists() or is_huggingface(candidate)):
            return candidate
    raise ArtifactError(
        "no checkpoint here",
        place=str(path),
        fix="give a checkpoint folder, the folder of a finished training stage (RUNS/NAME/STAGE-HASH), or a Hugging Face "
        "folder with config.json and safetensors weights",
    )


def load_model(path: str | Path, *, device: str | torch.device = "cpu") -> Transformer:
    """The model of a checkpoint, of a finished stage or of a Hugging Face folder, with its tokenizer attached."""
    folder = find_checkpoint(Path(path))
    if is_huggingface(folder):
        return import_huggingface(folder).to(device)
    verify_checkpoint(folder)
    model = Transformer(ModelConfig.model_validate(read_json(folder / CONFIG)))
    load_state({"model": model.state_dict()}, folder)
    if (folder / TOKENIZER).exists():
        model.tokenizer = Tokenizer.load(folder / TOKENIZER)
    return model.to(device)


def load_state(state: dict[str, Any], folder: Path) -> None:
    """Fill the tensors in `state` from the checkpoint, in place."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="torch.distributed is disabled")
        load_distributed(state, checkpoint_id=folder / STATE, no_dist=True)
