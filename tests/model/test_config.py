"""How a model is spelt: layers, blocks, parts; and what is refused."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from ingot.model.config import BlockConfig, ModelConfig
from ingot.model.feed_forward.mixture import MoeConfig
from ingot.model.layers import expand_layers, spell_layers
from ingot.model.mixers.attention import AttentionConfig
from ingot.model.mixers.mla import MlaConfig
from ingot.model.positions.scaling import YarnScaling
from tests.model.tiny import config, mixed_config


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("a", "a"),
        ("a*3", "aaa"),
        ("a b*2", "abb"),
        ("(a*2 b)*2 a", "aabaaba"),
        (" ( a (b c)*2 )*2", "abcbcabcbc"),
        ("a*2(b)*1", "aab"),
    ],
)
def test_layers_are_spelt_out(text: str, names: str) -> None:
    assert expand_layers(text) == tuple(names)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no layer is named"),
        ("a)", "a ) without its ( in 'a)', character 2"),
        ("(a", "a ( without its )"),
        ("*3", "repeats nothing"),
        ("a*0", "'*0' repeats nothing"),
        ("a**2", "'*'"),
        ("a, b", "',' is not a name"),
        ("(a*99)*999", "more than 10000 layers"),
    ],
)
def test_wrong_spelling_is_named(text: str, message: str) -> None:
    with pytest.raises(ValueError, match="layers:") as caught:
        expand_layers(text)
    assert message in str(caught.value)


@given(st.lists(st.sampled_from(["a", "b", "long_name"]), min_size=1, max_size=40))
def test_a_spelling_gives_the_layers_back(names: list[str]) -> None:
    assert list(expand_layers(spell_layers(names))) == names


def test_spellings_are_short() -> None:
    assert spell_layers(["d"] * 3 + ["m"] * 58) == "d*3 m*58"
    assert spell_layers(["d", *["k", "k", "k", "m"] * 6, "k", "m"]) == "d (k*3 m)*6 k m"


def test_a_mixer_without_a_kind_is_attention() -> None:
    block = BlockConfig.model_validate({"mixer": {"heads": 2, "key_value_heads": 1, "head_width": 4}})
    assert isinstance(block.mixer, AttentionConfig)
    latent = {"heads": 2, "key_value_latent": 8, "content_width": 4, "rope_width": 2, "value_width": 4}
    assert isinstance(BlockConfig.model_validate({"mixer": {"kind": "mla", **latent}}).mixer, MlaConfig)


def test_a_new_rope_base_reaches_every_layer_that_rotates() -> None:
    changed = mixed_config().with_rope_base(5e5)
    mixers = [changed.block(layer).mixer for layer in range(3)]
    ropes = [mixer.rope for mixer in mixers if isinstance(mixer, AttentionConfig)]
    assert [rope and rope.base for rope in ropes] == [5e5, None, 5e5]


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({"heads": 4, "key_value_heads": 3, "head_width": 8}, "heads (4) must be a multiple of key_value_heads (3)"),
        ({"heads": 4, "key_value_heads": 2, "head_width": 7}, "an even number of channels must be rotated, not 7 of 7"),
        ({"heads": 4, "key_value_heads": 2, "head_width": 10, "rope": {"share": 0.5}}, "not 5 of 10"),
    ],
)
def test_impossible_attention_is_refused(parts: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError) as caught:
        AttentionConfig.model_validate(parts)
    assert message in str(caught.value)
    assert AttentionConfig.model_validate({**parts, "key_value_heads": 2, "rope": None}).rope is None


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"active": 9}, "active (9) is more than experts (8)"),
        ({"router": {"groups": 3}}, "must be a multiple of router.groups (3)"),
        ({"router": {"groups": 2, "kept_groups": 3}}, "kept_groups (3) is more than groups (2)"),
        ({"active": 3, "router": {"groups": 4}}, "the kept groups hold fewer experts than are active"),
        ({"balancers": [{"kind": "bias"}]}, "set router.selection_bias"),
        (
            {"router": {"selection_bias": True}, "balancers": [{"kind": "bias"}, {"kind": "smebu"}]},
            "only one balancer may move the selection bias, not bias and smebu",
        ),
    ],
)
def test_impossible_mixtures_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError) as caught:
        MoeConfig.model_validate({"kind": "moe", "experts": 8, "active": 2, "expert": {"width": 4}, **changes})
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"layers": "layer0 other"}, "layers names other; the blocks are layer0"),
        ({"blocks": {"layer0": {}}, "layers": "layer0"}, "a block needs a mixer, a feed_forward or both"),
        ({"multi_token": {"block": "x"}}, "multi_token.block 'x' is none of layer0"),
    ],
)
def test_impossible_models_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError) as caught:
        ModelConfig.model_validate({**config().model_dump(), **changes})
    assert message in str(caught.value)


def test_a_stretched_rotation_reaches_the_layers_that_see_everything() -> None:
    scaling = YarnScaling(factor=4.0, original_context=64)
    changed = mixed_config().with_rope_scaling(scaling, 256)
    mixers = [changed.block(layer).mixer for layer in range(3)]
    scalings = [mixer.rope and mixer.rope.scaling for mixer in mixers if isinstance(mixer, AttentionConfig)]
    assert scalings == [None, None, scaling]  # a window, no positions, full
    assert changed.context == 256
    assert changed.with_rope_scaling(None, 64) == mixed_config()


def test_dual_chunks_reach_the_layers_that_rotate_and_see_everything() -> None:
    changed = mixed_config().with_dual_chunk(48, 16, 1024)
    mixers = [changed.block(layer).mixer for layer in range(3)]
    chunked = [mixer.dual_chunk for mixer in mixers if isinstance(mixer, AttentionConfig)]
    assert [one and (one.chunk, one.window) for one in chunked] == [None, None, (48, 16)]
