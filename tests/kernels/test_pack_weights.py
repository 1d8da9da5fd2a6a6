"""The formats: against gguf's and torch's quantisers, bitsandbytes where it is installed, and the bound on the error."""

from __future__ import annotations

import gguf
import numpy as np
import pytest
import torch

from ingot.kernels.quantised.pack_weights import group_for, pack_4, pack_8, pack_symmetric
from ingot.kernels.quantised.packed_linear import Packed, unpack
from ingot.model.quantise import quantise, rounded
from tests.inference.quantised.cases import normal


@pytest.mark.parametrize("seed", [0, 1])
def test_eight_bits_are_torchs(seed: int) -> None:
    """torch's simulation of integer weights, with the scales max|w| / 127."""
    weight = normal(24, 96, seed=seed) * torch.logspace(-6, 3, 24)[:, None]
    packed = pack_8(weight)
    largest = torch.from_numpy(np.abs(weight.numpy()).max(axis=1))
    assert torch.equal(packed.scales, largest / 127)
    theirs = torch.fake_quantize_per_channel_affine(
        weight, packed.scales, torch.zeros(24, dtype=torch.int32), axis=0, quant_min=-127, quant_max=127
    )
    steps = (unpack(packed, torch.float32) - theirs).abs() / packed.scales[:, None]
    assert float(steps.max()) < 1.01, "where a weight lies between two integers: torch multiplies with 1/s"
    assert float((steps > 0.5).float().mean()) < 1e-3
    assert packed.integers.dtype == torch.int8


def test_eight_bits_are_those_of_bitsandbytes() -> None:
    peer = pytest.importorskip("bitsandbytes", reason="a second opinion, where bitsandbytes is installed")
    weight = normal(40, 256, seed=3).half()
    theirs, largest, _ = peer.functional.int8_vectorwise_quant(weight)
    integers, scales, _ = pack_8(weight)
    torch.testing.assert_close(scales * 127, largest)
    assert int((integers.int() - theirs.int()).abs().max()) <= 1
    assert float((integers != theirs).float().mean()) < 1e-3


def test_four_bits_are_those_of_gguf() -> None:
    """Q4_1 has groups of 32, the same formula and the same order in a byte; its scales are then rounded to float16."""
    weight = normal(16, 128, seed=4)
    integers, scales, minimums = pack_4(weight, 32)
    assert minimums is not None
    blocks = gguf.quants.quantize(weight.numpy(), gguf.GGMLQuantizationType.Q4_1).reshape(16, 4, 20)
    factors = blocks[..., :4].copy().view(np.float16)
    np.testing.assert_array_equal(scales.numpy().astype(np.float16), factors[..., 0])
    np.testing.assert_array_equal(minimums.numpy().astype(np.float16), factors[..., 1])
    np.testing.assert_array_equal(integers.numpy().reshape(16, 4, 16), blocks[..., 4:])


@pytest.mark.parametrize("group", [32, 64, 128])
def test_no_weight_is_further_away_than_half_a_step(group: int) -> None:
    weight = normal(32, 256, seed=group) + torch.linspace(-3, 3, 32)[:, None]  # minimums of both signs
    slack = 1 + 1e-5
    eight, four = pack_8(weight), pack_4(weight, group)
    off = (unpack(eight, torch.float32) - weight).abs()
    assert bool((off <= eight.scales[:, None] / 2 * slack).all())
    assert float((off / eight.scales[:, None]).max()) > 0.45, "and the bound is reached"
    off = (unpack(four, torch.float32) - weight).abs().unflatten(1, (-1, group))
    assert bool((off <= four.scales[..., None] / 2 * slack + 1e-6).all())
    assert float((off / four.scales[..., None]).max()) > 0.45


def test_by_hand() -> None:
    weight = torch.tensor([[-1.27, 0.5, 0.014] + [0.0] * 29])
    assert pack_8(weight).integers[0, :3].tolist() == [-127, 50, 1]
    # four bits: from −1.5 to 1.5 in steps of 0.2; inputs 0 and 16 share the first byte
    weight = torch.zeros(1, 32)
    weight[0, 0], weight[0, 16], weight[0, 1] = -1.5, 1.5, -0.32
    integers, scales, minimums = pack_4(weight, 32)
    assert minimums is not None
    assert float(minimums) == -1.5
    assert float(scales) == pytest.approx(0.2)
    assert int(integers[0, 0]) == 0 | 15 << 4
    assert int(integers[0, 1]) & 15 == 6  # (−0.32 + 1.5) / 0.2 = 5.9
    assert float(unpack(Packed(integers, scales, minimums), torch.float32)[0, 1]) == pytest.approx(-0.3)


def test_equal_weights_and_zeros() -> None:
    for value in (0.0, 3.5, -2.0):
        weight = torch.full((4, 64), value)
        torch.testing.assert_close(unpack(pack_4(weight, 32), torch.float32), weight, rtol=0, atol=0)
        torch.testing.assert_close(unpack(pack_8(weight), torch.float32), weight)


def test_what_training_rounded_to_is_kept() -> None:
    weight = normal(8, 64, seed=7)
    integers, scales = quantise(weight, 4, 32)
    kept = unpack(pack_symmetric(integers, scales[..., 0]), torch.float32)
    torch.testing.assert_close(kept, rounded(weight, 4, 32), rtol=0, atol=1e-6)


def test_groups_are_powers_of_two_that_divide() -> None:
    assert [group_for(inputs, 128) for inputs in (576, 1536, 4096, 96, 80, 33)] == [64, 128, 128, 32, None, None]
    assert group_for(4096, 32) == 32
