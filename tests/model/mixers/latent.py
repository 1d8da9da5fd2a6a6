"""Small layers of latent attention, their twins in transformers, and what the tests of both forms share."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from ingot.model.context import Context
from ingot.model.mixers.cache import CacheShape
from ingot.model.mixers.mixer import Site
from ingot.model.mixers.mla import Mla, MlaConfig
from ingot.model.norm import NormConfig

WIDTH = 36

# ours -> theirs; every tensor has the same shape on both sides
NAMES = {
    "query.weight": "q_proj.weight",
    "query_down.weight": "q_a_proj.weight",
    "query_down.bias": "q_a_proj.bias",
    "query_norm.gain": "q_a_layernorm.weight",
    "query_up.weight": "q_b_proj.weight",
    "key_value_down.weight": "kv_a_proj_with_mqa.weight",
    "key_value_down.bias": "kv_a_proj_with_mqa.bias",
    "key_value_norm.gain": "kv_a_layernorm.weight",
    "key_value_up.weight": "kv_b_proj.weight",
    "output.weight": "o_proj.weight",
    "output.bias": "o_proj.bias",
    "indexer.query.weight": "indexer.wq_b.weight",
    "indexer.key.weight": "indexer.wk.weight",
    "indexer.key_norm.weight": "indexer.k_norm.weight",
    "indexer.key_norm.bias": "indexer.k_norm.bias",
    "indexer.head_weight.weight": "indexer.weights_proj.weight",
}


def mla_config(**changes: Any) -> MlaConfig:
    """Three heads, no two widths alike."""
    shape = {
        "kind": "mla",
        "heads": 3,
        "query_latent": 20,
        "key_value_latent": 16,
        "content_width": 10,
        "rope_width": 6,
        "value_width": 12,
    }
    return MlaConfig.model_validate({**shape, **changes})


def mla(dtype: torch.dtype = torch.float64, seed: int = 0, **changes: Any) -> Mla:
    """A layer in which no weight is special."""
    layer = Mla(mla_config(**changes), Site(width=WIDTH, layer=0, depth=1, norm=NormConfig(epsilon=1e-5))).to(dtype)
    return randomise(layer, seed)


def randomise(layer: Mla, seed: int) -> Mla:
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in sorted(layer.named_parameters()):
            parameter.copy_(0.3 * torch.randn(parameter.shape, generator=generator, dtype=torch.float64))
            if name.endswith(("gain", "key_norm.weight")):
                parameter.add_(1.0)
    return layer


def stream(rows: int, length: int, seed: int = 1, dtype: torch.dtype = torch.float64) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(rows, length, WIDTH, generator=generator, dtype=torch.float64).to(dtype)


def whole(rows: int, length: int, **changes: Any) -> Context:
    """A pass over rows of one document each."""
    return Context(torch.arange(length).expand(rows, length), **changes)


def packed(*lengths: int, padding: int = 0) -> Context:
    """One row of documents of the given lengths, then padding."""
    numbers = [number for number, length in enumerate(lengths) for _ in range(length)]
    positions = [position for length in lengths for position in range(length)]
    documents = torch.tensor([numbers + [-1] * padding])
    return Context(torch.tensor([positions + [0] * padding]), documents)


def decode(layers: list[Mla], x_BTD: Tensor, pieces: list[list[int]], slots: list[int], cache_shape: int) -> Tensor:
    """All layers' summed outputs when the rows of x arrive in pieces; piece p brings pieces[p][b] tokens of row b.

    Shorter rows are padded at their end. Layers do not feed each other: each reads x.
    """
    rows = x_BTD.shape[0]
    caches = [
        layer.make_cache(CacheShape(slots=max(slots) + 1, length=cache_shape), x_BTD.dtype, x_BTD.device)
        for layer in layers
    ]
    done, outputs = [0] * rows, torch.zeros_like(x_BTD)
    for piece in pieces:
        longest = max(piece)
        start = torch.tensor(done)[:, None]
        block = torch.full((rows, longest, WIDTH), 7.0, dtype=x_BTD.dtype)
        for row, count in enumerate(piece):
            block[row, :count] = x_BTD[row, done[row] : done[row] + count]
        context = Context(
            start + torch.arange(longest),
            slots_B=torch.tensor(slots),
            lengths_B=torch.tensor(piece),
            reach=max(done) + longest,
        )
        for layer, cache in zip(layers, caches, strict=True):
            result = layer(block, context, cache)
            for row, count in enumerate(piece):
                outputs[row, done[row] : done[row] + count] += result[row, :count]
        done = [old + count for old, count in zip(done, piece, strict=True)]
    assert done == [x_BTD.shape[1]] * rows
    return outputs


def copy_to(theirs: nn.Module, ours: Mla) -> None:
    """Give the module of transformers our weights; every tensor on both sides must be met."""
    state = {NAMES[name]: parameter.detach().clone() for name, parameter in ours.named_parameters()}
    theirs.load_state_dict(state, strict=True)


def assert_same_gradients(ours: Mla, theirs: nn.Module, tolerance: float) -> None:
    """Relative to the largest gradient of each tensor. Parameters without gradient must be so on both sides."""
    other = dict(theirs.named_parameters())
    for name, parameter in ours.named_parameters():
        twin = other[NAMES[name]]
        if parameter.grad is None or twin.grad is None:
            assert parameter.grad is None and twin.grad is None, name
            continue
        gap = (parameter.grad - twin.grad).abs().max() / twin.grad.abs().max()
        assert gap < tolerance, f"{name}: {gap:.1e}"


def causal_bias(length: int) -> Tensor:
    """The additive mask [1, 1, T, T] that transformers' attention expects."""
    return torch.full((length, length), torch.finfo(torch.float32).min).triu(1)[None, None]
