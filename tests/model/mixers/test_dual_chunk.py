"""Dual chunk attention against its formulas, written out pair by pair."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from pydantic import ValidationError
from torch import Tensor
from torch.autograd import grad

from ingot.kernels.attention.attention_options import AttentionOptions
from ingot.kernels.layer.rotate import rotate
from ingot.model.context import Context
from ingot.model.mixers import dual_chunk
from ingot.model.mixers.attend import attend
from ingot.model.mixers.attention import Attention, AttentionConfig
from ingot.model.mixers.cache import CacheShape, TokenCache
from ingot.model.mixers.dual_chunk import DualChunkConfig, dual_chunk_attention, rotate_keys
from ingot.model.mixers.mixer import Site
from ingot.model.norm import NormConfig
from ingot.model.positions.config import RopeConfig
from ingot.model.positions.rope import rotation
from tests.model.mixers.latent import packed, whole

HEADS, KEY_HEADS, WIDTH, VALUE_WIDTH, SCALE = 6, 2, 8, 10, 0.4
ROPES = {
    "halves": RopeConfig(base=300.0),
    "partial, interleaved": RopeConfig(base=300.0, share=0.5, pairing="interleaved"),
}


def inputs(rows: int, length: int) -> list[Tensor]:
    generator = torch.Generator().manual_seed(3)
    shapes = ((HEADS, WIDTH), (KEY_HEADS, WIDTH), (KEY_HEADS, VALUE_WIDTH))
    return [
        torch.randn(rows, heads, length, width, generator=generator, dtype=torch.float64) for heads, width in shapes
    ]


def run(parts: list[Tensor], context: Context, rope: RopeConfig, config: DualChunkConfig) -> Tensor:
    query, key, value = parts
    return dual_chunk_attention(
        query, rotate_keys(key, context, rope, config), value, context, rope, config, scale=SCALE
    )


def turned(x: Tensor, position: int, rope: RopeConfig) -> Tensor:
    """Every vector of x at the same position."""
    cos, sin = rotation(Context(torch.tensor([[position]])), rope, WIDTH)
    return rotate(x, cos, sin, rope.pairing)


def by_hand(parts: list[Tensor], rope: RopeConfig, config: DualChunkConfig) -> Tensor:
    """One row, one document; c = s + w is the length that the model was trained on."""
    query, key, value = parts[0], *(part.repeat_interleave(HEADS // KEY_HEADS, dim=1) for part in parts[1:])
    s, c, length = config.chunk, config.chunk + config.window, query.shape[2]
    query_at = [turned(query, place, rope) for place in range(c)]
    key_at = [turned(key, place, rope) for place in range(s)]
    result = []
    for i in range(length):
        scores = []
        for j in range(i + 1):
            if i // s == j // s:
                place = i % s
            elif i // s == j // s + 1:
                place = min(s + i % s, c - 1)
            else:
                place = c - 1
            scores.append((query_at[place][0, :, i] * key_at[j % s][0, :, j]).sum(dim=-1))
        weights = torch.softmax(SCALE * torch.stack(scores, dim=-1), dim=-1)
        result.append((weights[:, :, None] * value[0, :, : i + 1]).sum(dim=1))
    return torch.stack(result, dim=1)[None]


@pytest.mark.parametrize("name", ROPES)
@pytest.mark.parametrize(("chunk", "window"), [(5, 3), (4, 6), (7, 1)])
def test_equals_the_formulas_with_gradients(name: str, chunk: int, window: int) -> None:
    parts = [part.requires_grad_() for part in inputs(1, 19)]
    rope, config = ROPES[name], DualChunkConfig(chunk=chunk, window=window)
    result, expected = run(parts, whole(1, 19), rope, config), by_hand(parts, rope, config)
    assert (result - expected).abs().max() < 1e-12
    weight = torch.randn(result.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    for one, other in zip(grad((result * weight).sum(), parts), grad((expected * weight).sum(), parts), strict=True):
        assert (one - other).abs().max() < 1e-12 * other.abs().max()


@pytest.mark.parametrize("name", ROPES)
def test_one_chunk_is_plain_attention(name: str) -> None:
    query, key, value = parts = inputs(2, 12)
    rope, context = ROPES[name], whole(2, 12)
    cos, sin = rotation(context, rope, WIDTH)
    query, key = rotate(query, cos, sin, rope.pairing), rotate(key, cos, sin, rope.pairing)
    plain = attend(query, key, value, context, AttentionOptions(SCALE))
    assert (run(parts, context, rope, DualChunkConfig(chunk=12, window=4)) - plain).abs().max() < 1e-12
    assert (run(parts, context, rope, DualChunkConfig(chunk=6, window=4)) - plain).abs().max() > 1e-2


def test_no_distance_passes_the_trained_length() -> None:
    """The score of a far key does not change with the distance, and is that of c − 1 minus the key's place."""
    rope, config = ROPES["halves"], DualChunkConfig(chunk=5, window=3)
    _, key, value = inputs(1, 40)
    query = inputs(1, 40)[0][:, :, :1].expand(-1, -1, 40, -1)  # the same query everywhere
    key = key[:, :, :1].expand(-1, -1, 40, -1)
    value = torch.eye(40, dtype=torch.float64)[None, None].expand(1, KEY_HEADS, -1, -1)
    probabilities = run([query, key, value], whole(1, 40), rope, config)[0, 0]
    far = probabilities[39, :30].log()
    assert (far[0:30:5] - far[0]).abs().max() < 1e-12  # place 0 of every older chunk
    query_at_7, key_at_3, key_at_0 = (turned(x, place, rope)[0, 0, 0] for x, place in ((query, 7), (key, 3), (key, 0)))
    expected = SCALE * (query_at_7 @ (key_at_3 - key_at_0))
    assert abs(far[3] - far[0] - expected) < 1e-12


def test_documents_count_alone() -> None:
    rope, config, lengths = ROPES["halves"], DualChunkConfig(chunk=4, window=2), (11, 1, 9)
    parts = inputs(1, 23)
    result, start = run(parts, packed(*lengths, padding=2), rope, config), 0
    for length in lengths:
        own = [part[:, :, start : start + length] for part in parts]
        alone = run(own, whole(1, length), rope, config)
        assert (result[:, :, start : start + length] - alone).abs().max() < 1e-12
        start += length
    assert (result[:, :, start:] == 0).all()


@pytest.mark.parametrize("block", [2**26, 200])
def test_cached_equals_whole(monkeypatch: pytest.MonkeyPatch, block: int) -> None:
    """Rows stand in different chunks; the turned keys are what the cache holds."""
    monkeypatch.setattr(dual_chunk, "BLOCK_NUMBERS", block)
    rope, config = ROPES["halves"], DualChunkConfig(chunk=4, window=2)
    parts = inputs(2, 15)
    expected = run(parts, whole(2, 15), rope, config)
    streams = {"key": (KEY_HEADS, WIDTH), "value": (KEY_HEADS, VALUE_WIDTH)}
    cache = TokenCache(streams, CacheShape(slots=3, length=30), torch.float64, torch.device("cpu"))
    slots, done = torch.tensor([2, 0]), [0, 0]
    for piece in ([3, 7], [6, 1], [1, 1], [5, 6]):
        longest = max(piece)
        positions = torch.tensor(done)[:, None] + torch.arange(longest)
        context = Context(positions, slots_B=slots, lengths_B=torch.tensor(piece), reach=max(done) + longest)
        query, key, value = (
            torch.stack([part[row][:, positions[row].clamp_max(14)] for row in range(2)]) for part in parts
        )
        cache.write(context, key=rotate_keys(key, context, rope, config), value=value)
        result = dual_chunk_attention(
            query,
            cache.read("key", context),
            cache.read("value", context),
            context,
            rope,
            config,
            scale=SCALE,
        )
        for row, count in enumerate(piece):
            wanted = expected[row, :, done[row] : done[row] + count]
            assert (result[row, :, :count] - wanted).abs().max() < 1e-12
            done[row] += count
    assert done == [15, 15]


def test_inside_an_attention_layer() -> None:
    """Its cache gives what the whole pass gives; short texts do not change."""
    shape = {"heads": 4, "key_value_heads": 2, "head_width": 8, "query_key_norm": "head"}
    site = Site(width=12, layer=0, depth=1, norm=NormConfig())
    plain = Attention(AttentionConfig.model_validate(shape), site).double()
    layer = Attention(AttentionConfig.model_validate({**shape, "dual_chunk": {"chunk": 5, "window": 3}}), site).double()
    layer.load_state_dict(plain.state_dict())
    x = torch.randn(2, 17, 12, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    expected = layer(x, whole(2, 17))
    assert (expected[:, :5] - plain(x, whole(2, 17))[:, :5]).abs().max() < 1e-12
    assert (expected[:, 5:] - plain(x, whole(2, 17))[:, 5:]).abs().max() > 1e-6
    cache, slots = layer.make_cache(CacheShape(slots=2, length=17), torch.float64, torch.device("cpu")), torch.arange(2)
    for start, end in ((0, 7), (7, 8), (8, 17)):
        context = Context(torch.arange(start, end).expand(2, -1), slots_B=slots, reach=end)
        assert (layer(x[:, start:end], context, cache) - expected[:, start:end]).abs().max() < 1e-12


@pytest.mark.parametrize("changes", [{"rope": None}, {"window": 8}, {"chunk": 8}, {"softcap": 30.0}, {"sinks": True}])
def test_what_it_cannot_be_combined_with(changes: dict[str, Any]) -> None:
    shape = {"heads": 2, "key_value_heads": 1, "head_width": 8, "dual_chunk": {"chunk": 8, "window": 4}}
    assert AttentionConfig.model_validate(shape).dual_chunk == DualChunkConfig(chunk=8, window=4)
    with pytest.raises(ValidationError, match="dual_chunk"):
        AttentionConfig.model_validate({**shape, **changes})
