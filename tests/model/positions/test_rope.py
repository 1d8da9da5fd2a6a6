"""Rotary positions against complex numbers in float64 and against transformers."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import LlamaConfig, Phi3Config
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS
from transformers.models.phi3.modeling_phi3 import Phi3RotaryEmbedding

from ingot.kernels.layer.rotate import rotate
from ingot.model.context import Context
from ingot.model.positions.config import RopeConfig
from ingot.model.positions.rope import frequencies, rotation

WIDTH = 64
SHORT, LONG = tuple(1 + 0.01 * i for i in range(WIDTH // 2)), tuple(1 + 0.5 * i for i in range(WIDTH // 2))

# what transformers calls it -> what Ingot calls it
SCALINGS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "linear": ({"rope_type": "linear", "factor": 3.0}, {"kind": "linear", "factor": 3.0}),
    "llama3": (
        {
            "rope_type": "llama3",
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 256,
        },
        {"kind": "llama3", "factor": 8.0, "low": 1.0, "high": 4.0, "original_context": 256},
    ),
    "llama3, low = high": (
        {
            "rope_type": "llama3",
            "factor": 16.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 1.0,
            "original_max_position_embeddings": 256,
        },
        {"kind": "llama3", "factor": 16.0, "low": 1.0, "high": 1.0, "original_context": 256},
    ),
    "yarn": (
        {"rope_type": "yarn", "factor": 8.0, "original_max_position_embeddings": 256},
        {"kind": "yarn", "factor": 8.0, "original_context": 256},
    ),
    "yarn, whole ramp, own factor": (
        {
            "rope_type": "yarn",
            "factor": 32.0,
            "original_max_position_embeddings": 4096,
            "beta_fast": 16.0,
            "beta_slow": 2.0,
            "truncate": False,
            "attention_factor": 1.3,
        },
        {
            "kind": "yarn",
            "factor": 32.0,
            "original_context": 4096,
            "beta_fast": 16.0,
            "beta_slow": 2.0,
            "truncate": False,
            "attention_factor": 1.3,
        },
    ),
    "yarn, mscale": (
        {
            "rope_type": "yarn",
            "factor": 40.0,
            "original_max_position_embeddings": 4096,
            "mscale": 1.0,
            "mscale_all_dim": 0.7,
        },
        {"kind": "yarn", "factor": 40.0, "original_context": 4096, "mscale": 1.0, "mscale_all_dim": 0.7},
    ),
    "yarn, a step instead of a ramp": (
        {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 4, "beta_fast": 1.0},
        {"kind": "yarn", "factor": 4.0, "original_context": 4, "beta_fast": 1.0},
    ),
}


def peer_config(scaling: dict[str, Any], base: float, share: float) -> LlamaConfig:
    return LlamaConfig(
        hidden_size=2 * WIDTH,
        num_attention_heads=2,
        head_dim=WIDTH,
        max_position_embeddings=8192,
        rope_parameters={"rope_theta": base, "partial_rotary_factor": share, **scaling},
    )


@pytest.mark.parametrize("base", [500.0, 1_000_000.0])
@pytest.mark.parametrize("share", [1.0, 0.5])
@pytest.mark.parametrize("name", list(SCALINGS))
def test_frequencies_and_temperature_are_those_of_transformers(name: str, share: float, base: float) -> None:
    theirs, ours = SCALINGS[name]
    expected, factor = ROPE_INIT_FUNCTIONS[theirs["rope_type"]](peer_config(theirs, base, share), torch.device("cpu"))
    rope = RopeConfig.model_validate({"base": base, "share": share, "scaling": ours})
    short, long = frequencies(rope, rope.rotated(WIDTH), torch.device("cpu"))
    assert short.isfinite().all() and torch.equal(short, long)
    torch.testing.assert_close(short, expected, rtol=2e-7, atol=0)
    assert (1.0 if rope.scaling is None else rope.scaling.temperature()) == pytest.approx(factor, rel=1e-12)


@pytest.mark.parametrize("attention_factor", [None, 1.19])
@pytest.mark.parametrize("share", [1.0, 0.5])
@pytest.mark.parametrize("length", [100, 128, 129, 300])
def test_longrope_is_that_of_phi3(length: int, share: float, attention_factor: float | None) -> None:
    pairs = int(share * WIDTH) // 2
    peer = Phi3RotaryEmbedding(
        Phi3Config(
            hidden_size=2 * WIDTH,
            num_attention_heads=2,
            max_position_embeddings=1024,
            original_max_position_embeddings=128,
            pad_token_id=0,
            rope_parameters={
                "rope_type": "longrope",
                "rope_theta": 10_000.0,
                "partial_rotary_factor": share,
                "short_factor": list(SHORT[:pairs]),
                "long_factor": list(LONG[:pairs]),
                "original_max_position_embeddings": 128,
                **({} if attention_factor is None else {"attention_factor": attention_factor}),
            },
        )
    )
    positions = torch.arange(length)[None]
    expected = peer(torch.zeros(1), positions)
    for found, whole in zip(
        rotation(Context(positions), longrope(share, attention_factor), WIDTH), expected, strict=True
    ):
        torch.testing.assert_close(found[:, 0], whole[..., :pairs], rtol=0, atol=2e-5)


def longrope(share: float = 1.0, attention_factor: float | None = None) -> RopeConfig:
    pairs = int(share * WIDTH) // 2
    scaling = {
        "kind": "longrope",
        "short_factors": SHORT[:pairs],
        "long_factors": LONG[:pairs],
        "original_context": 128,
        "context": 1024,
        "attention_factor": attention_factor,
    }
    return RopeConfig.model_validate({"share": share, "scaling": scaling})


def test_longrope_chooses_for_each_sequence_by_itself() -> None:
    """A packed document, a row of a batch and the same text alone turn alike."""
    alone = {n: rotation(Context(torch.arange(n)[None]), longrope(), WIDTH)[0][0, 0] for n in (50, 130, 200)}
    assert (alone[130][:50] - alone[50]).abs().max() > 0.1  # the two lists differ
    positions = torch.cat([torch.arange(n) for n in (50, 130, 20)])[None]
    documents = torch.tensor([0] * 50 + [1] * 130 + [-1] * 20)[None]
    packed = rotation(Context(positions, documents), longrope(), WIDTH)[0][0, 0]
    assert torch.equal(packed[:50], alone[50]) and torch.equal(packed[50:180], alone[130])
    rows = torch.arange(200).expand(2, 200)
    lengths = torch.tensor([50, 130])
    both = rotation(Context(rows, slots_B=torch.arange(2), lengths_B=lengths, reach=200), longrope(), WIDTH)[0][:, 0]
    assert torch.equal(both[0, :50], alone[50]) and torch.equal(both[1, :130], alone[130])


def complex_rotation(x: Tensor, positions: Tensor, base: float, rotated: int, pairing: str) -> Tensor:
    """Each pair as one complex number times e^(i·angle), in float64."""
    turning = x[..., :rotated].double()
    pairs = turning.unflatten(-1, (2, -1)).mT if pairing == "halves" else turning.unflatten(-1, (-1, 2))
    speed = base ** -(torch.arange(0, rotated, 2, dtype=torch.float64) / rotated)
    angles = positions.double()[:, None, :, None] * speed
    turned = torch.view_as_complex(pairs.contiguous()) * torch.polar(torch.ones_like(angles), angles)
    real = torch.view_as_real(turned)
    flat = real.mT.flatten(-2) if pairing == "halves" else real.flatten(-2)
    return torch.cat((flat, x[..., rotated:].double()), dim=-1)


@pytest.mark.parametrize("share", [1.0, 0.5, 0.25])
@pytest.mark.parametrize("pairing", ["halves", "interleaved"])
def test_rotation_is_multiplication_by_a_complex_number(pairing: str, share: float) -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(2, 3, 40, WIDTH, generator=generator, requires_grad=True)
    positions = torch.randint(0, 32_768, (2, 40), generator=generator)
    rope = RopeConfig.model_validate({"base": 500_000.0, "share": share, "pairing": pairing})
    cos, sin = rotation(Context(positions), rope, WIDTH)
    assert cos.shape == (2, 1, 40, int(share * WIDTH) // 2) and cos.dtype == torch.float32
    found = rotate(x, cos, sin, pairing)
    expected = complex_rotation(x, positions, 500_000.0, int(share * WIDTH), pairing)
    # float32 angles of up to 32,767 radians are off by 1e-3: the published models were trained with them
    torch.testing.assert_close(found.double(), expected, rtol=0, atol=2e-2)
    near = positions % 16
    found = rotate(x, *rotation(Context(near), rope, WIDTH), pairing)
    expected = complex_rotation(x, near, 500_000.0, int(share * WIDTH), pairing)
    torch.testing.assert_close(found.double(), expected, rtol=0, atol=1e-5)
    weight = torch.randn(found.shape, generator=generator)
    (gradient,) = torch.autograd.grad((found * weight).sum(), x)
    (reference,) = torch.autograd.grad((expected * weight.double()).sum(), x)
    torch.testing.assert_close(gradient, reference, rtol=0, atol=1e-5)


@pytest.mark.parametrize("pairing", ["halves", "interleaved"])
def test_scores_depend_on_the_distance_only(pairing: str) -> None:
    generator = torch.Generator().manual_seed(1)
    query, key = (torch.randn(1, 1, 1, WIDTH, generator=generator) for _ in range(2))
    rope = RopeConfig.model_validate({"pairing": pairing, "share": 0.5})

    def score(place: int, other: int) -> float:
        turned = [
            rotate(x, *rotation(Context(torch.tensor([[p]])), rope, WIDTH), pairing)
            for x, p in ((query, place), (key, other))
        ]
        return float((turned[0] * turned[1]).sum())

    assert score(7, 3) == pytest.approx(score(104, 100), abs=1e-4)
    assert abs(score(7, 3) - score(7, 2)) > 1e-2


def test_layers_share_one_rotation_per_pass() -> None:
    context = Context(torch.arange(5)[None])
    one, other = RopeConfig(), RopeConfig(base=77.0)
    assert rotation(context, one, 8)[0] is rotation(context, RopeConfig(), 8)[0]
    assert rotation(context, other, 8)[0] is not rotation(context, one, 8)[0]


def test_low_precision_keeps_its_dtype_and_exact_angles() -> None:
    x = torch.randn(1, 1, 2, 8, generator=torch.Generator().manual_seed(2)).to(torch.bfloat16)
    positions = torch.tensor([[1000, 1001]])
    found = rotate(x, *rotation(Context(positions), RopeConfig(), 8), "halves")
    assert found.dtype == torch.bfloat16
    expected = complex_rotation(x.double(), positions, 10_000.0, 8, "halves")
    torch.testing.assert_close(found.double(), expected, rtol=2**-8, atol=1e-3)
