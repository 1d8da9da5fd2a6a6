"""Latent attention against transformers, and its two forms against each other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.autograd import grad
from transformers.models.deepseek_v2.configuration_deepseek_v2 import DeepseekV2Config
from transformers.models.deepseek_v2.modeling_deepseek_v2 import DeepseekV2Attention, DeepseekV2RotaryEmbedding
from transformers.models.deepseek_v3.configuration_deepseek_v3 import DeepseekV3Config
from transformers.models.deepseek_v3.modeling_deepseek_v3 import DeepseekV3Attention, DeepseekV3RotaryEmbedding
from transformers.models.kimi_linear.configuration_kimi_linear import KimiLinearConfig
from transformers.models.kimi_linear.modeling_kimi_linear import KimiLinearAttention

from ingot.kernels.attention.attend_latent import mix_entries
from ingot.model.context import Context
from ingot.model.mixers.cache import CacheShape
from ingot.model.mixers.mask import Mask
from ingot.model.mixers.mla import Mla, softmax_scale
from tests.model.mixers.latent import (
    WIDTH,
    assert_same_gradients,
    causal_bias,
    copy_to,
    decode,
    mla,
    mla_config,
    packed,
    stream,
    whole,
)

YARN = {"kind": "yarn", "factor": 8.0, "original_context": 16, "mscale": 1.0, "mscale_all_dim": 0.7}
THEIR_YARN = {
    "rope_type": "yarn",
    "rope_theta": 500.0,
    "factor": 8.0,
    "original_max_position_embeddings": 16,
    "mscale": 1.0,
    "mscale_all_dim": 0.7,
    "beta_fast": 32,
    "beta_slow": 1,
}
PLAIN = {"rope_type": "default", "rope_theta": 500.0}


def their_shape(ours: Mla, rope: dict[str, Any], **changes: Any) -> dict[str, Any]:
    config = ours.config
    return {
        "hidden_size": WIDTH,
        "num_attention_heads": config.heads,
        "num_key_value_heads": config.heads,
        "q_lora_rank": config.query_latent,
        "kv_lora_rank": config.key_value_latent,
        "qk_nope_head_dim": config.content_width,
        "qk_rope_head_dim": config.rope_width,
        "v_head_dim": config.value_width,
        "attention_bias": config.bias,
        "max_position_embeddings": 128,
        "rope_parameters": rope,
        "attn_implementation": "eager",
        **changes,
    }


def v3(ours: Mla, rope: dict[str, Any], **changes: Any) -> tuple[nn.Module, Callable[[Tensor], Tensor]]:
    config = DeepseekV3Config(**their_shape(ours, rope, **changes))
    attention = DeepseekV3Attention(config, 0)
    rotary = DeepseekV3RotaryEmbedding(config)
    return attention, lambda x: attention(x, rotary(x, torch.arange(x.shape[1])[None]), causal_bias(x.shape[1]))[0]


def v2(ours: Mla, rope: dict[str, Any]) -> tuple[nn.Module, Callable[[Tensor], Tensor]]:
    config = DeepseekV2Config(**their_shape(ours, rope))
    attention = DeepseekV2Attention(config, 0)
    rotary = DeepseekV2RotaryEmbedding(config)
    return attention, lambda x: attention(
        x, causal_bias(x.shape[1]), position_embeddings=rotary(x, torch.arange(x.shape[1])[None])
    )[0]


def kimi(ours: Mla, rope: dict[str, Any]) -> tuple[nn.Module, Callable[[Tensor], Tensor]]:
    attention = KimiLinearAttention(KimiLinearConfig(**their_shape(ours, rope)), 0)
    return attention, lambda x: attention(x, causal_bias(x.shape[1]))[0]


INTERLEAVED = {"base": 500.0, "pairing": "interleaved"}
CASES: dict[str, tuple[dict[str, Any], Callable[[Mla], tuple[nn.Module, Callable[[Tensor], Tensor]]]]] = {
    "v3": ({"rope": INTERLEAVED}, lambda ours: v3(ours, PLAIN)),
    "v3 yarn": ({"rope": {**INTERLEAVED, "scaling": YARN}}, lambda ours: v3(ours, THEIR_YARN)),
    "v3 bias, wide values": ({"rope": INTERLEAVED, "bias": True, "value_width": 21}, lambda ours: v3(ours, PLAIN)),
    "v3 full query": ({"rope": INTERLEAVED, "query_latent": None}, lambda ours: v3(ours, PLAIN)),
    "v3 halves": ({"rope": {"base": 500.0}}, lambda ours: v3(ours, PLAIN, rope_interleave=False)),
    "v2": ({"rope": INTERLEAVED, "query_latent": None}, lambda ours: v2(ours, PLAIN)),
    "kimi, no rotation": ({"rope": None, "query_latent": None}, lambda ours: kimi(ours, PLAIN)),
}


@pytest.mark.parametrize("case", CASES)
def test_equals_transformers(case: str) -> None:
    changes, build = CASES[case]
    ours = mla(torch.float32, **changes)
    theirs, call = build(ours)
    copy_to(theirs, ours)
    x = stream(2, 40, dtype=torch.float32).requires_grad_()
    twin = x.detach().clone().requires_grad_()
    weight = stream(2, 40, seed=5, dtype=torch.float32)
    result, reference = ours(x, whole(2, 40)), call(twin)
    assert (result - reference).abs().max() < 1e-5 * reference.abs().max()
    (result * weight).sum().backward()
    (reference * weight).sum().backward()
    assert x.grad is not None and twin.grad is not None
    assert (x.grad - twin.grad).abs().max() < 1e-5 * twin.grad.abs().max()
    assert_same_gradients(ours, theirs, 1e-5)


def test_the_temperature_of_yarn_is_in_the_scale() -> None:
    scaling = {**YARN, "factor": 40.0, "mscale_all_dim": 1.0}
    deepseek = mla_config(content_width=128, rope_width=64, rope={"pairing": "interleaved", "scaling": scaling})
    assert softmax_scale(deepseek) == pytest.approx(192**-0.5 * (0.1 * 3.6888794541139363 + 1) ** 2)
    without = mla_config(content_width=128, rope_width=64, rope={"scaling": {**scaling, "mscale_all_dim": None}})
    assert softmax_scale(without) == 192**-0.5


def attend_absorbed(layer: Mla, query_BHTW: Tensor, entry_BSE: Tensor, context: Context) -> Tensor:
    """The absorbed form over a whole sequence; the layer itself takes it over a cache."""
    seen = Mask().dense(context)[:, 0]
    mixed = mix_entries(layer._absorb(query_BHTW), entry_BSE, seen, layer.config.key_value_latent, layer.scale)
    return layer._values(mixed)


@pytest.mark.parametrize("documents", [False, True])
def test_absorbed_equals_expanded_with_gradients(documents: bool) -> None:
    layer = mla(rope=INTERLEAVED)
    x = stream(1, 19).requires_grad_()
    context = packed(7, 1, 11) if documents else whole(1, 19)
    weight = stream(1, 19, seed=5)
    results = []
    for form in (Mla.attend_expanded, attend_absorbed):
        query, _ = layer._queries(x, context)
        mixed = layer.output(form(layer, query, layer._entries(x, context), context).transpose(1, 2).flatten(2))
        results.append((mixed, grad((mixed * weight).sum(), [x, *layer.parameters()])))
    (expanded, expanded_gradients), (absorbed, absorbed_gradients) = results
    assert (expanded - absorbed).abs().max() < 1e-10
    for one, other in zip(expanded_gradients, absorbed_gradients, strict=True):
        assert one.abs().max() > 0
        assert (one - other).abs().max() < 1e-10 * one.abs().max()


def test_absorbed_uses_the_rounded_weight() -> None:
    layer = mla()
    layer.key_value_up.rounding = lambda weight: (weight * 4).round() / 4
    x, context = stream(1, 9), whole(1, 9)
    query, entry = layer._queries(x, context)[0], layer._entries(x, context)
    expanded = layer.attend_expanded(query, entry, context)
    assert (expanded - attend_absorbed(layer, query, entry, context)).abs().max() < 1e-10
    layer.key_value_up.rounding = None
    assert (expanded - attend_absorbed(layer, query, entry, context)).abs().max() > 1e-3


@pytest.mark.parametrize("absorbed", [True, False, None])
@pytest.mark.parametrize("rope", [INTERLEAVED, None])
def test_cached_equals_whole(monkeypatch: pytest.MonkeyPatch, absorbed: bool | None, rope: Any) -> None:
    layer = mla(rope=rope)
    if absorbed is not None:
        monkeypatch.setattr(layer, "_absorbed_is_cheaper", lambda queries, entries: absorbed)
    x = stream(3, 14)
    expected = layer(x, whole(3, 14))
    pieces = [[5, 1, 9], [4, 6, 1], [1, 1, 1], [4, 6, 3]]
    with torch.no_grad():
        got = decode([layer], x, pieces, slots=[2, 0, 3], length=20)
        single = decode([layer], x, [[14] * 3], slots=[0, 1, 2], length=14)
        one_by_one = decode([layer], x, [[1] * 3] * 14, slots=[0, 1, 2], length=14)
    for result in (got, single, one_by_one):
        assert (result - expected).abs().max() < 1e-10


def test_the_cache_holds_one_latent_and_one_key_per_token() -> None:
    layer = mla()
    cache = layer.make_cache(CacheShape(slots=2, length=10, page=10), torch.float64, torch.device("cpu"))
    assert {name: tuple(stream.shape) for name, stream in cache.streams.items()} == {"entry": (1 + 2, 1, 10, 16 + 6)}


def test_packed_documents_equal_documents_alone() -> None:
    layer = mla(rope=INTERLEAVED)
    x, lengths = stream(1, 20), (6, 1, 10)
    result = layer(x, packed(*lengths, padding=3))
    start = 0
    for length in lengths:
        alone = layer(x[:, start : start + length], whole(1, length))
        assert (result[:, start : start + length] - alone).abs().max() < 1e-12
        start += length
    assert (result[:, start:] == 0).all()


def test_the_cheaper_form_is_chosen() -> None:
    """Multiplications of one head counted operation by operation."""
    layer = mla(heads=1, key_value_latent=512, content_width=128, rope_width=64, value_width=128)

    def expanded(queries: int, entries: int) -> int:
        up = entries * 512 * (128 + 128)
        return up + queries * entries * (128 + 64) + queries * entries * 128

    def absorbed(queries: int, entries: int) -> int:
        into_latent, out_of_latent = queries * 128 * 512, queries * 512 * 128
        return into_latent + queries * entries * (512 + 64) + queries * entries * 512 + out_of_latent

    for entries in (2, 100, 1000, 30_000):
        for queries in (1, 2, 50, 145, 170, 171, 1000):
            cheaper = absorbed(queries, entries) < expanded(queries, entries)
            assert layer._absorbed_is_cheaper(queries, entries) == cheaper
    assert layer._absorbed_is_cheaper(169, 30_000) and not layer._absorbed_is_cheaper(171, 30_000)
