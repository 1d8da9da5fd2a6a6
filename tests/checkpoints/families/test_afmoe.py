"""AFMoE (Trinity) against transformers."""

from __future__ import annotations

from typing import Any

import pytest
from transformers import AfmoeConfig

from tests.checkpoints.families.harness import LINEAR, TINY, check

SMALL = TINY | {"head_dim": 8, "num_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 20}


@pytest.mark.parametrize(
    "changes",
    [
        {"sliding_window": 5, "num_hidden_layers": 4},
        {"sliding_window": 40, "mup_enabled": True, "num_dense_layers": 2, "global_attn_every_n_layers": 2},
        {
            "num_attention_heads": 3,
            "num_key_value_heads": 1,
            "head_dim": 10,
            "route_scale": 2.5,
            "attention_bias": True,
        },
        {"tie_word_embeddings": True, "num_shared_experts": 1, "num_dense_layers": 0, "rope_parameters": LINEAR},
    ],
)
def test_afmoe(changes: dict[str, Any]) -> None:
    check(AfmoeConfig(**(SMALL | changes)))
