"""Divisibility against dividing: torch must be able to cut the built model's tensors into equal pieces where a rule says so."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from ingot.model.config import ModelConfig
from ingot.model.transformer import Transformer
from ingot.train.parallel.config import MeshConfig
from ingot.train.parallel.divisible import check_divisible, divided_widths, find_indivisible
from ingot.workspace.errors import RecipeError


def model(**options: Any) -> ModelConfig:
    block = {
        "mixer": {"heads": 12, "key_value_heads": 6, "head_width": 8},
        "feed_forward": {"kind": "moe", "experts": 10, "active": 2, "expert": {"width": 36}, "shared": {"width": 48}},
    }
    return ModelConfig.model_validate(
        {"vocabulary_size": 120, "width": 32, "layers": "layer*5", "blocks": {"layer": block}, **options}
    )


def broken(mesh: dict[str, Any], length: int = 64, rows: int | None = None) -> list[str]:
    found = find_indivisible(model(), MeshConfig.model_validate(mesh), sequence_length=length, rows_per_step=rows)
    return [one.axis for one in found]


@pytest.mark.parametrize("tensor", range(1, 13))
def test_tensor_against_the_tensors_themselves(tensor: int) -> None:
    """Cut query, key and value heads and inner channels of the built model into equal pieces."""
    with torch.device("meta"):
        weights = dict(Transformer(model()).named_parameters())
    heads = [torch.empty(12, 8), torch.empty(6, 8)]
    stacked = weights["blocks.0.mixer.query_key_value.weight"]
    assert len(stacked) == heads[0].numel() + 2 * heads[1].numel()
    inner = [
        weights["blocks.0.feed_forward.experts.down"].transpose(0, 2),
        weights["blocks.0.feed_forward.shared.down.weight"].T,
    ]
    pieces = [*heads, *inner]
    equal = all(len({len(cut) for cut in each.tensor_split(tensor)}) == 1 for each in pieces)
    assert (broken({"tensor": tensor}) == []) == equal


def test_rules_by_hand() -> None:
    assert divided_widths(model()) == {
        "heads": {12},
        "key_value_heads": {6},
        "feed_forward.expert.width": {36},
        "feed_forward.shared.width": {48},
    }
    assert broken({"context": 4}, length=64) == []
    assert broken({"context": 4}, length=68) == ["context"]  # two pieces for each rank: 68 / 8 is no whole number
    assert broken({"pipeline": 5}) == []
    assert broken({"pipeline": 6}) == ["pipeline"]
    assert broken({"pipeline": 3, "pipeline_stages": 2, "pipeline_schedule": "interleaved"}) == ["pipeline"]
    assert broken({"shard": 10, "expert": 5}) == []
    assert broken({"shard": 8, "expert": 4}) == ["expert"]  # 10 experts
    assert broken({"shard": 4, "expert": 5}) == ["expert"]  # 4 ranks
    assert broken({"shard": 4, "replicate": 2}, rows=8) == []
    assert broken({"shard": 4, "replicate": 2}, rows=7) == ["data"]
    assert broken({"expert": 5}) == []  # shard 0 is the rest of the processes, unknown here


def test_what_is_whole_on_every_rank_need_not_divide() -> None:
    recurrent = {"layer": {"mixer": {"kind": "kda", "heads": 3, "head_width": 8}, "feed_forward": {"width": 8}}}
    assert (
        find_indivisible(model(blocks=recurrent, vocabulary_size=121), MeshConfig(tensor=4), sequence_length=64) == []
    )


def test_every_problem_in_one_error() -> None:
    with pytest.raises(RecipeError) as caught:
        check_divisible(model(), MeshConfig(tensor=5, pipeline=9, expert=2), sequence_length=64)
    message = str(caught.value)
    assert "tensor (5) does not divide heads (12)" in message
    assert "5 layers are fewer than the 9 stages" in message
    with pytest.raises(RecipeError, match="no layer has routed experts"):
        dense = {"layer": {"mixer": {"heads": 2, "key_value_heads": 2, "head_width": 16}, "feed_forward": {"width": 8}}}
        check_divisible(model(blocks=dense), MeshConfig(expert=2, shard=2), sequence_length=64)
