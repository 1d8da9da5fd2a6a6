"""NF4 gives the codes, scales and values of bitsandbytes, which published the format."""

from __future__ import annotations

import pytest
import torch

from ingot.kernels.quantised.nf4 import LEVELS, pack_nf4, unpack_nf4

bitsandbytes = pytest.importorskip("bitsandbytes.functional")


@pytest.mark.parametrize("shape", [(64, 64), (48, 320), (7, 128), (1024, 256)])
def test_the_peers_packing(shape: tuple[int, int]) -> None:
    weight = torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape))) * 0.02
    weight[0] = 0  # a block without a scale
    codes, state = bitsandbytes.quantize_4bit(weight, quant_type="nf4", compress_statistics=True, blocksize=64)
    ours = pack_nf4(weight)
    assert torch.equal(ours.codes, codes.flatten())
    torch.testing.assert_close(ours.scale_maxima, state.state2.absmax)
    apart = ours.scales.int() - state.absmax.int()
    assert apart.abs().max() <= 1  # a scale halfway between two steps goes either way: the means round otherwise
    assert apart.count_nonzero() <= len(apart) // 100
    same = (apart == 0).repeat_interleave(64).view(shape)
    theirs = bitsandbytes.dequantize_4bit(codes, state)
    torch.testing.assert_close(unpack_nf4(ours, shape, torch.float32)[same], theirs[same], rtol=1e-5, atol=1e-7)


def test_the_levels_are_the_published_ones() -> None:
    assert torch.equal(torch.tensor(LEVELS), bitsandbytes.get_4bit_type("nf4", device="cpu"))


def test_a_weight_takes_about_four_bits() -> None:
    packed = pack_nf4(torch.randn(1024, 512))
    bits = 8 * sum(part.numel() * part.element_size() for part in packed) / (1024 * 512)
    assert 4.12 < bits < 4.13  # the paper's 4.127
