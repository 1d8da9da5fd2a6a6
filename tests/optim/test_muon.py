"""Muon against torch's and against the formula in float64, matrix by matrix; its other half against torch's AdamW."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from ingot.model.config import ModelConfig
from ingot.model.matrices import fused_weights
from ingot.model.transformer import Transformer
from ingot.optim.adamw import AdamW
from ingot.optim.build import make_optimizer
from ingot.optim.config import MuonConfig
from ingot.optim.groups import is_hidden_matrix
from ingot.optim.muon import Muon
from ingot.optim.newton_schulz import polynomials
from tests.model.tiny import attention, config, random_model, random_tokens
from tests.train.parallel.models import MLA, MOE, shape


def muon(**changes: Any) -> MuonConfig:
    return MuonConfig.model_validate({"kind": "muon", "lr": 0.02, "weight_decay": 0.3, "epsilon": 1e-6, **changes})


def set_gradients(model: Transformer, seed: int) -> None:
    model.zero_grad()
    model(random_tokens(2, 6, seed=seed)).square().mean().backward()


def orthogonal(matrix: Tensor, kind: str, iterations: int) -> Tensor:
    """The iteration on singular values, in float64."""
    left, values, right = torch.linalg.svd(matrix, full_matrices=False)
    values = values / values.norm().clamp_min(1e-300) / (1.0 if kind == "quintic" else 1.01)
    for a, b, c in polynomials(kind, iterations):
        values = a * values + b * values**3 + c * values**5
    return left * values @ right


def blocks_of(name: str, weight: Tensor, model: ModelConfig, split: bool) -> list[Tensor]:
    """The matrices in a weight, written down once more by hand: the sizes are those of the models below."""
    if weight.dim() == 3:
        return [block for expert in weight for block in blocks_of(name + ".weight", expert, model, split)]
    mixer = next(iter(model.blocks.values())).mixer
    if name.endswith("query_key_value.weight"):
        heads, key_heads, width = mixer.heads, mixer.key_value_heads, mixer.head_width  # type: ignore[union-attr]
        parts = list(weight.split((heads * width, key_heads * width, key_heads * width)))
        return [head for part in parts for head in part.split(width)] if split else parts
    if name.endswith("gate_up.weight"):
        return list(weight.chunk(2))
    if name.endswith("query_up.weight"):
        return list(weight.chunk(4)) if split else [weight]  # 4 heads of 8 + 8
    if name.endswith("key_value_down.weight"):
        return list(weight.split((16, 8)))
    if name.endswith("key_value_up.weight"):
        keys, values = weight.unflatten(0, (4, 16)).split((8, 8), dim=1)
        return [*keys, *values] if split else [keys.flatten(0, 1), values.flatten(0, 1)]
    return [weight]


def joined(name: str, weight: Tensor, parts: list[Tensor], model: ModelConfig, split: bool) -> Tensor:
    """`parts` put where `blocks_of` took them from."""
    places = blocks_of(name, torch.arange(weight.numel()).view(weight.shape), model, split)
    flat = torch.empty(weight.numel(), dtype=parts[0].dtype)
    for place, part in zip(places, parts, strict=True):
        flat[place.flatten()] = part.flatten()
    return flat.view(weight.shape)


SHAPES = {
    "grouped": config(attention(query_key_value_bias=True), depth=2),
    "mla": shape(MLA, layers=2, vocabulary_size=61),
    "moe": shape(MOE, layers=2, vocabulary_size=61),
}


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"split_heads": True, "scale": "spectral"},
        {"nesterov": False, "coefficients": "polar_express", "iterations": 6},
    ],
)
def test_steps_are_those_of_the_formula(name: str, changes: dict[str, Any]) -> None:
    settings, model = muon(**changes), random_model(SHAPES[name]).double()
    optimizer = make_optimizer(model, settings)
    named = dict(model.named_parameters())
    matrices = {name: parameter for name, parameter in named.items() if is_hidden_matrix(name, parameter)}
    exact = {name: parameter.detach().clone() for name, parameter in matrices.items()}
    momentum = {name: torch.zeros_like(value) for name, value in exact.items()}
    for step in range(3):
        set_gradients(model, step)
        for name, parameter in matrices.items():
            assert parameter.grad is not None
            gradient = parameter.grad
            momentum[name] = 0.95 * momentum[name] + gradient  # not averaged: only the direction counts
            ahead = gradient + 0.95 * momentum[name] if settings.nesterov else momentum[name]
            parts = []
            for part in blocks_of(name, ahead, model.config, settings.split_heads):
                rows, columns = part.shape
                scale = 0.2 * max(rows, columns) ** 0.5 if settings.scale == "rms" else max(1, rows / columns) ** 0.5
                parts.append(scale * orthogonal(part, settings.coefficients, settings.iterations))
            change = joined(name, exact[name], parts, model.config, settings.split_heads)
            exact[name] = exact[name] - 0.02 * (change + 0.3 * exact[name])
        optimizer.step()
    for name, parameter in matrices.items():
        torch.testing.assert_close(parameter.detach(), exact[name], rtol=0, atol=1e-10)


@pytest.mark.parametrize(("mine", "theirs"), [("rms", "match_rms_adamw"), ("spectral", "original")])
def test_plain_matrices_move_as_with_torch(mine: str, theirs: str) -> None:
    """torch iterates in bfloat16: the steps agree within its rounding, far less than the step itself."""
    generator = torch.Generator().manual_seed(0)
    start = [torch.randn(size, generator=generator) for size in ((16, 24), (24, 16), (16, 24), (12, 12))]
    ours, other = ([nn.Parameter(value.clone()) for value in start] for _ in range(2))
    options = {"lr": 0.1, "weight_decay": 0.3, "momentum": 0.9, "nesterov": True}
    rest = {"half": "muon", "iterations": 5, "coefficients": "quintic", "scale": mine, "split_heads": False}
    optimizer = Muon([{"params": ours, **options, **rest}], rows={}, orders={})
    peer = torch.optim.Muon(other, **options, adjust_lr_fn=theirs)  # type: ignore[arg-type]
    for _ in range(3):
        for one, two in zip(ours, other, strict=True):
            one.grad = torch.randn(one.shape, generator=generator)
            two.grad = one.grad.clone()
        optimizer.step()
        peer.step()
    for one, two, first in zip(ours, other, start, strict=True):
        assert float((one - two).norm() / (two - first).norm()) < 0.02


def test_the_rest_is_updated_by_adamw() -> None:
    model = random_model(config(attention(query_key_value_bias=True, sinks=True), tied_embeddings=False))
    peer = copy.deepcopy(model)
    optimizer = make_optimizer(model, muon(rest_lr=0.01))
    rest = {name for name, parameter in model.named_parameters() if not is_hidden_matrix(name, parameter)}
    decayed = {"output.weight"}
    plain = torch.optim.AdamW(
        [
            {"params": [p for name, p in peer.named_parameters() if name in names], "weight_decay": decay}
            for names, decay in ((decayed, 0.3), (rest - decayed, 0.0))
        ],
        lr=0.01,
        betas=(0.9, 0.95),
        eps=1e-6,
        fused=True,
    )
    for step in range(3):
        set_gradients(model, step)
        for one, other in zip(model.parameters(), peer.parameters(), strict=True):
            other.grad = None if one.grad is None else one.grad.clone()
        optimizer.step()
        plain.step()
    compared = dict(peer.named_parameters())
    for name, parameter in model.named_parameters():
        if name in rest:
            assert torch.equal(parameter, compared[name]), name


def test_scaling_and_skipping_are_tensors() -> None:
    shape = config(attention(), depth=1)
    model, peer = random_model(shape), random_model(shape)
    optimizer, plain = make_optimizer(model, muon()), make_optimizer(peer, muon())
    assert isinstance(optimizer, AdamW)
    for step in range(4):
        set_gradients(model, step)
        set_gradients(peer, step)
        size = 1.0 + step  # a different one each step: momentum adds the gradients up
        optimizer.grad_scale, optimizer.found_inf = torch.tensor(size), torch.tensor(float(step == 2))
        if step == 2:
            before = [parameter.detach().clone() for parameter in model.parameters()]
            for parameter in model.parameters():
                parameter.grad.fill_(torch.nan)  # type: ignore[union-attr]
            optimizer.step()
            assert all(torch.equal(*pair) for pair in zip(before, model.parameters(), strict=True))
            continue
        for parameter in peer.parameters():
            assert parameter.grad is not None
            parameter.grad /= size
        optimizer.step()
        plain.step()
    for one, other in zip(model.parameters(), peer.parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-6)


def test_a_stored_state_continues_exactly() -> None:
    model = random_model(config(attention(), depth=1))
    optimizer = make_optimizer(model, muon())
    set_gradients(model, 0)
    optimizer.step()
    copied = copy.deepcopy(model)
    again = make_optimizer(copied, muon())
    again.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    for each, mover in ((model, optimizer), (copied, again)):
        set_gradients(each, 1)
        mover.step()
    for one, other in zip(model.parameters(), copied.parameters(), strict=True):
        assert torch.equal(one, other)


def test_every_described_weight_is_covered_by_its_matrices() -> None:
    """Each row of a fused weight belongs to exactly one matrix, in all parts that have such weights."""
    parts: dict[str, Any] = {
        "gated_delta": {"kind": "gated_delta", "key_heads": 2, "key_width": 4, "value_heads": 4, "value_width": 6},
        "kda": {"kind": "kda", "heads": 3, "head_width": 4},
        "lightning": {"kind": "lightning", "heads": 3, "head_width": 4},
        "mamba2": {"kind": "mamba2", "heads": 4, "head_width": 6, "groups": 2, "state": 5},
    }
    shapes = [
        *SHAPES.values(),
        *(shape({"mixer": mixer, "feed_forward": {"width": 16}}, layers=1) for mixer in parts.values()),
    ]
    for each in shapes:
        model = Transformer(each)
        described = fused_weights(model)
        assert described
        for name, rows in described.items():
            weight = model.get_parameter(name)
            counts = torch.zeros(weight.shape)
            for part in rows:
                part.of(counts).add_(1)
            assert torch.equal(counts, torch.ones(weight.shape)), name
