"""The Triton kernels against float64.

On a device, without the package's other dependencies:
pytest tests/kernels/test_packed_linear_cuda.py -c /dev/null --rootdir=. --noconftest
With TRITON_INTERPRET=1 the same tests run on a CPU.
"""

from __future__ import annotations

import os
from importlib.util import find_spec

import pytest
import torch

from ingot.kernels.quantised.packed_linear import Packed, packed_linear, packed_linear_definition
from tests.inference.quantised.cases import check_product, packed_case
from tests.slow import first_fast

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1" and find_spec("triton") is not None
pytestmark = pytest.mark.skipif(
    not (torch.cuda.is_available() or INTERPRETED), reason="needs a CUDA device, or TRITON_INTERPRET=1 and Triton"
)
DEVICE = torch.device("cpu" if INTERPRETED else "cuda")
SHAPES = [(1, 96, 20), (3, 576, 40), (17, 256, 70)]
if not INTERPRETED:
    SHAPES += [(1, 4096, 4096), (64, 576, 3072), (8, 1536, 576), (200, 2048, 1000), (1, 576, 49_152), (256, 8192, 1024)]


def there(packed: Packed) -> Packed:
    return Packed(*(None if part is None else part.to(DEVICE) for part in packed))  # type: ignore[arg-type]


@pytest.mark.parametrize("bits", [8, 4])
@pytest.mark.parametrize("dtype", first_fast([torch.float32, torch.bfloat16, torch.float16], keep=2), ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_exact_but_for_the_sums(bits: int, dtype: torch.dtype, shape: tuple[int, int, int]) -> None:
    from ingot.kernels.quantised.packed_linear_kernel import launch

    if INTERPRETED and dtype == torch.bfloat16:
        pytest.skip("the interpreter multiplies no matrices of bfloat16")
    x, packed = packed_case(bits, *shape)
    x = x.to(dtype)
    check_product(launch(x.to(DEVICE), *there(packed)).cpu(), x, packed)


@pytest.mark.parametrize("bits", [8, 4])
def test_the_same_bits_again(bits: int) -> None:
    """Also where the inputs are divided over programs."""
    from ingot.kernels.quantised.packed_linear_kernel import launch

    x, packed = packed_case(bits, 2, 512, 32)
    arguments = (x.to(DEVICE), *there(packed))
    assert torch.equal(launch(*arguments), launch(*arguments))


@pytest.mark.skipif(INTERPRETED, reason="needs a CUDA device")
@pytest.mark.parametrize("bits", [8, 4])
def test_in_a_cuda_graph(bits: int) -> None:
    x, packed = packed_case(bits, 8, 512, 256)
    x, packed = x.to(DEVICE, torch.bfloat16), there(packed)
    expected = packed_linear(x, packed, None)
    torch.testing.assert_close(expected, packed_linear_definition(x, packed, None), rtol=2e-2, atol=0.3)
    torch.cuda.synchronize()
    graph, static = torch.cuda.CUDAGraph(), torch.zeros_like(x)
    with torch.cuda.graph(graph):
        out = packed_linear(static, packed, None)
    static.copy_(x)
    graph.replay()
    assert torch.equal(out, expected)
