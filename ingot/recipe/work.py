"""The work of a recipe in a runs folder: for each stage its hash, folder and status."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ingot.recipe.folders import Done, read_done, stage_folder
from ingot.recipe.graph import hash_stages
from ingot.recipe.recipe import Recipe, RecipeStage
from ingot.recipe.stages import STAGES, Table
from ingot.workspace.stage import Stage


@dataclass(frozen=True)
class StageWork:
    """One stage and the folder that is or will be its result."""

    stage: RecipeStage
    kind: Stage
    hash: str
    folder: Path
    done: Done | None

    @property
    def status(self) -> str:
        """`done`, `to resume` (begun, not finished) or `to do`."""
        if self.done is not None:
            return "done"
        return "to resume" if self.folder.exists() else "to do"


def list_work(recipe: Recipe, runs: Path, table: Table = STAGES) -> list[StageWork]:
    """Every stage of the recipe in order, looked up below `runs`; writes nothing."""
    hashes = hash_stages(recipe, table)
    works = []
    for stage in recipe.stages:
        folder = stage_folder(runs / recipe.name, stage.name, hashes[stage.name])
        kind = table.find(stage.kind)
        done = read_done(folder, hashes[stage.name], kind.makes)
        works.append(StageWork(stage, kind, hashes[stage.name], folder, done))
    return works
