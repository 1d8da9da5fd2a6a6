"""The folder of a stage in a run, and the record DONE that makes it finished.

    RUNS/NAME/STAGE-HASH/{recipe.yaml, metrics.jsonl, artifacts…, DONE}

Invariant: a folder counts as finished exactly if DONE is readable, names the hash in the folder's name, and every
artifact is there. DONE is written last, after everything else in the folder has reached the disk.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from ingot.recipe.recipe import FromStage, Inputs, InputSource, Recipe, RecipeStage
from ingot.recipe.tree import dump_yaml
from ingot.workspace.errors import CheckFailed
from ingot.workspace.files import PARTIAL, fsync_file, fsync_folder, read_json, write_json, write_text
from ingot.workspace.stage import DONE
from ingot.workspace.version import VERSION


@dataclass(frozen=True)
class Done:
    """What DONE says: the result's summary, how long the work took, and what it was made from."""

    name: str
    kind: str
    hash: str
    seconds: float
    summary: dict[str, Any]
    inputs: dict[str, Any] = field(default_factory=dict)
    finished: str = ""
    ingot: str = ""


def stage_folder(run_folder: Path, name: str, stage_hash: str) -> Path:
    """Where a stage of this hash works."""
    return run_folder / f"{name}-{stage_hash}"


def read_done(folder: Path, stage_hash: str, makes: Iterable[str]) -> Done | None:
    """The record of a finished stage; None if the folder is not finished."""
    try:
        record = read_json(folder / DONE)
        done = Done(**record)
    except (OSError, ValueError, TypeError):  # no such file, torn or foreign content
        return None
    whole = done.hash == stage_hash and all((folder / artifact).exists() for artifact in makes)
    return done if whole and isinstance(done.summary, dict) else None


def write_done(folder: Path, stage: RecipeStage, done: Done, makes: Iterable[str]) -> None:
    """Declare the folder finished."""
    missing = [artifact for artifact in makes if not (folder / artifact).exists()]
    if missing:
        raise CheckFailed(
            f"the {stage.kind} stage {stage.name} did not write its {' and '.join(missing)}", place=str(folder)
        )
    for path in sorted(folder.rglob("*" + PARTIAL)):
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
    for path in sorted(folder.rglob("*")):
        fsync_folder(path) if path.is_dir() else fsync_file(path)
    now = datetime.now().astimezone().isoformat(timespec="seconds")
    record = asdict(done) | {"finished": now, "ingot": VERSION}
    write_json(folder / DONE, json.loads(json.dumps(record)))


def discard(folder: Path) -> None:
    """Delete a stage's work. An atomic rename comes first, so the folder is there or gone, never half of it."""
    if not folder.exists():
        return
    aside = folder.with_name(folder.name + PARTIAL)
    shutil.rmtree(aside, ignore_errors=True)
    folder.replace(aside)
    fsync_folder(folder.parent)
    shutil.rmtree(aside)


def sweep(run_folder: Path) -> None:
    """Remove what a killed process was discarding."""
    for path in run_folder.glob("*" + PARTIAL):
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)


def input_path(source: InputSource, folders: Mapping[str, Path]) -> Path:
    """The path of an input's artifact, given the folders of the stages."""
    return folders[source.stage] / source.artifact if isinstance(source, FromStage) else source.path


def input_paths(inputs: Inputs, folders: Mapping[str, Path]) -> dict[str, Any]:
    """The inputs as a stage's `run` takes them."""
    return {
        role: {name: input_path(source, folders) for name, source in sources.items()}
        if isinstance(sources, Mapping)
        else input_path(sources, folders)
        for role, sources in inputs.items()
    }


def input_names(inputs: Inputs) -> dict[str, Any]:
    """The inputs as run.json shows them: the name of a stage, or a path."""

    def name(source: InputSource) -> str:
        return source.stage if isinstance(source, FromStage) else str(source.path)

    return {
        role: {key: name(source) for key, source in sources.items()} if isinstance(sources, Mapping) else name(sources)
        for role, sources in inputs.items()
    }


def write_stage_recipe(folder: Path, recipe: Recipe, stage: RecipeStage, folders: Mapping[str, Path]) -> None:
    """recipe.yaml of a stage folder: all its options, defaults spelt out. `ingot KIND recipe.yaml` runs it alone."""
    paths = {
        role: {name: str(path) for name, path in value.items()} if isinstance(value, dict) else str(value)
        for role, value in input_paths(stage.inputs, folders).items()
    }
    content: dict[str, Any] = {"name": f"{recipe.name}-{stage.name}", "stage": stage.kind, "seed": stage.seed}
    if paths:
        content["inputs"] = paths
    content |= stage.config.model_dump(mode="json")
    write_text(folder / "recipe.yaml", dump_yaml(content))
