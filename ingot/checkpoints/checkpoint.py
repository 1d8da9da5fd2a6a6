"""Writes, verifies and loads checkpoints: everything needed to use a model, and to continue its training.

    checkpoint/
      config.json       the model's configuration
      state/            weights, and while training the optimizer's state (torch distributed checkpoint: loads at any world size)
      tokenizer/        tokenizer.json, chat_template.jinja, and whatever else an imported model's tokenizer came with
      lora.json         of a run that trains adapters: the path of their base, whose weights are not here (adapter_state.py)
      training.json     step, data position and so on of an unfinished run (train/saving/); a finished stage has weights only
      manifest.json     sha256 of every other file

A checkpoint is written under a temporary name and renamed, so one with its final name is complete; the manifest finds a
file that was damaged later. Loading a model also takes a plain Hugging Face folder (huggingface.py) or a GGUF file (gguf/).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import torch
from pydantic import ValidationError

from ingot.checkpoints.adapter import adapted
from ingot.checkpoints.adapter_state import LORA, read_adapter_state
from ingot.checkpoints.gguf.read import open_gguf
from ingot.checkpoints.huggingface import is_huggingface, open_huggingface
from ingot.checkpoints.peft import ADAPTER_CONFIG, read_peft
from ingot.checkpoints.state_files import StateFiles, save_state, write_state
from ingot.checkpoints.stored_model import StoredModel, tokenizer_files
from ingot.model.config import ModelConfig
from ingot.model.transformer import Transformer
from ingot.workspace.errors import ArtifactError
from ingot.workspace.files import atomic_folder, file_sha256, inside, read_json, write_json
from ingot.workspace.kinds import WRONG_KIND
from ingot.workspace.outside import specs

CONFIG, STATE, TOKENIZER, TRAINING, MANIFEST = "config.json", "state", "tokenizer", "training.json", "manifest.json"
GGUF = ".gguf"


def save_checkpoint(folder: Path, model: Transformer) -> None:
    """Write a model in memory as a complete checkpoint to `folder`, replacing an older one of that name."""
    with atomic_folder(folder) as temporary:
        save_state({"model": model.state_dict()}, temporary / STATE)
        _finish(temporary, model.config, tokenizer_files(model.tokenizer) if model.tokenizer is not None else {})


def write_checkpoint(stored: StoredModel, folder: Path, wrote: Callable[[int], None] = lambda size: None) -> None:
    """Write a stored model into an empty folder as a checkpoint, a chunk at a time; `wrote` is called with each chunk's bytes."""
    write_state(stored.parameters, folder / STATE, wrote)
    _finish(folder, stored.config, stored.files)


def _finish(folder: Path, config: ModelConfig, files: Mapping[str, bytes]) -> None:
    """Write the other files, the manifest last."""
    write_description(folder, config, files)
    write_json(folder / MANIFEST, digests(folder, (file for file in folder.rglob("*") if file.is_file())))


def write_description(folder: Path, config: ModelConfig, files: Mapping[str, bytes]) -> None:
    """Write what a model needs besides its weights: its configuration and its tokenizer's files."""
    write_json(folder / CONFIG, config.model_dump(mode="json"))
    for name, data in files.items():
        (folder / TOKENIZER).mkdir(exist_ok=True)
        (folder / TOKENIZER / name).write_bytes(data)


def digests(folder: Path, files: Iterable[Path]) -> dict[str, str]:
    """Lines of a manifest: the sha256 of files below `folder`."""
    return {file.relative_to(folder).as_posix(): file_sha256(file) for file in sorted(files)}


def verify_checkpoint(folder: Path, rank: int = 0, world: int = 1) -> None:
    """Raise an error that names the first file which is missing or not what was written.

    Several processes may divide the work: each then looks at every `world`-th file.
    """
    manifest = folder / MANIFEST
    if not manifest.exists():
        raise ArtifactError(
            "this is not a checkpoint: it has no manifest.json", place=str(folder), fix="use an earlier checkpoint"
        )
    try:
        listed = dict(read_json(manifest))
    except (ValueError, TypeError) as error:
        raise ArtifactError(
            f"the file is damaged: {error}", place=str(manifest), fix="use an earlier checkpoint"
        ) from error
    for name, digest in list(listed.items())[rank::world]:
        file = inside(folder, name, manifest)
        if not file.exists():
            raise ArtifactError("a file of the checkpoint is missing", place=str(file), fix="use an earlier checkpoint")
        if file_sha256(file) != digest:
            raise ArtifactError(
                "the file is damaged: its sha256 is not the one in manifest.json",
                place=str(file),
                fix="use an earlier checkpoint",
            )


def find_checkpoint(path: Path) -> Path:
    """The checkpoint or Hugging Face folder at `path`: the folder itself, or what a finished stage has in it."""
    for candidate in (path, path / "checkpoint", path / "reward_model"):
        if (candidate / CONFIG).exists() and ((candidate / STATE).exists() or is_huggingface(candidate)):
            return candidate
    if (path / ADAPTER_CONFIG).exists():
        raise ArtifactError(
            "an adapter without the model that it adapts",
            place=str(path),
            fix=f"give that model (its path is in {ADAPTER_CONFIG}), and this folder as --adapter",
        )
    fix = (
        "give a checkpoint folder, the folder of a finished training stage (RUNS/NAME/STAGE-HASH), a Hugging Face "
        "folder with config.json and safetensors weights, or a .gguf file"
    )
    raise ArtifactError("no checkpoint here", place=str(path), fix=fix)


def load_model(
    path: str | Path,
    *,
    device: str | torch.device = "cpu",
    dtype: torch.dtype = torch.float32,
    adapter: Path | None = None,
    configure: Callable[[ModelConfig], ModelConfig] | None = None,
) -> Transformer:
    """The model of a checkpoint, a finished stage, a Hugging Face folder or a GGUF file, with its tokenizer attached.

    Its weights are in float32 whatever they are on disk, unless another `dtype` is asked for. An `adapter` in PEFT's format
    is merged into them. `configure` may change what
    does not change the weights, such as the reach of positions: `lambda c: c.with_dual_chunk(4096, 1024, 65536)`.
    """
    stored = open_model(Path(path), adapter)
    if configure is not None:
        stored = dataclasses.replace(stored, config=configure(stored.config))
    return stored.load(dtype).to(device)


def read_config(path: Path) -> ModelConfig:
    """The configuration of the model at `path` alone: its weights are not looked at."""
    if path.suffix == GGUF or is_huggingface(find_checkpoint(path)):
        return open_model(path).config
    return _model_config(find_checkpoint(path))


def _model_config(folder: Path) -> ModelConfig:
    """The configuration in a checkpoint. Parts of the user's own are loaded from where they were, never from the checkpoint."""
    path = folder / CONFIG
    try:
        values = read_json(path)
        for spec in specs(values):
            file = Path(spec.rpartition(":")[0])
            if not file.is_absolute() or file.is_relative_to(folder.resolve()):
                raise ArtifactError(
                    f"it names code that came with it: {spec}",
                    place=str(path),
                    fix="look at that file, put it elsewhere and write its absolute path here, if it is to be run",
                )
        return ModelConfig.model_validate(values)
    except ValidationError as error:
        wrong = next((one["ctx"] for one in error.errors() if one["type"] == WRONG_KIND), None)
        if wrong is None:
            raise ArtifactError(f"this is not the configuration of a model: {error}", place=str(path)) from error
        fix = "the model has a part of your own, in a file: put it back there, or write here where it is now"
        raise ArtifactError(str(wrong["problem"]), place=str(path), fix=fix) from error
    except ValueError as error:  # no JSON
        raise ArtifactError(f"this is not the configuration of a model: {error}", place=str(path)) from error


def open_model(path: Path, adapter: Path | None = None, family: str | None = None) -> StoredModel:
    """The same without reading its weights: they are read when they are used, and merged then with a PEFT `adapter`.

    `family` is one of the user's own (`file.py:NAME`), to read a Hugging Face folder by.
    """
    stored = _open(path, family)
    return stored if adapter is None else adapted(stored, read_peft(adapter, stored.config))


def _open(path: Path, family: str | None = None) -> StoredModel:
    if family is not None and not is_huggingface(path):
        raise ArtifactError(
            "a family reads a Hugging Face folder, which this is not", place=str(path), fix="leave it out"
        )
    if path.suffix == GGUF and path.is_file():
        return open_gguf(path)
    folder = find_checkpoint(path)
    if is_huggingface(folder):
        return open_huggingface(folder, family)
    verify_checkpoint(folder)
    config = _model_config(folder)
    files = {file.name: file.read_bytes() for file in sorted((folder / TOKENIZER).glob("*"))}
    stored = StoredModel(config, StateFiles(folder / STATE), files, str(folder))
    if not (folder / LORA).exists():
        return stored
    base, adapter = read_adapter_state(folder, stored.parameters)
    return adapted(dataclasses.replace(stored, parameters=_open(base).parameters), adapter)
