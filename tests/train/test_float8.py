"""Products in float8: rounding against torch's table of the format, errors against the bounds of its mantissa, in float64.

A value of e4m3 has 3 bits of mantissa, so it is off by at most 2⁻⁴ of itself; of e5m2 2 bits, 2⁻³. Below the smallest normal
number (2⁻⁶ and 2⁻¹⁴) the error is at most half of the smallest step (2⁻¹⁰ and 2⁻¹⁷), times the scale.
"""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import linear

from ingot.kernels.quantised.float8 import Scaling, multiply_cast, product, to_float8
from ingot.model.config import ModelConfig
from ingot.model.linear import Linear
from ingot.model.transformer import Transformer
from ingot.train import float8
from ingot.train.device import choose_precision
from ingot.train.float8 import (
    BACKWARD,
    FORWARD,
    multiply_by_row,
    multiply_by_tensor,
    use_float8,
)
from ingot.train.layouts.steps import uneven
from ingot.workspace.stage import StageFolder
from tests.making.stages import stage_folder
from tests.model.tiny import random_model
from tests.train.parallel.models import MLA, MOE, shape
from tests.train.toy import FixedSource, make_trainer, records

SHARE = {FORWARD: 2.0**-4, BACKWARD: 2.0**-3}
STEP = {FORWARD: 2.0**-10, BACKWARD: 2.0**-17}
MULTIPLY = {"tensor": multiply_by_tensor, "row": multiply_by_row}


def table(dtype: torch.dtype) -> Tensor:
    """All finite numbers of the format."""
    values = torch.arange(256, dtype=torch.uint8).view(dtype).double()
    return values[values.isfinite()].unique()


def normal(*size: int, seed: int = 0) -> Tensor:
    return torch.randn(*size, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("dtype", [FORWARD, BACKWARD])
@pytest.mark.parametrize("scaling", ["tensor", "row"])
@pytest.mark.parametrize("size", [1e-12, 1.0, 3e7])
def test_every_value_becomes_the_nearest_one_of_the_format(dtype: torch.dtype, scaling: Scaling, size: float) -> None:
    x = normal(16, 48) * size * torch.logspace(-3, 0, 16)[:, None]
    rounded, scale = to_float8(x, dtype, scaling)
    assert rounded.dtype == dtype and scale.shape == ((16, 1) if scaling == "row" else ())
    wanted = (x * (1 / scale)).double()
    nearest = (wanted[..., None] - table(dtype)).abs().amin(-1)
    assert torch.equal((wanted - rounded.double()).abs(), nearest)
    largest = rounded.double().abs().amax(dim=1 if scaling == "row" else (0, 1))
    assert torch.equal(largest, torch.full_like(largest, torch.finfo(dtype).max)), "the whole range is used"


def test_zeros_stay_zeros() -> None:
    for scaling in ("tensor", "row"):
        rounded, scale = to_float8(torch.zeros(3, 4), FORWARD, scaling)
        assert not rounded.double().any() and bool((scale > 0).all())


def error_bound(x: Tensor, dtype: torch.dtype, scaling: Scaling) -> Tensor:
    """The most by which each value may be off."""
    largest = x.abs().amax(dim=1, keepdim=True) if scaling == "row" else x.abs().amax()
    scale = largest / torch.finfo(dtype).max
    return torch.maximum(SHARE[dtype] * x.abs(), STEP[dtype] * scale) * (1 + 1e-6)


@pytest.mark.parametrize("scaling", ["tensor", "row"])
def test_products_and_gradients_stay_within_the_bound_of_the_format(scaling: Scaling) -> None:
    """y = x Wᵀ, ∂x = g W, ∂W = gᵀ x: each entry against float64, with the bound that follows from both factors' rounding."""
    x, weight, gradient = normal(64, 48, seed=1), normal(32, 48, seed=2) * 0.05, normal(64, 32, seed=3) * 1e-4
    leaves = x.clone().requires_grad_(), weight.clone().requires_grad_()
    out = MULTIPLY[scaling](*leaves, None)
    out.backward(gradient)
    assert leaves[0].grad is not None and leaves[1].grad is not None
    cases = {
        "y": (out.detach(), x, weight, FORWARD),
        "dx": (leaves[0].grad, gradient, weight.T, BACKWARD),
        "dW": (leaves[1].grad, gradient.T, x.T, BACKWARD),
    }
    for name, (found, left, right, dtype) in cases.items():
        left, right = left.double(), right.double()
        off_left, off_right = error_bound(left, dtype, scaling), error_bound(right, FORWARD, scaling)
        exact = left @ right.T
        bound = off_left @ right.T.abs() + left.abs() @ off_right.T + off_left @ off_right.T
        error = found.double() - exact
        assert bool((error.abs() <= bound).all()), name
        relative = float(error.norm() / exact.norm())
        assert 0.01 < relative < (0.045 if dtype == FORWARD else 0.08), (name, relative)  # seen: 0.036, and 0.059


def test_a_scale_per_row_survives_an_outlier() -> None:
    """One token is a million times larger than the others: with one scale for all of them these become zeros."""
    x, weight = normal(32, 64, seed=1), normal(32, 64, seed=2)
    x[5] *= 1e6
    exact = x.double() @ weight.double().T
    quiet = [row for row in range(32) if row != 5]
    relative = {}
    for scaling, multiply in MULTIPLY.items():
        error = multiply(x, weight, None).double() - exact
        relative[scaling] = float(error[quiet].norm() / exact[quiet].norm())
        assert float(error[5].norm() / exact[5].norm()) < 0.05
    assert relative["row"] < 0.05  # seen: 0.034
    assert relative["tensor"] > 0.9  # seen: 1.0, every other token is lost


def test_only_large_layers_of_the_blocks_change() -> None:
    """On the meta device: a head of 50,000 rows, experts and their router are left alone, and so are narrow projections."""
    wide = {
        "mixer": {"heads": 16, "key_value_heads": 2, "head_width": 64},
        "feed_forward": {"width": 2048},
    }
    routed = wide | {
        "feed_forward": MOE["feed_forward"] | {"experts": 2048, "expert": {"width": 1024}, "shared": {"width": 256}}
    }
    values = {
        "vocabulary_size": 50_000,
        "width": 1024,
        "blocks": {"a": wide, "b": routed},
        "layers": "a b",
        "context": 64,
    }
    config = ModelConfig.model_validate(values | {"tied_embeddings": False, "multi_token": {"steps": 1, "block": "a"}})
    with torch.device("meta"):
        model = Transformer(config)
    count = use_float8(model, "row")
    changed = {name for name, each in model.named_modules() if isinstance(each, Linear) and each.multiply is not linear}
    attention = {"blocks.0.mixer.query_key_value", "blocks.0.mixer.output"}
    assert changed == attention | {each.replace("0", "1") for each in attention} | {
        "blocks.0.feed_forward.gate_up",
        "blocks.0.feed_forward.down",
    }
    assert count == len(changed)
    assert all(min(model.get_parameter(f"{name}.weight").shape) >= float8.SMALLEST for name in changed)


@pytest.mark.parametrize("scaling", ["tensor", "row"])
@pytest.mark.parametrize("rows", [1, 15, 17, 100])
def test_tokens_that_fill_no_tiles_are_multiplied_in_float8_too(
    rows: int, scaling: Scaling, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Against the formula without tiles; the kernel's matrices are whole ones, in all three products."""
    shapes: list[tuple[int, ...]] = []

    def noted(left: Tensor, left_scale: Tensor, right: Tensor, *rest: Any, **options: Any) -> Tensor:
        shapes.extend([tuple(left.shape), tuple(right.shape)])
        return multiply_cast(left, left_scale, right, *rest, **options)

    monkeypatch.setattr(float8, "multiply_cast", noted)
    monkeypatch.setattr("ingot.kernels.quantised.float8.multiply_cast", noted)
    x, weight, bias, gradient = normal(rows, 32, seed=1), normal(16, 32, seed=2), normal(16), normal(rows, 16, seed=3)
    leaves = x.clone().requires_grad_(), weight.clone().requires_grad_()
    out = MULTIPLY[scaling](*leaves, bias)
    out.backward(gradient)
    assert len(shapes) == 6 and all(size % 16 == 0 for shape in shapes for size in shape)
    monkeypatch.undo()
    expected = {
        "y": (out.detach(), product(x, weight, scaling, FORWARD, FORWARD, fast=True) + bias),
        "dx": (leaves[0].grad, product(gradient, weight.T, scaling, BACKWARD, FORWARD, fast=False)),
        "dW": (leaves[1].grad, product(gradient.T, x.T, scaling, BACKWARD, FORWARD, fast=False)),
    }
    for name, (found, wanted) in expected.items():
        torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-5, msg=name)


@pytest.mark.parametrize(("inputs", "outputs", "kept"), [(64, 32, True), (64, 40, False), (56, 32, False)])
def test_layers_whose_shape_the_kernel_does_not_take(
    inputs: int, outputs: int, kept: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(float8, "SMALLEST", 16)
    model = random_model(shape(MLA, layers=1))
    block = model.blocks[0]
    block.extra = Linear(inputs, outputs)
    use_float8(model, "tensor")
    assert (model.get_submodule("blocks.0.extra").multiply is multiply_by_tensor) == kept


def test_bias_shape_and_dtype_under_autocast() -> None:
    """Rows of tokens in float32 come out in the dtype of the products, biased, with gradients in float32."""
    layer = Linear(32, 16)
    x = normal(2, 8, 32).requires_grad_()
    with torch.autocast("cpu", torch.bfloat16):
        out = multiply_by_tensor(x, layer.weight, layer.bias)
    assert out.dtype == torch.bfloat16 and out.shape == (2, 8, 16)
    out.float().sum().backward()
    assert layer.bias.grad is not None and torch.equal(layer.bias.grad, torch.full((16,), 16.0))
    assert x.grad is not None and x.grad.dtype == torch.float32
    exact = layer.weight.detach().double().sum(0)
    assert float((x.grad[0, 0].double() - exact).norm() / exact.norm()) < 0.08


def test_the_product_of_float64_is_exact_up_to_the_rounding_of_its_factors() -> None:
    left, right = normal(16, 32, seed=4).double(), normal(16, 32, seed=5).double()
    for scaling in ("tensor", "row"):
        (one, one_scale), (two, two_scale) = (to_float8(each, FORWARD, scaling) for each in (left, right))
        expected = (one.double() * one_scale.double()) @ (two.double() * two_scale.double()).T
        assert torch.equal(product(left, right, scaling, FORWARD, FORWARD, fast=True), expected)


def test_a_run_in_float8_learns_like_one_in_float32(folder: StageFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    """Through the trainer, where the rest is in bfloat16 if the machine has it; here it is kept in float32."""
    monkeypatch.setattr(float8, "SMALLEST", 32)
    monkeypatch.setattr("ingot.train.device.cpu_has_bfloat16", lambda: False)
    assert choose_precision("float8", torch.device("cpu")) == torch.float32
    monkeypatch.setattr("ingot.train.device.cpu_has_bfloat16", lambda: True)
    assert choose_precision("float8", torch.device("cpu")) == torch.bfloat16
    monkeypatch.setattr("ingot.train.device.cpu_has_bfloat16", lambda: False)
    losses = {}
    block = {"mixer": {"heads": 4, "key_value_heads": 4, "head_width": 8}, "feed_forward": {"width": 64}}
    model, source = random_model(shape(block, layers=2), scale=0.1), FixedSource([uneven(0, rows=16)])
    for precision in ("float32", "float8"):
        stage = stage_folder(folder.path / precision, folder.progress)
        make_trainer(stage, model=copy.deepcopy(model), source=source, steps=8, precision=precision).run()
        losses[precision] = [row["loss"] for row in records(stage)]
    assert losses["float8"] != losses["float32"]
    assert losses["float8"] == pytest.approx(losses["float32"], rel=0.02)
    assert losses["float8"][-1] < losses["float8"][0]
