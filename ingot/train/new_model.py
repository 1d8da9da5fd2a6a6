"""Options of a new model, as they are written, that would change nothing about it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ingot.model.config import InitialConfig, ModelConfig
from ingot.model.presets.data import started
from ingot.workspace.errors import ArtifactError


def check_written(written: Mapping[str, Any], sequence_length: int) -> None:
    """Raise ValueError at the first option without effect. What a preset brings is not written."""
    if written.keys() >= ModelConfig.model_fields.keys():
        return  # the recipe.yaml of a stage, which spells everything out
    if written.get("context", sequence_length) != sequence_length:
        raise ValueError(
            f"model.context: a new model's context is what it is trained on, sequence_length ({sequence_length}); leave it out, "
            "and let a later stage with a longer sequence_length extend it"
        )
    whole = started(written)
    initial, all_initial = written.get("initial") or {}, InitialConfig.model_validate(whole.get("initial") or {})
    if all_initial.distribution == "xavier":
        for name in ("std", "scale"):
            if name in initial:
                raise ValueError(f"model.initial.{name}: xavier has a std of its own; leave it out")
    if "scale" in initial and all_initial.std is not None:
        raise ValueError(
            f"model.initial.scale: std is {all_initial.std} whatever it is; leave it out, or set std: null"
        )
    if written.get("embedding_scale_rounded") and whole.get("embedding_scale", 1) == 1:
        raise ValueError(
            "model.embedding_scale_rounded: there is no embedding_scale to round; leave it out, or set that"
        )
    if written.get("export_as") is not None:
        from ingot.checkpoints.families.table import find_family  # here: all families, for an option that few write

        try:
            find_family(written["export_as"], "")
        except ArtifactError as error:
            raise ValueError(f"model.export_as: {error.problem}; {error.fix}") from None
