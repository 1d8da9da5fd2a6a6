"""Runs one stage from Python: the words of a call become a recipe of that stage, which runs as any other.

Nothing here knows what a stage does. A keyword that is the name of an input (`reward_model=`, `teacher=`) fills it, any other is
an option; functions and classes are named by their files (workspace/own_code.py). Hash, resume and checks are the recipe's.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral, Real
from pathlib import Path
from typing import Any

from ingot.planner.expected import expected_speed
from ingot.python.result import Result
from ingot.recipe.flow import RunResult, run_recipe
from ingot.recipe.load import RECIPE_NAME, make_recipe
from ingot.recipe.stages import STAGES
from ingot.recipe.tree import dump_yaml
from ingot.train.parallel.launch import in_world
from ingot.workspace.errors import Interrupted, RecipeError
from ingot.workspace.own_code import name_code
from ingot.workspace.progress import Progress, make_progress

RUNS = Path("runs")
OF_EVERY_CALL = ("name", "folder", "seed", "dry_run", "progress")
"""Keywords of every function: the run's name below runs/ or else its folder, its seed, whether only to look, and the display."""


@dataclass(frozen=True)
class StageCall:
    """One call of a stage. `function` is what the user called, `stage` the name of the stage in its recipe."""

    function: str
    stage: str
    kind: str
    given: dict[str, Any]  # all keywords

    @property
    def folder(self) -> Path:
        """The run's folder."""
        name, folder = self.given.get("name"), self.given.get("folder")
        if name is not None and folder is not None:
            raise RecipeError("name and folder both say where the run is", place=self.function, fix="give one of them")
        if name is not None and not RECIPE_NAME.fullmatch(str(name)):
            fix = "use letters, digits, dots, - and _; `folder` takes a path"
            raise RecipeError(f"{name!r:.80} is no name of a run", place=f"{self.function}: name", fix=fix)
        path = Path(folder).expanduser() if folder is not None else RUNS / (self.stage if name is None else str(name))
        above = next((each for each in (path, *path.parents) if each.exists()), path)
        if above.is_file():
            fix = "a folder is needed there: give another name or folder"
            raise RecipeError(f"{above} is a file", place=self.function, fix=fix)
        return path

    @property
    def rows(self) -> Path:
        """Where rows that are given in memory are written."""
        return self.folder / "rows"

    def set(self, option: str, value: Any) -> None:
        """Fill an option from an argument; it must not be given twice."""
        if option in self.given:
            fix = f"leave {option}= out, or the argument that stands for it"
            raise RecipeError(f"{option} is given twice", place=self.function, fix=fix)
        self.given[option] = value

    def run(self) -> Result:
        """Run the stage, or find its finished result; with `dry_run` only say what would be done."""
        content, runs = self.content(), self.folder.parent
        recipe = make_recipe(content, self.function)
        dry, progress = bool(self.given.get("dry_run")), self.given.get("progress")
        if not isinstance(progress, Progress | None):
            fix = "give an ingot.workspace.progress.Progress: a plain `Progress()` shows nothing"
            raise RecipeError(f"a {type(progress).__name__} is no display", place=f"{self.function}: progress", fix=fix)
        if dry:
            done = run_recipe(recipe, runs, dry_run=True)
        elif in_world():
            raise RecipeError(
                "torchrun started several processes, and a call in Python is one",
                place=self.function,
                fix=f"write {self.function}(…, dry_run=True).as_recipe() into a file; then: ingot run FILE --processes N",
            )
        else:
            try:
                with make_progress() if progress is None else progress as shown:
                    done = run_recipe(recipe, runs, progress=shown, expected=expected_speed)
            except Interrupted as error:
                raise Interrupted(f"{error}; the same call resumes it") from error
        command = "# ingot run FILE" + ("" if runs == RUNS else f" --runs {runs}")
        return Result(done.stages[0], recipe, f"{command}\n{dump_yaml(content)}", self.folder)

    def content(self) -> dict[str, Any]:
        """The recipe, as plain values."""
        needs = STAGES.find(self.kind).needs
        words = {key: value for key, value in self.given.items() if key not in OF_EVERY_CALL}
        inputs = {
            role: self._input(role, value) for role, value in words.items() if role in needs and value is not None
        }
        options = {key: self._plain(value, key) for key, value in words.items() if key not in needs}
        stage: dict[str, Any] = {"stage": self.kind} if self.kind != self.stage else {}
        stage |= {"inputs": inputs} if inputs else {}
        seed = {} if self.given.get("seed") is None else {"seed": self.given["seed"]}
        return {"name": self.folder.name, **seed, "stages": {self.stage: {**stage, **options}}}

    def _input(self, role: str, value: Any) -> Any:
        """The path of an input, or several by name."""
        if isinstance(value, Mapping):
            return {str(name): self._input(role, each) for name, each in value.items()}
        if isinstance(value, Sequence) and not isinstance(value, str):
            return {f"{role}{number}": self._input(role, each) for number, each in enumerate(value, 1)}
        if isinstance(value, RunResult):
            value = value.checkpoint or value.folder
        if isinstance(value, Result) and not value.finished:
            raise RecipeError(
                "this stage has not run yet", place=f"{self.function}: {role}", fix="call it without dry_run"
            )
        if isinstance(value, str | os.PathLike):
            return str(Path(value).expanduser())
        fix = "give a path, a run or a result; `ingot.export_model(model, FOLDER)` writes a model that is in memory"
        raise RecipeError(f"a {type(value).__name__} is no input", place=f"{self.function}: {role}", fix=fix)

    def _plain(self, value: Any, where: str) -> Any:
        """An option as a recipe has it: functions and classes by the names of their files."""
        if isinstance(value, os.PathLike):
            return os.fspath(value)
        if callable(value):
            try:
                return name_code(value, self.folder / "code")
            except RecipeError as error:
                raise RecipeError(error.problem, place=f"{self.function}: {where}", fix=error.fix) from error
        if isinstance(value, Mapping):
            return {self._plain(key, where): self._plain(each, f"{where}.{key}") for key, each in value.items()}
        if isinstance(value, list | tuple):
            return [self._plain(each, where) for each in value]
        if isinstance(value, bool) or not isinstance(value, Real):
            return value
        return int(value) if isinstance(value, Integral) else float(value)  # one of numpy's is no plain number
