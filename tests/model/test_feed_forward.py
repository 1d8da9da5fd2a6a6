"""The gated feed-forward against transformers' own, for both activations."""

from __future__ import annotations

import pytest
import torch
from transformers import GemmaConfig, LlamaConfig
from transformers.models.gemma.modeling_gemma import GemmaMLP
from transformers.models.llama.modeling_llama import LlamaMLP

from ingot.model.config import FeedForwardConfig
from ingot.model.feed_forward import FeedForward


@pytest.mark.parametrize(
    ("activation", "peer"),
    [
        (
            "silu",
            LlamaMLP(LlamaConfig(hidden_size=12, intermediate_size=20, num_attention_heads=2, num_key_value_heads=2)),
        ),
        (
            "gelu_tanh",
            GemmaMLP(GemmaConfig(hidden_size=12, intermediate_size=20, num_attention_heads=2, num_key_value_heads=2)),
        ),
    ],
)
def test_values_and_gradients_equal_transformers(activation: str, peer: torch.nn.Module) -> None:
    ours = FeedForward(FeedForwardConfig.model_validate({"width": 20, "activation": activation}), 12)
    weights = dict(peer.named_parameters())
    with torch.no_grad():
        ours.gate_up.weight.copy_(torch.cat([weights["gate_proj.weight"], weights["up_proj.weight"]]))
        ours.down.weight.copy_(weights["down_proj.weight"])
    x = torch.randn(3, 5, 12, generator=torch.Generator().manual_seed(0)) * 3
    first, second = x.clone().requires_grad_(), x.clone().requires_grad_()
    mine, theirs = ours(first), peer(second)
    torch.testing.assert_close(mine, theirs, rtol=1e-5, atol=1e-6)
    mine.square().sum().backward()
    theirs.square().sum().backward()
    torch.testing.assert_close(first.grad, second.grad, rtol=1e-5, atol=1e-6)
