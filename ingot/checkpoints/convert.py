"""Imports and exports whole models, without ever holding one in memory.

    import   Hugging Face folder, GGUF file or checkpoint   →   checkpoint (checkpoint.py)
    export   checkpoint, Hugging Face folder, GGUF file or a model in memory   →   Hugging Face folder (huggingface.py)
                                                                               or GGUF file (gguf/write.py)

Weights are read, translated (translate.py) and written in chunks of a few megabytes. Everything that can be wrong with the
source is found before the first byte is written, and the result appears under its name only when it is complete.
"""

from __future__ import annotations

import dataclasses
import shutil
import time
from pathlib import Path

import torch

from ingot.checkpoints.checkpoint import CONFIG, GGUF, open_model, write_checkpoint
from ingot.checkpoints.families.table import find_family
from ingot.checkpoints.gguf.write import GgufPlan
from ingot.checkpoints.huggingface import HuggingFacePlan
from ingot.checkpoints.ollama import MODELFILE, TEMPLATE_NOTE, WEIGHTS, modelfile
from ingot.checkpoints.stored_model import StoredModel, in_memory
from ingot.model.transformer import Transformer
from ingot.workspace.errors import ArtifactError
from ingot.workspace.files import PARTIAL, atomic_file, atomic_folder
from ingot.workspace.interrupt import StopSignal
from ingot.workspace.outside import anchor
from ingot.workspace.progress import Progress

LARGEST_SHARD = 5_000_000_000
MEGABYTE = 1_000_000
WEIGHT_FILES = (".safetensors", ".bin", ".pt", ".pth")  # endings of files that hold weights alone
RESERVE = 1.01  # of the disk: for headers, tokenizer and manifest


def import_model(
    source: str | Path,
    folder: str | Path,
    *,
    adapter: Path | None = None,
    family: str | None = None,
    dtype: torch.dtype | None = None,
    replace: bool = False,
    progress: Progress | None = None,
    stop: StopSignal | None = None,
) -> Path:
    """Write the model at `source` as an Ingot checkpoint. Weights keep their dtype unless another is asked for.

    A PEFT `adapter` is merged into the weights, which are in float32 then. A model type that Ingot does not know is read by a
    `family` of your own, `file.py:NAME` (docs/guides/add-a-family.md); the checkpoint remembers it and is exported by it.
    """
    target = check_target(Path(folder), replace)
    own = None if family is None else anchor(family, Path.cwd())
    stored = open_model(Path(source), adapter, own).cast(dtype)
    check_space(target, stored.parameters.bytes)
    meter = Meter(stored, stored.parameters.bytes, progress, stop)
    with atomic_folder(target) as temporary:
        write_checkpoint(stored, temporary, meter.add)
    return target


def export_model(
    source: str | Path | Transformer,
    folder: str | Path,
    *,
    model_type: str | None = None,
    adapter: Path | None = None,
    dtype: torch.dtype | None = None,
    max_shard_bytes: int = LARGEST_SHARD,
    replace: bool = False,
    progress: Progress | None = None,
    stop: StopSignal | None = None,
) -> Path:
    """Write a model as a folder that transformers loads; as `model_type` if one is given that can express it."""
    target = check_target(Path(folder), replace)
    stored, plan = plan_export(source, model_type, adapter, dtype, max_shard_bytes)
    check_space(target, plan.tensors.bytes)
    meter = Meter(stored, plan.tensors.bytes, progress, stop)
    with atomic_folder(target) as temporary:
        plan.write(temporary, meter.add)
    return target


def plan_export(
    source: str | Path | Transformer,
    model_type: str | None = None,
    adapter: Path | None = None,
    dtype: torch.dtype | None = None,
    max_shard_bytes: int = LARGEST_SHARD,
) -> tuple[StoredModel, HuggingFacePlan]:
    """A model and what its folder will be; refuses what the type cannot express, before any weight is read."""
    stored = in_memory(source) if isinstance(source, Transformer) else open_model(Path(source), adapter)
    if model_type is not None:
        model_type = anchor(model_type, Path.cwd())
        find_family(model_type, "what to export as")
        stored = dataclasses.replace(stored, config=stored.config.model_copy(update={"export_as": model_type}))
    return stored, HuggingFacePlan(stored.cast(dtype), max_shard_bytes)


def export_gguf(
    source: str | Path | Transformer,
    file: str | Path,
    *,
    type: str | None = None,
    adapter: Path | None = None,
    replace: bool = False,
    progress: Progress | None = None,
    stop: StopSignal | None = None,
) -> Path:
    """Write a model as a GGUF file for llama.cpp, its matrices as `type` (f32, f16, bf16, q8_0, q4_0; default: as they are)."""
    target = check_file(Path(file), replace)
    stored = in_memory(source) if isinstance(source, Transformer) else open_model(Path(source), adapter)
    plan = GgufPlan(stored, type, target.stem)
    check_space(target, plan.bytes)
    meter = Meter(dataclasses.replace(stored, notes=(*stored.notes, *plan.notes)), plan.bytes, progress, stop)
    with atomic_file(target) as temporary:
        plan.write(temporary, meter.add)
    return target


def export_ollama(
    source: str | Path | Transformer,
    folder: str | Path,
    *,
    type: str | None = None,
    adapter: Path | None = None,
    replace: bool = False,
    progress: Progress | None = None,
    stop: StopSignal | None = None,
) -> Path:
    """Write a GGUF file and the Modelfile with which `ollama create NAME -f FOLDER/Modelfile` takes it."""
    target = check_target(Path(folder), replace, MODELFILE)
    stored = in_memory(source) if isinstance(source, Transformer) else open_model(Path(source), adapter)
    plan, text = GgufPlan(stored, type, target.name), modelfile(stored)
    check_space(target, plan.bytes)
    notes = (*stored.notes, *plan.notes, TEMPLATE_NOTE)
    meter = Meter(dataclasses.replace(stored, notes=notes), plan.bytes, progress, stop)
    with atomic_folder(target) as temporary:
        plan.write(temporary / WEIGHTS, meter.add)
        (temporary / MODELFILE).write_text(text, encoding="utf-8")
    return target


class Meter:
    """Shows how far a conversion is, and ends it when a stop was asked for."""

    def __init__(self, stored: StoredModel, total: int, progress: Progress | None, stop: StopSignal | None) -> None:
        progress = progress or Progress()
        self.progress, self.stop = progress, stop or StopSignal()
        self.total = total
        self.done, self.began = 0, time.monotonic()
        for note in stored.notes:
            progress.say(note)
        progress.start(-(-total // MEGABYTE), unit="MB")

    def add(self, size: int) -> None:
        """`size` more bytes are written."""
        self.stop.check()
        self.done += size
        rate = self.done / MEGABYTE / max(time.monotonic() - self.began, 1e-9)
        # rounded down until the end, where the total is rounded up: it is done once
        finished = -(-self.total // MEGABYTE) if self.done >= self.total else self.done // MEGABYTE
        self.progress.advance(finished, **{"MB/s": round(rate)})


def check_file(file: Path, replace: bool) -> Path:
    """Refuse the name of a GGUF file that would be overwritten by accident, or that is none."""
    if file.suffix.lower() != GGUF:
        raise ArtifactError(
            "this is not the name of a GGUF file", place=str(file), fix=f"name it {file.with_suffix(GGUF).name}"
        )
    if file.is_dir():
        raise ArtifactError("this is a folder", place=str(file), fix="name a file that does not exist")
    if file.exists() and not replace:
        fix = "name another one, or replace it with --force (replace=True)"
        raise ArtifactError("the file exists", place=str(file), fix=fix)
    return file


def check_target(folder: Path, replace: bool, marker: str = CONFIG) -> Path:
    """Refuse the name of a file, since a folder is written, and what would be overwritten by accident.

    Only a folder that has the file `marker` is one that may be replaced.
    """
    if folder.suffix.lower() == GGUF:
        raise ArtifactError(
            "a folder would get the name of a GGUF file",
            place=str(folder),
            fix="name a folder; `ingot export` (export_gguf) writes a GGUF file",
        )
    if folder.suffix.lower() in WEIGHT_FILES:
        problem = "weights are written into a folder with their configuration; a folder would get this name"
        raise ArtifactError(problem, place=str(folder), fix=f"name a folder, such as {folder.with_suffix('')}")
    if folder.exists():
        if not folder.is_dir() or (any(folder.iterdir()) and not (folder / marker).exists()):
            raise ArtifactError(
                "this exists and is not the folder of a model",
                place=str(folder),
                fix="name a folder that does not exist",
            )
        if not replace:
            raise ArtifactError(
                "the folder exists",
                place=str(folder),
                fix="name another one, or replace it with --force (replace=True)",
            )
    return folder


def check_space(folder: Path, size: int) -> None:
    """Refuse to begin what the disk cannot hold."""
    shutil.rmtree(folder.with_name(folder.name + PARTIAL), ignore_errors=True)  # what a killed conversion left
    parent = next(parent for parent in folder.absolute().parents if parent.exists())
    free, needed = shutil.disk_usage(parent).free, int(size * RESERVE)
    if needed > free:
        raise ArtifactError(
            f"the model needs {needed / 1e9:,.1f} GB of disk, {free / 1e9:,.1f} GB are free",
            place=str(parent),
            fix="make room, choose another disk, or a smaller --dtype",
        )
