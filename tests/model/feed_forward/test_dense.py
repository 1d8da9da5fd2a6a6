"""The dense feed-forward against transformers' own, and each option against its formula in float64."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformers import FalconH1Config, GemmaConfig, LlamaConfig, NemotronHConfig
from transformers.models.falcon_h1.modeling_falcon_h1 import FalconH1MLP
from transformers.models.gemma.modeling_gemma import GemmaMLP
from transformers.models.llama.modeling_llama import LlamaMLP
from transformers.models.nemotron_h.modeling_nemotron_h import NemotronHMLP

from ingot.model.feed_forward.dense import FeedForward, FeedForwardConfig

SHAPE: dict[str, Any] = {
    "hidden_size": 12,
    "intermediate_size": 20,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "mlp_bias": True,
}


def dense(**options: Any) -> FeedForward:
    return FeedForward(FeedForwardConfig.model_validate({"width": 20, **options}), 12)


PEERS: dict[str, tuple[dict[str, Any], Callable[[], nn.Module]]] = {
    "llama": ({"bias": True}, lambda: LlamaMLP(LlamaConfig(**SHAPE))),
    "gemma": ({"activation": "gelu_tanh"}, lambda: GemmaMLP(GemmaConfig(**SHAPE))),
    "falcon_h1": (
        {"bias": True, "gate_multiplier": 0.7, "output_multiplier": 1.3},
        lambda: FalconH1MLP(FalconH1Config(**SHAPE, mlp_multipliers=[0.7, 1.3])),
    ),
    "nemotron_h": (
        {"bias": True, "gated": False, "activation": "relu_squared"},
        lambda: NemotronHMLP(NemotronHConfig(**SHAPE)),
    ),
}


@pytest.mark.parametrize(("options", "make"), PEERS.values(), ids=PEERS.keys())
def test_values_and_gradients_equal_transformers(options: dict[str, Any], make: Callable[[], nn.Module]) -> None:
    torch.manual_seed(0)
    ours, peer = dense(**options), make()

    def convert(given: dict[str, Tensor]) -> dict[str, Tensor]:
        kinds = sorted({name.rsplit(".", 1)[1] for name in given})
        gates = ["gate", "up"] if ours.config.gated else ["up"]
        first = {f"{'_'.join(gates)}.{k}": torch.cat([given[f"{g}_proj.{k}"] for g in gates]) for k in kinds}
        return first | {f"down.{k}": given[f"down_proj.{k}"] for k in kinds}

    ours.load_state_dict({name: value.detach() for name, value in convert(dict(peer.named_parameters())).items()})
    x = torch.randn(3, 5, 12) * 3
    first, second = x.clone().requires_grad_(), x.clone().requires_grad_()
    mine, theirs = ours(first), peer(second)
    torch.testing.assert_close(mine, theirs, rtol=1e-5, atol=1e-5)
    mine.square().sum().backward()
    theirs.square().sum().backward()
    torch.testing.assert_close(first.grad, second.grad, rtol=1e-4, atol=1e-4)
    expected = convert({name: p.grad for name, p in peer.named_parameters() if p.grad is not None})
    for name, parameter in ours.named_parameters():
        torch.testing.assert_close(parameter.grad, expected[name], rtol=1e-4, atol=1e-4)


def erf_gelu(x: float) -> float:
    return x * (1 + math.erf(x / math.sqrt(2))) / 2


FORMULAS: dict[str, Callable[[float], float]] = {
    "silu": lambda x: x / (1 + math.exp(-x)),
    "gelu": erf_gelu,
    "gelu_tanh": lambda x: x * (1 + math.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))) / 2,
    "relu": lambda x: max(x, 0.0),
    "relu_squared": lambda x: max(x, 0.0) ** 2,
    "swish_1702": lambda x: x / (1 + math.exp(-1.702 * x)),
}


@pytest.mark.parametrize("options", [{}, {"clamp": 0.8, "up_offset": 1.0}, {"gate_multiplier": 0.3, "up_offset": -2.0}])
@pytest.mark.parametrize("activation", FORMULAS)
def test_gated_formula(activation: str, options: dict[str, float]) -> None:
    torch.manual_seed(1)
    ours, x = dense(activation=activation, **options).double(), torch.randn(4, 12, dtype=torch.float64) * 2
    gates, ups = (x @ ours.gate_up.weight.T).detach().split(20, dim=1)
    limit, inner = options.get("clamp", math.inf), torch.empty_like(gates)
    assert (gates > limit).any() == (ups.abs() > limit).any() == ("clamp" in options), "the clamp is at work"
    for place in range(gates.numel()):
        gate = min(float(gates.flatten()[place]), limit) * options.get("gate_multiplier", 1.0)
        up = max(-limit, min(float(ups.flatten()[place]), limit)) + options.get("up_offset", 0.0)
        inner.view(-1)[place] = FORMULAS[activation](gate) * up
    torch.testing.assert_close(ours(x), inner @ ours.down.weight.T, rtol=1e-12, atol=1e-12)
    assert torch.autograd.gradcheck(ours, (x.requires_grad_(),))


@pytest.mark.parametrize("activation", FORMULAS)
def test_ungated_formula(activation: str) -> None:
    torch.manual_seed(2)
    ours, x = dense(activation=activation, gated=False).double(), torch.randn(4, 12, dtype=torch.float64) * 2
    inner = (x @ ours.up.weight.T).detach().apply_(FORMULAS[activation])
    torch.testing.assert_close(ours(x), inner @ ours.down.weight.T, rtol=1e-12, atol=1e-12)


def test_options_of_the_gate_need_a_gate() -> None:
    for option in ({"clamp": 7.0}, {"up_offset": 1.0}, {"gate_multiplier": 0.5}):
        with pytest.raises(ValueError, match="belong to a gated feed-forward"):
            dense(gated=False, **option)
