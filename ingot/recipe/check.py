"""Asks every stage of a recipe, before anything runs, what is wrong with it among the others (`Stage.check`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ingot.recipe.declare import Declared
from ingot.recipe.problems import Problems
from ingot.workspace.draft import DraftStage, FromStage, Inputs
from ingot.workspace.errors import RecipeError


def check_stages(declared: Sequence[Declared], inputs: Mapping[str, Inputs], problems: Problems) -> None:
    """Add the problems of all stages; one whose own options have problems is only looked at by others."""
    draft: dict[str, DraftStage] = {}
    places = {stage.name: stage.place for stage in declared}
    for stage in declared:
        if stage.config is not None:
            for problem in stage.config.unfit(inputs[stage.name]):  # an option that is ignored because of the inputs
                problems.add(f"{stage.name}.{problem}", place=stage.place)
        source, model = inputs[stage.name].get("checkpoint"), None
        before = draft[source.stage].model if isinstance(source, FromStage) else None
        try:
            model = None if stage.config is None else stage.kind.model(stage.config, before)
        except RecipeError as error:
            problems.add(f"{stage.name}.{error.problem}", place=stage.place, fix=error.fix)
        draft[stage.name] = DraftStage(stage.name, stage.kind, stage.config, inputs[stage.name], model)
    for stage in declared:
        if stage.config is None:
            continue
        for found in stage.kind.check(draft[stage.name], draft):
            name = found.stage or stage.name
            where = f"{name}.{found.option}" if found.option else name
            problems.add(f"{where}: {found.problem}", place=places[name], fix=found.fix)
