"""OLMo 2 and OLMo 3 against transformers."""

from __future__ import annotations

from typing import Any

import pytest
from transformers import Olmo2Config, Olmo3Config

from tests.checkpoints.families.harness import LLAMA3, TINY, YARN, check

DEFAULT = {"rope_type": "default", "rope_theta": 300.0}


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"num_attention_heads": 3, "num_key_value_heads": 3, "tie_word_embeddings": True, "attention_bias": True},
        {"num_key_value_heads": 1, "rope_parameters": LLAMA3},
    ],
)
def test_olmo2(changes: dict[str, Any]) -> None:
    check(Olmo2Config(**(TINY | changes)))


@pytest.mark.parametrize(
    "changes",
    [
        {"num_hidden_layers": 4, "sliding_window": 5},
        {"sliding_window": 40, "layer_types": ["full_attention", "sliding_attention", "full_attention"]},
        {
            "sliding_window": 7,
            "num_key_value_heads": 6,
            "attention_bias": True,
            "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
            "rope_parameters": {"full_attention": YARN, "sliding_attention": DEFAULT},
        },
        {"layer_types": ["full_attention"] * 3, "tie_word_embeddings": True},
    ],
)
def test_olmo3(changes: dict[str, Any]) -> None:
    check(Olmo3Config(**(TINY | changes)))


def test_truncate_of_yarn_is_written_where_transformers_looks_for_it() -> None:
    """It reads `truncate` next to the layer types and not inside of them."""
    parameters = {"full_attention": YARN | {"truncate": False}, "sliding_attention": DEFAULT, "truncate": False}
    kinds = ["sliding_attention", "full_attention", "full_attention"]
    config = check(Olmo3Config(**TINY, sliding_window=7, layer_types=kinds, rope_parameters=parameters))
    rope = config.model_dump()["blocks"]["full"]["mixer"]["rope"]
    assert rope["scaling"]["truncate"] is False
