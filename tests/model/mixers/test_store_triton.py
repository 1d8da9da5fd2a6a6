"""The kernel that stores new tokens equals the layer's own path, in Triton's interpreter or on a GPU."""

from __future__ import annotations

import os

import pytest
import torch

triton = pytest.importorskip("triton", reason="Triton is not installed")
if not torch.cuda.is_available() and os.environ.get("TRITON_INTERPRET") != "1":
    pytest.skip("needs a GPU, or TRITON_INTERPRET=1", allow_module_level=True)

from ingot.model.config import NormConfig  # noqa: E402
from ingot.model.context import Context  # noqa: E402
from ingot.model.mixers.attention import Attention  # noqa: E402
from ingot.model.mixers.cache import Room  # noqa: E402
from ingot.model.mixers.config import AttentionConfig  # noqa: E402
from ingot.model.mixers.mixer import Site  # noqa: E402
from ingot.model.norm import RmsNorm  # noqa: E402
from ingot.model.norm_triton import add_norm  # noqa: E402

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
KINDS = {
    "plain": {},
    "interleaved": {"rope": {"pairing": "interleaved"}},
    "partial": {"rope": {"share": 0.5}},
    "no positions": {"rope": None},
    "head norm": {"query_key_norm": "head"},
    "head norm, window": {"query_key_norm": "head", "window": 20, "query_key_value_bias": True},
}


@pytest.mark.parametrize("zero_centred", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16] if DEVICE == "cuda" else [torch.float32])
@pytest.mark.parametrize("kind", KINDS)
@torch.no_grad()
def test_queries_keys_and_values(kind: str, dtype: torch.dtype, zero_centred: bool) -> None:
    shape = {"heads": 6, "key_value_heads": 2, "head_width": 24, **KINDS[kind]}
    norm = NormConfig(zero_centred=zero_centred, cast="after_gain" if zero_centred else "before_gain")
    layer = Attention(AttentionConfig.model_validate(shape), Site(width=40, layer=0, depth=1, norm=norm))
    layer = layer.to(DEVICE, dtype)
    for name, parameter in layer.named_parameters():
        torch.nn.init.normal_(parameter, std=0.3 if "gain" not in name else 1.0)
    room = Room(slots=3, length=64, page=8, piece=16)
    x = torch.randn(2, 5, 40, device=DEVICE, dtype=dtype)
    positions = torch.tensor([[7, 8, 9, 10, 11], [30, 31, 32, 33, 34]], device=DEVICE)
    results = []
    for fused in (False, True):
        cache = layer.make_cache(room, dtype, torch.device(DEVICE))
        context = Context(
            positions,
            slots_B=torch.tensor([2, 0], device=DEVICE),
            lengths_B=torch.tensor([5, 3], device=DEVICE),
            reach=35,
        )
        if fused:
            query = layer._store(x, context, cache)
        else:
            query, key, value = layer._project(x)
            query, key = layer._place(query, key, context)
            cache.write(context, keys=key, values=value)
        results.append([query, *(cache.streams[name][1:] for name in ("keys", "values"))])  # page 0 is nobody's
    for ours, wanted in zip(results[1], results[0], strict=True):
        torch.testing.assert_close(ours, wanted, atol=2e-6 if dtype == torch.float32 else 0.02, rtol=1e-5)
    assert results[0][1].count_nonzero() == 8 * 2 * 24  # the keys of eight real tokens


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16] if DEVICE == "cuda" else [torch.float32])
@pytest.mark.parametrize("zero_centred", [False, True])
@torch.no_grad()
def test_sum_and_norm(dtype: torch.dtype, zero_centred: bool) -> None:
    norm = RmsNorm(50, NormConfig(zero_centred=zero_centred, cast="after_gain" if zero_centred else "before_gain"))
    norm = norm.to(DEVICE, dtype)
    assert norm.gain is not None
    torch.nn.init.normal_(norm.gain)
    x, y = torch.randn(2, 3, 7, 50, device=DEVICE, dtype=dtype)
    total, normed = add_norm(x, y, norm)
    assert torch.equal(total, x + y)
    torch.testing.assert_close(normed, norm(x + y), atol=2e-6 if dtype == torch.float32 else 0.02, rtol=1e-5)
    assert add_norm(x, None, norm)[0] is x
