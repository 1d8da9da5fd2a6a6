"""Phi-3 and Phi-4 mini against transformers."""

from __future__ import annotations

from typing import Any

import pytest
from transformers import Phi3Config

from tests.checkpoints.families.harness import TINY, check


def longrope(original: int, pairs: int) -> dict[str, Any]:
    """LongRoPE over `original` tokens, with other divisors for every pair of channels."""
    scaling = {
        "rope_type": "longrope",
        "rope_theta": 100.0,
        "short_factor": [1.0 + 0.1 * pair for pair in range(pairs)],
        "long_factor": [2.0 + 0.7 * pair for pair in range(pairs)],
    }
    return {"original_max_position_embeddings": original, "rope_parameters": scaling}


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"num_attention_heads": 3, "num_key_value_heads": 3, "sliding_window": 5, "tie_word_embeddings": True},
        {"num_attention_heads": 3, "num_key_value_heads": 1, "partial_rotary_factor": 0.75, "sliding_window": 40},
        longrope(32, 4),
        longrope(32, 3) | {"partial_rotary_factor": 0.75},
    ],
)
def test_phi3(changes: dict[str, Any]) -> None:
    check(Phi3Config(**(TINY | changes)))


@pytest.mark.parametrize("partial", [1.0, 0.75])
def test_longrope_beyond_the_original_context(partial: float) -> None:
    """Texts of 23 tokens, of which 16 were seen in training. A cache filled below the switch holds keys that were turned
    by the short divisors, so decoding over the switch is not the full pass (in the reference neither)."""
    changes = longrope(16, int(4 * partial)) | {"partial_rotary_factor": partial}
    check(Phi3Config(**(TINY | changes)), decode=False)
