"""Mistral and Mixtral against transformers."""

from __future__ import annotations

from typing import Any

import pytest
from transformers import MistralConfig, MixtralConfig

from tests.checkpoints.families.harness import LLAMA3, TINY, check


@pytest.mark.parametrize(
    "changes",
    [
        {"sliding_window": None},
        {"sliding_window": 5, "tie_word_embeddings": True},
        {"sliding_window": 9, "head_dim": 12, "num_key_value_heads": 6, "rope_parameters": LLAMA3},
    ],
)
def test_mistral(changes: dict[str, Any]) -> None:
    check(MistralConfig(**(TINY | changes)))


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"sliding_window": 6, "num_experts_per_tok": 3, "tie_word_embeddings": True},
        {"num_local_experts": 4, "num_experts_per_tok": 4, "head_dim": 12},
    ],
)
def test_mixtral(changes: dict[str, Any]) -> None:
    check(
        MixtralConfig(**(TINY | {"num_local_experts": 5, "num_experts_per_tok": 2, "intermediate_size": 20} | changes))
    )
