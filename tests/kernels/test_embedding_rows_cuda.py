"""Rows added to a total by their tokens, against torch's index_add in float64.

On a GPU, or in Triton's interpreter on a CPU: TRITON_INTERPRET=1 python -m pytest tests/kernels/test_embedding_rows_cuda.py
"""

from __future__ import annotations

import os

import pytest
import torch

from ingot.kernels import embedding_rows
from ingot.train.passes import Objective, Passes
from ingot.train.terms import CrossEntropy
from tests.model.tiny import mixed_config, random_model
from tests.train.test_bf16_copies import run

triton = pytest.importorskip("triton", reason="Triton is not installed")
if not torch.cuda.is_available() and os.environ.get("TRITON_INTERPRET") != "1":
    pytest.skip("needs a CUDA device, or TRITON_INTERPRET=1", allow_module_level=True)

from ingot.kernels.embedding_rows_kernel import CHUNK, add_rows_triton  # noqa: E402

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def tokens_of(kind: str, count: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(count)
    if kind == "one":
        return torch.full((count,), 7)
    if kind == "skewed":  # most are among three, some of which go on through several chunks
        return torch.randint(3, (count,), generator=generator) * torch.randint(4, (count,), generator=generator)
    return torch.randint(50, (count,), generator=generator)


@pytest.mark.parametrize("kind", ["one", "skewed", "random"])
@pytest.mark.parametrize("count", [0, CHUNK - 1, CHUNK, 5 * CHUNK + 1])
@pytest.mark.parametrize(("width", "dtype"), [(24, torch.bfloat16), (136, torch.float16)])
def test_every_row_is_added_once(kind: str, count: int, width: int, dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(width)
    tokens, total = tokens_of(kind, count), torch.randn(50, width, generator=generator)
    rows = torch.randn(count, width, generator=generator).to(dtype)
    exact = total.double().index_add(0, tokens, rows.double())
    size = total.double().abs().index_add(0, tokens, rows.double().abs())
    found = total.to(DEVICE)
    add_rows_triton(found, tokens.to(DEVICE), rows.to(DEVICE))
    assert bool(((found.cpu().double() - exact).abs() <= 2e-6 * size).all())
    again = total.to(DEVICE)
    add_rows_triton(again, tokens.to(DEVICE), rows.to(DEVICE))
    assert torch.equal(found, again)


@pytest.mark.parametrize("tied", [True, False])
def test_a_step_with_it_has_the_gradients_of_one_without(tied: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Embedding and head, with and without a shared weight, over several passes."""
    if DEVICE == "cpu":  # the interpreter's tensors are there
        monkeypatch.setattr(embedding_rows, "kernel_allowed", lambda total: True)
    model = random_model(mixed_config().model_copy(update={"tied_embeddings": tied}), scale=0.05).to(DEVICE)
    device = torch.device(DEVICE)
    with_it, without = (Passes(model, Objective([CrossEntropy()]), device, torch.float16) for _ in range(2))
    assert with_it.copies is not None and without.copies is not None
    without.copies.lookup = None
    loss, gradients = run(model, with_it, 2)
    expected_loss, expected = run(model, without, 2)
    assert torch.equal(loss, expected_loss)
    for name, gradient in gradients.items():
        other = expected[name]
        assert gradient is not None and other is not None
        torch.testing.assert_close(gradient, other, rtol=1e-5, atol=1e-6 * float(other.abs().max()))
    assert "look_up" not in vars(model.embedding)
