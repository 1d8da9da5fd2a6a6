"""What the kernels take: each names what it understands, and all else runs the definition. Fake tensors need no GPU."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from ingot.kernels import symmetric_product
from ingot.kernels.head import cross_entropy, draw
from ingot.kernels.layer import rotate
from ingot.kernels.linear import decayed_attention, delta_rule
from ingot.kernels.quantised import float8, packed_linear
from ingot.kernels.sparse import dense_divergence, index_divergence, select_keys

Case = tuple[torch.dtype, tuple[int, ...], Callable[[Tensor], bool]]
CASES: dict[str, Case] = {
    "cross_entropy": (torch.bfloat16, (640, 512), cross_entropy.kernel_allowed),
    "decayed_attention": (
        torch.bfloat16,
        (2, 70, 4, 64),
        lambda x: decayed_attention.kernel_allowed(x, x, x, scale_on(x, 2, 70, 4)),
    ),
    "dense_divergence": (torch.bfloat16, (1, 8, 64, 128), lambda x: dense_divergence.kernel_allowed(x, x)),
    "draw": (torch.float32, (640, 512), draw.kernel_allowed),
    "float8": (torch.bfloat16, (640, 512), lambda x: float8.kernel_allowed(x, scale_on(x), torch.float8_e4m3fn)),
    "float8 rows": (torch.bfloat16, (640, 512), lambda x: rows_allowed(x)),
    "index_divergence": (torch.bfloat16, (1, 8, 64, 128), index_divergence.kernel_allowed),
    "rotate": (torch.bfloat16, (2, 8, 16, 64), lambda x: rotate_allowed(x)),
    "select_keys": (torch.bfloat16, (1, 8, 64, 128), lambda x: select_keys.kernel_allowed(x, 2048)),
    "packed_linear": (torch.bfloat16, (8, 512), packed_linear.kernel_allowed),
    "symmetric_product": (torch.float16, (2, 640, 512), symmetric_product.kernel_allowed),
}


def scale_on(x: Tensor, *shape: int) -> Tensor:
    return torch.empty(shape, device=x.device)


def rows_allowed(x: Tensor) -> bool:
    with torch.no_grad():
        return float8.cast_rows_allowed(x, torch.float8_e4m3fn)


def rotate_allowed(x: Tensor) -> bool:
    angles = scale_on(x, 2, 1, 16, 32)
    assert not rotate.kernel_allowed(x, angles), "gradients may be wanted"
    with torch.no_grad():
        return rotate.kernel_allowed(x, angles)


@pytest.mark.parametrize("name", CASES)
def test_only_what_a_kernel_names(name: str) -> None:
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
        assert cross_entropy.kernel_allowed(gaps), "rows with gaps"
        assert not cross_entropy.kernel_allowed(gaps.T), "columns"
        assert not draw.kernel_allowed(half(640, 1)), "a vocabulary of one"
        assert not select_keys.kernel_allowed(half(1, 8, 4, 257), 64), "a head that is too wide"
        assert not select_keys.kernel_allowed(half(1, 8, 4, 64), 8193), "more keys than 16 bits can count"
        x = half(640, 512)
        assert not float8.kernel_allowed(x, scale_on(x, 640, 1), torch.float8_e5m2), "a scale a row"
        assert rows_allowed(x) and not rows_allowed(half(4, float8.WIDEST + 1)), "a row that no program holds"
        assert not float8.cast_rows_allowed(x, torch.float8_e4m3fn), "gradients are kept"


def test_recurrences(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was computed from bfloat16 may be float32; float16 would lose states, and float32 its digits."""

    def allowed(dtypes: str, width: int = 64, *, rates: torch.dtype = torch.float32) -> bool:
        given = {"b": torch.bfloat16, "h": torch.float16, "f": torch.float32}
        query, key, value = (torch.empty(2, 70, 4, width, dtype=given[each], device="cuda") for each in dtypes)
        rate, column = (torch.empty(2, 70, 4, *more, dtype=rates, device="cuda") for more in ((), (1,)))
        found = delta_rule.kernel_allowed(query, key, value, column, rate)
        assert found == decayed_attention.kernel_allowed(query, key, value, rate)
        return found

    monkeypatch.setattr(delta_rule, "has_fla", lambda: True)
    with FakeTensorMode():
        assert allowed("bbb") and allowed("ffb") and allowed("bbf") and allowed("bbb", rates=torch.bfloat16)
        assert not allowed("fff") and not allowed("hhh") and not allowed("hbb")
        assert allowed("bbb", 256) and allowed("bbb", 16)
        assert not allowed("bbb", 272) and not allowed("bbb", 40) and not allowed("bbb", 8)
        assert not allowed("bbb", rates=torch.float64)
        monkeypatch.setattr(delta_rule, "has_fla", lambda: False)
        x = torch.empty(2, 70, 4, 64, dtype=torch.bfloat16, device="cuda")
        assert not delta_rule.kernel_allowed(x, x, x, x, x), "the package is not installed"
