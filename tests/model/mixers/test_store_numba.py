"""The loop that stores new tokens on the CPU equals the layer's own path."""

from __future__ import annotations

import pytest
import torch

from ingot.model.mixers.attention import Attention, AttentionConfig
from ingot.model.mixers.cache import Room, TokenCache
from ingot.model.mixers.mixer import Site
from ingot.model.mixers.store import store_can
from ingot.model.norm import NormConfig
from tests.model.mixers.store_cases import KINDS, check_store


@pytest.mark.parametrize("zero_centred", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_queries_keys_and_values(kind: str, zero_centred: bool) -> None:
    check_store(kind, zero_centred, "cpu", torch.float32)


def layer_and_cache(dtype: torch.dtype = torch.float32, **options: object) -> tuple[Attention, TokenCache]:
    shape = {"heads": 2, "key_value_heads": 1, "head_width": 8, **options}
    layer = Attention(AttentionConfig.model_validate(shape), Site(width=8, layer=0, depth=1, norm=NormConfig()))
    return layer.to(dtype), layer.make_cache(Room(slots=1, length=16), dtype, torch.device("cpu"))


def test_what_it_can() -> None:
    x = torch.randn(1, 1, 8)
    plain = layer_and_cache()
    assert not store_can(plain[0], x, plain[1])  # someone may want gradients
    with torch.no_grad():
        assert store_can(plain[0], x, plain[1])
        double = layer_and_cache(torch.float64)
        assert not store_can(double[0], x.double(), double[1])
        assert not store_can(plain[0], x, layer_and_cache(torch.bfloat16)[1])
        for options in ({"query_key_norm": "full"}, {"query_key_norm": "after_rope"}, {"gate": {"place": "value"}}):
            layer, cache = layer_and_cache(**options)
            assert not store_can(layer, x, cache)
        with torch.autocast("cpu", torch.bfloat16):  # the projection is not in float32
            assert not store_can(plain[0], x, plain[1])
