"""Every backend that runs on a CPU gives what the definition gives, and none makes anything of size T×T."""

from __future__ import annotations

import math
import random
from functools import cache
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from ingot.kernels.attention.attention_options import AttentionOptions
from ingot.model.context import Context
from ingot.model.document_spans import PADDING
from ingot.model.mixers import attend_blocks, attend_sdpa
from ingot.model.mixers.attend import Backend, attend, choose_backend, use_backend
from ingot.model.mixers.mask import Mask
from tests.model.mixers.attend_cases import LENGTH, Case, Result, cases, documents, largest_difference, run
from tests.slow import first_fast

CASES = cases()


@cache
def definition(case: Case) -> Result:
    return run("plain", case)


@pytest.mark.parametrize("backend", ["sdpa", "blocks"])
def test_backends_equal_the_definition(backend: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    """Outputs and gradients in float64, on several sizes of block so that every border is crossed."""
    for number, case in enumerate(CASES):
        if backend == "sdpa" and not case.fused:
            continue
        monkeypatch.setattr(attend_blocks, "QUERIES", (8, 32, 128)[number % 3])
        monkeypatch.setattr(attend_sdpa, "BLOCKS", ((2, 8), (16, 32), (64, 512))[number % 3])
        assert largest_difference(run(backend, case), definition(case)) < 1e-12, case


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
@pytest.mark.parametrize("count", first_fast([10, 20]))
def test_flex_equals_the_definition(count: int) -> None:
    """Values only: without a GPU it has no gradients. test_attend_cuda.py has them."""
    chosen = [case for case in CASES if case.width == case.value_width]
    for case in random.Random(0).sample(chosen, count):
        assert largest_difference(run("flex", case, gradients=False), definition(case)) < 1e-12, case


def test_the_definition_by_loops() -> None:
    """`plain` itself, one query at a time with Python's numbers."""
    case = Case(window=18, chunk=32, softcap=2.0, sinks=True)
    found = run("plain", case).output
    generator = torch.Generator().manual_seed(1)
    query, key, value = (
        torch.randn(4, heads, LENGTH, 16, generator=generator, dtype=torch.float64) for heads in (4, 2, 2)
    )
    sinks = torch.randn(4, generator=generator, dtype=torch.float64)
    numbers = documents().tolist()
    for row, head, place in ((0, 0, 3), (0, 3, 24), (0, 2, 54), (1, 1, 74), (2, 3, 6), (2, 0, 8), (2, 2, 74)):
        start = place
        while start > 0 and numbers[row][start - 1] == numbers[row][place]:
            start -= 1
        seen = [
            other
            for other in range(start, place + 1)
            if place - other < 18 and (other - start) // 32 == (place - start) // 32
        ]
        scores = [0.3 * float(query[row, head, place] @ key[row, head // 2, other]) for other in seen]
        powers = [math.exp(2.0 * math.tanh(score / 2.0)) for score in scores]
        total = sum(powers) + math.exp(float(sinks[head]))
        expected = sum(power / total * value[row, head // 2, other] for power, other in zip(powers, seen, strict=True))
        torch.testing.assert_close(found[row, head, place], expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(("backend", "sinks"), [("plain", True), ("sdpa", False), ("blocks", False), ("blocks", True)])
def test_padding_gives_zeros_and_takes_no_gradient(backend: Backend, sinks: bool) -> None:
    result = run(backend, Case(window=18, sinks=sinks))
    padding = documents() == PADDING
    assert bool((result.output.transpose(1, 2)[padding] == 0).all())
    for name, gradient in result.gradients.items():
        assert bool(gradient.isfinite().all()), name
        if name != "sinks":
            assert bool((gradient.transpose(1, 2)[padding] == 0).all()), name


def test_the_automatic_choice() -> None:
    query, value = torch.zeros(1, 2, 8, 16), torch.zeros(1, 2, 8, 16)
    context = Context(torch.arange(8)[None])
    assert choose_backend(query, value, context, Mask(3, 4), AttentionOptions(1.0, 3, 4)) == "sdpa"
    assert choose_backend(query, value, context, Mask(), AttentionOptions(1.0, softcap=1.0)) == "blocks"
    for case in (Case(window=18), Case(sinks=True), Case(chunk=32, softcap=2.0)):
        assert largest_difference(run(None, case), definition(case)) < 1e-12


def test_a_backend_that_lacks_a_part_says_so() -> None:
    x = torch.zeros(1, 1, 4, 8)
    with use_backend("sdpa"), pytest.raises(ValueError, match="sdpa attention has no softcap"):
        attend(x, x, x, Context(torch.arange(4)[None]), AttentionOptions(1.0, softcap=1.0))


def test_layers_with_one_mask_share_its_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    made, original = [], attend_sdpa._plan

    def counted(mask: Mask, context: Context) -> attend_sdpa.CallPlan:
        made.append(mask)
        return original(mask, context)

    monkeypatch.setattr(attend_sdpa, "_plan", counted)
    context = Context(torch.arange(8)[None], torch.tensor([[0] * 5 + [1] * 3]))
    x = torch.zeros(1, 1, 8, 4)
    for window in (3, 3, 2, 3):
        attend(x, x, x, context, AttentionOptions(1.0, window))
    assert made == [Mask(3), Mask(2)]


class Largest(TorchDispatchMode):
    """Remembers the largest tensor that any operation returned, views that repeat memory not counted."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.numbers = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for tensor in result if isinstance(result, (tuple, list)) else (result,):
            if isinstance(tensor, Tensor):
                self.numbers = max(self.numbers, tensor.untyped_storage().nbytes() // tensor.element_size())
        return result


@pytest.mark.parametrize("extras", [False, True])
@pytest.mark.parametrize(
    ("window", "chunk", "packed"), [(128, None, False), (128, None, True), (None, 256, False), (None, None, True)]
)
def test_nothing_is_as_large_as_the_square_of_the_length(
    window: int | None, chunk: int | None, packed: bool, extras: bool
) -> None:
    """Forward and backward at T = 4096: the largest tensor stays below T × T numbers, for all heads together."""
    length, heads = 4096, 2
    query, key, value = (torch.randn(1, heads, length, 8, requires_grad=True) for _ in range(3))
    numbers = (torch.arange(length) // 700)[None] if packed else None
    context = Context(torch.arange(length)[None], numbers)
    sinks = torch.zeros(heads, requires_grad=True) if extras else None
    with Largest() as largest:
        softcap = 5.0 if extras else None
        output = attend(query, key, value, context, AttentionOptions(1.0, window, chunk, softcap, sinks))
        output.sum().backward()
    assert largest.numbers < length * length / 4


def test_the_largest_tensor_is_noticed() -> None:
    x = torch.randn(1, 2, 512, 8)
    with Largest() as largest, use_backend("plain"):
        attend(x, x, x, Context(torch.arange(512)[None]), AttentionOptions(1.0))
    assert largest.numbers >= 512 * 512
