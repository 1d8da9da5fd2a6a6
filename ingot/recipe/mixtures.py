"""Checks, when a recipe is loaded, that the sources of every mixture exist.

The sources of a `tokenize` stage are in its config. The loader checks shards on disk before the first step. What follows @ in a
weight (`books@32768+`) selects documents of a source, which only the shards know.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ingot.recipe.declare import Declared
from ingot.recipe.problems import Problems
from ingot.recipe.recipe import FromStage, Inputs
from ingot.tokens.config import TokenizeConfig
from ingot.train.config import Phase
from ingot.workspace.nearest import suggestion


def check_mixtures(declared: Sequence[Declared], inputs: Mapping[str, Inputs], problems: Problems) -> None:
    """Check every name in the weights of every phase against the sources of the stage that makes the shards."""
    configs = {stage.name: stage.config for stage in declared}
    for stage in declared:
        phases: Sequence[Phase] = getattr(stage.config, "phases", ())  # of PretrainConfig, which imports torch
        shards = inputs[stage.name].get("shards")
        if not phases or not isinstance(shards, FromStage):
            continue
        makes = configs[shards.stage]
        if not isinstance(makes, TokenizeConfig):  # it has problems of its own
            continue
        names = (name.partition("@")[0] for phase in phases for name in phase.weights)
        for name in dict.fromkeys(names):
            if name not in makes.sources:
                problem = f"{stage.name}.phases: {shards.stage} makes no source {name} to train on"
                problems.add(problem, place=stage.place, fix=suggestion(name, makes.sources, "sources"))
