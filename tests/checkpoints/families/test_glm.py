"""GLM-4.5 against transformers (tests/model/test_multi_token.py has its multi-token module)."""

from __future__ import annotations

from typing import Any

import pytest
from transformers import Glm4MoeConfig

from tests.checkpoints.families.harness import TINY, YARN, check

SMALL = TINY | {"n_routed_experts": 8, "num_experts_per_tok": 3, "moe_intermediate_size": 20}


@pytest.mark.parametrize(
    "changes",
    [
        {"attention_bias": True},
        {"use_qk_norm": True, "num_attention_heads": 3, "num_key_value_heads": 1, "tie_word_embeddings": True},
        {
            "n_group": 4,
            "topk_group": 2,
            "routed_scaling_factor": 2.5,
            "first_k_dense_replace": 2,
            "n_shared_experts": 2,
        },
        {"norm_topk_prob": False, "first_k_dense_replace": 0, "partial_rotary_factor": 1.0, "head_dim": 10},
        {"rope_parameters": YARN | {"partial_rotary_factor": 0.5}, "num_key_value_heads": 6},
    ],
)
def test_glm4_moe(changes: dict[str, Any]) -> None:
    assert check(Glm4MoeConfig(**(SMALL | changes))).multi_token is None  # transformers mentions one and saves none
