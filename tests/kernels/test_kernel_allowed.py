"""What the kernels take: each names what it understands, and all else runs the definition. Fake tensors need no GPU."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from ingot.kernels import (
    add_gradient,
    cross_entropy,
    draw,
    embedding_rows,
    float8,
    packed_linear,
    symmetric_product,
)

Case = tuple[torch.dtype, tuple[int, ...], Callable[[Tensor], bool]]
CASES: dict[str, Case] = {
    "add_gradient": (torch.bfloat16, (640, 512), lambda x: add_gradient.kernel_allowed(None, x, torch.float32)),
    "cross_entropy": (torch.bfloat16, (640, 512), cross_entropy.kernel_allowed),
    "draw": (torch.float32, (640, 512), draw.kernel_allowed),
    "embedding_rows": (torch.float32, (640, 512), embedding_rows.kernel_allowed),
    "float8": (torch.bfloat16, (640, 512), lambda x: float8.kernel_allowed(x, scale_on(x), torch.float8_e4m3fn)),
    "packed_linear": (torch.bfloat16, (8, 512), packed_linear.kernel_allowed),
    "symmetric_product": (torch.float16, (2, 640, 512), symmetric_product.kernel_allowed),
}


def scale_on(x: Tensor, *shape: int) -> Tensor:
    return torch.empty(shape, device=x.device)


@pytest.mark.parametrize("name", CASES)
def test_only_what_a_kernel_names(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedding_rows, "has_triton", lambda: True)
    dtype, shape, predicate = CASES[name]
    with FakeTensorMode():
        assert predicate(torch.empty(shape, dtype=dtype, device="cuda"))
        for other in (torch.float64, torch.int32, torch.complex64):
            assert not predicate(torch.empty(shape, dtype=other, device="cuda")), other
        for device in ("cpu", "meta"):
            assert not predicate(torch.empty(shape, dtype=dtype, device=device)), device


def half(*shape: int) -> Tensor:
    return torch.empty(shape, dtype=torch.float16, device="cuda")


def test_sizes_and_layouts() -> None:
    with FakeTensorMode():
        assert not packed_linear.kernel_allowed(half(257, 64)) and not packed_linear.kernel_allowed(half(0, 64)), (
            "many, none"
        )
        assert not symmetric_product.kernel_allowed(half(1, 511, 512)), "a small matrix"
        assert not symmetric_product.kernel_allowed(half(1, 640, 509)), "rows that no descriptor can name"
        gaps = torch.empty_strided((640, 100), (512, 1), dtype=torch.float16, device="cuda")
        assert not cross_entropy.kernel_allowed(gaps), "rows with gaps"
        assert not draw.kernel_allowed(half(640, 1)), "a vocabulary of one"
        x = half(640, 512)
        assert not float8.kernel_allowed(x, scale_on(x, 640, 1), torch.float8_e5m2), "a scale a row"
        total = torch.empty(640, 512, device="cuda")
        assert add_gradient.kernel_allowed(total, x, torch.float32)
        assert not add_gradient.kernel_allowed(torch.empty(512, 640, device="cuda"), x, torch.float32), "another shape"


def test_rows_are_added_by_the_definition() -> None:
    total, tokens, rows = torch.randn(7, 3), torch.tensor([2, 5, 2, 0]), torch.randn(4, 3)
    expected = total.double()
    for token, row in zip(tokens.tolist(), rows, strict=True):
        expected[token] += row.double()
    embedding_rows.add_rows(total, tokens, rows)
    torch.testing.assert_close(total.double(), expected, rtol=1e-6, atol=1e-6)
