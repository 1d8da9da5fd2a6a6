"""Arithmetic on configurations against the built module and against torch's own FLOP counter."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from pydantic import ValidationError
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from ingot.model.config import AttentionConfig, ModelConfig
from ingot.model.transformer import Transformer
from tests.model.tiny import attention, config, configs, mixed_config, random_model, random_tokens


@settings(max_examples=60, deadline=None)
@given(configs())
def test_parameter_count_is_that_of_the_module(shape: ModelConfig) -> None:
    model = Transformer(shape)
    assert shape.parameters() == sum(parameter.numel() for parameter in model.parameters())
    for layer, block in enumerate(model.blocks):
        assert shape.layer_parameters(layer) == sum(parameter.numel() for parameter in block.parameters())


@settings(max_examples=20, deadline=None)
@given(configs())
def test_cache_size_is_that_of_the_caches(shape: ModelConfig) -> None:
    caches = Transformer(shape).make_caches(slots=3, length=7)
    size = sum(cache.keys.nbytes + cache.values.nbytes for cache in caches)
    assert size == 3 * 7 * shape.cache_bytes_per_token(bytes_per_value=4)


@pytest.mark.parametrize("tied", [True, False])
def test_training_flops_against_the_counter_of_torch(tied: bool) -> None:
    """torch counts the whole T×T square of causal attention; the formula counts the half below the diagonal."""
    shape, length = config(attention(), tied_embeddings=tied), 32
    model = random_model(shape)
    with FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.MATH):  # plain products, which it counts
        model(random_tokens(1, length)).sum().backward()
    above_the_diagonal = shape.depth * 12 * 4 * 8 * length // 2  # scores and values, forward and backward
    assert shape.training_flops_per_token(length) == counter.get_total_flops() / length - above_the_diagonal


def test_flops_with_a_window_count_the_keys_in_sight() -> None:
    length, window = 64, 5
    full, cut = (config(attention(window=size)).training_flops_per_token(length) for size in (None, window))
    per_key = 2 * 12 * 4 * 8  # layers × (6 for scores, 6 for values) × heads × width of a head
    in_sight = sum(min(query + 1, window) for query in range(length)) / length
    assert (full - cut) / per_key == pytest.approx(length / 2 - in_sight, abs=0.5)


def test_layers_cycle_through_the_blocks() -> None:
    shape = mixed_config(depth=7)
    assert [shape.block(layer).attention.heads for layer in range(7)] == [4, 6, 3, 4, 6, 3, 4]


def test_a_new_rope_base_reaches_every_layer_that_rotates() -> None:
    changed = mixed_config().with_rope_base(5e5)
    ropes = [block.attention.rope for block in changed.blocks]
    assert [rope and rope.base for rope in ropes] == [5e5, None, 5e5]


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({"heads": 4, "key_value_heads": 3, "head_width": 8}, "heads (4) must be a multiple of key_value_heads (3)"),
        ({"heads": 4, "key_value_heads": 2, "head_width": 7}, "head_width (7) must be even for rotary positions"),
    ],
)
def test_impossible_attention_is_refused(parts: dict[str, int], message: str) -> None:
    with pytest.raises(ValidationError) as caught:
        AttentionConfig.model_validate(parts)
    assert message in str(caught.value)
    assert AttentionConfig.model_validate({**parts, "key_value_heads": 2, "rope": None}).rope is None
