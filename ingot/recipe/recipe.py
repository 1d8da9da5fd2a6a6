"""What a checked recipe is: its stages in running order, each with its config and where its inputs come from.

Invariant: every input that names a stage names an earlier one that makes the right kind of artifact.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ingot.workspace.config import Config
from ingot.workspace.draft import FromPath as FromPath
from ingot.workspace.draft import FromStage as FromStage
from ingot.workspace.draft import Inputs as Inputs
from ingot.workspace.draft import InputSource as InputSource
from ingot.workspace.errors import RecipeError
from ingot.workspace.nearest import suggestion


@dataclass(frozen=True)
class RecipeStage:
    """A stage of a recipe. `written_as` is its name in the file; stages made by `after: each` share one."""

    name: str
    kind: str
    config: Config
    seed: int
    inputs: Inputs = field(default_factory=dict)
    written_as: str = ""

    def sources(self) -> list[tuple[str, InputSource]]:
        """Every single input with its role."""
        pairs: list[tuple[str, InputSource]] = []
        for role, source in self.inputs.items():
            pairs += [(role, one) for one in source.values()] if isinstance(source, Mapping) else [(role, source)]
        return pairs

    def needed_stages(self) -> list[str]:
        """The earlier stages that this one takes something from."""
        return list(dict.fromkeys(source.stage for _, source in self.sources() if isinstance(source, FromStage)))


@dataclass(frozen=True)
class Recipe:
    """A recipe that can be run as it is."""

    name: str
    seed: int
    stages: tuple[RecipeStage, ...]
    path: Path
    next: tuple[str, ...] = ()  # commands that `ingot run` suggests at its end
    presets: Mapping[str, str] = field(
        default_factory=dict
    )  # the model of a checkpoint that a plan does not find on disk

    def preset_of(self, path: Path) -> str | None:
        """The preset that stands for the checkpoint at this path."""
        ends = ((Path(end).parts, preset) for end, preset in self.presets.items())
        return next((preset for parts, preset in ends if path.parts[-len(parts) :] == parts), None)

    def stage(self, name: str) -> RecipeStage:
        """The stage of this name."""
        return self.stages[self.index(name)]

    def index(self, name: str, *, last: bool = False, place: str | None = None) -> int:
        """The position of a stage; a name that `after` expanded means the first of its stages, or the `last`."""
        found = [number for number, stage in enumerate(self.stages) if stage.name == name]
        found = found or [number for number, stage in enumerate(self.stages) if stage.written_as == name]
        if not found:
            names = dict.fromkeys(
                name for stage in self.stages for name in (stage.written_as or stage.name, stage.name)
            )
            raise RecipeError(f"no stage is named {name}", place=place, fix=suggestion(name, names, "stages"))
        return found[-1 if last else 0]
