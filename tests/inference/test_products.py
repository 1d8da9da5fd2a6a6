"""The choice of the product library is undone afterwards, and only made where it was measured."""

from __future__ import annotations

import pytest
import torch

from ingot.inference import products
from ingot.inference.products import fast_products


def enabled() -> bool:
    return bool(torch.backends.mkldnn.enabled)


def test_the_setting_is_put_back_also_after_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(products, "IS_ARM", True)
    before = enabled()
    with pytest.raises(KeyboardInterrupt), fast_products(torch.zeros(1)):
        assert not enabled()
        raise KeyboardInterrupt
    assert enabled() == before


@pytest.mark.parametrize(("arm", "dtype"), [(False, torch.float32), (True, torch.bfloat16)])
def test_others_are_left_alone(monkeypatch: pytest.MonkeyPatch, arm: bool, dtype: torch.dtype) -> None:
    monkeypatch.setattr(products, "IS_ARM", arm)
    before = enabled()
    with fast_products(torch.zeros(1, dtype=dtype)):
        assert enabled() == before
