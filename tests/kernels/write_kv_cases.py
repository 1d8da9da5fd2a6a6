"""Layers of every kind whose keys and values are written from the projection, and what the definition writes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from ingot.kernels.attention.write_kv import launch, write_kv_definition
from ingot.model.context import Context
from ingot.model.mixers.attention import Attention, AttentionConfig
from ingot.model.mixers.cache import CacheShape
from ingot.model.mixers.mixer import Site
from ingot.model.norm import NormConfig

KINDS: Mapping[str, Mapping[str, Any]] = {
    "plain": {},
    "interleaved": {"rope": {"pairing": "interleaved"}},
    "partial": {"rope": {"share": 0.5}},
    "no positions": {"rope": None},
    "head norm": {"query_key_norm": "head"},
    "norm of all heads": {"query_key_norm": "full"},
    "head norm, window": {"query_key_norm": "head", "window": 20, "query_key_value_bias": True},
}


@torch.no_grad()
def check_write(kind: str, zero_centred: bool, device: str, dtype: torch.dtype) -> None:
    """Two rows of five and three tokens: queries, keys and values are those of the definition."""
    shape = {"heads": 6, "key_value_heads": 2, "head_width": 24, **KINDS[kind]}
    norm = NormConfig(zero_centred=zero_centred, cast="after_gain" if zero_centred else "before_gain")
    layer = Attention(AttentionConfig.model_validate(shape), Site(width=40, layer=0, depth=1, norm=norm))
    layer = layer.to(device, dtype)
    for name, parameter in layer.named_parameters():
        torch.nn.init.normal_(parameter, std=0.3 if "gain" not in name else 1.0)
    cache_shape = CacheShape(slots=3, length=64, page=8, piece=16)
    x = torch.randn(2, 5, 40, device=device, dtype=dtype)
    positions = torch.tensor([[7, 8, 9, 10, 11], [30, 31, 32, 33, 34]], device=device)
    results = []
    for run in (write_kv_definition, launch):
        cache = layer.make_cache(cache_shape, dtype, torch.device(device))
        context = Context(
            positions,
            slots_B=torch.tensor([2, 0], device=device),
            lengths_B=torch.tensor([5, 3], device=device),
            reach=35,
        )
        projected = layer._projection(x)
        given = (cache.streams["keys"], cache.streams["values"], *cache.pages_and_offsets(context))
        options = {"cos_sin": layer._cos_sin(context), **layer._head_options()}
        if run is launch:
            query = run(projected.flatten(0, 1), *given, **options).unflatten(0, x.shape[:2]).transpose(1, 2)
        else:
            query = run(projected, *given, **options)
        results.append([query, *(cache.streams[name][1:] for name in ("keys", "values"))])  # page 0 is for padding
    for ours, wanted in zip(results[1], results[0], strict=True):
        torch.testing.assert_close(ours, wanted, atol=2e-6 if dtype == torch.float32 else 0.02, rtol=1e-5)
    assert results[0][1].count_nonzero() == 8 * 2 * 24  # the keys of eight real tokens
