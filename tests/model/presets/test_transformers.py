"""Presets against transformers: the type that a preset exports as can express it, and has as many parameters."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from ingot.checkpoints.families.table import write_config
from ingot.model.count import count
from ingot.model.presets.preset import Preset, presets
from ingot.workspace.files import write_json
from tests.model.minis import covering
from tests.slow import slow

BUFFERS = {"afmoe": "expert_bias"}
"""Parameters of theirs that are no weights: the selection bias, moved by the balancer."""


COVERING = covering({one.name: one.model for one in presets() if not one.mini})


@pytest.mark.parametrize(
    "one", [one if one.name in COVERING else slow(one) for one in presets()], ids=lambda one: one.name
)
def test_as_many_parameters_as_in_transformers(one: Preset, tmp_path: Path) -> None:
    config = one.model.model_copy(update={"vocabulary_size": one.model.vocabulary_size or 320})
    family, values = write_config(config)
    assert config.export_as in family.types
    write_json(tmp_path / "config.json", values)
    with torch.device("meta"):
        theirs = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(tmp_path))
    skipped = BUFFERS.get(family.types[0], "–")
    expected = sum(p.numel() for name, p in theirs.named_parameters() if not name.endswith(skipped))
    assert count(config).total == expected
