"""Attention on every kind of packed batch, on any backend: outputs and gradients to compare. Needs torch only."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import product

import torch
from torch import Tensor

from ingot.kernels.attention.attention_options import AttentionOptions
from ingot.model.context import Context
from ingot.model.document_spans import PADDING
from ingot.model.mixers.attend import Backend, attend, use_backend

LENGTH = 75
ROWS = (
    ((0, 5), (1, 20), (2, 30), (3, 1), (PADDING, 19)),
    ((4, 75),),
    ((PADDING, 6), (5, 1), (6, 2), (5, 15), (7, 18), (8, 33)),
    ((PADDING, 75),),
)


@dataclass(frozen=True)
class Case:
    """One call of attend. Windows and chunks are shorter than some documents and longer than others."""

    packed: bool = True
    window: int | None = None
    chunk: int | None = None
    softcap: float | None = None
    sinks: bool = False
    heads: int = 4
    key_heads: int = 2
    width: int = 16
    value_width: int = 16

    @property
    def fused(self) -> bool:
        """Whether kernels without softcap and sinks can do it."""
        return self.softcap is None and not self.sinks

    def __str__(self) -> str:
        return " ".join(f"{name}={value}" for name, value in vars(self).items())


@dataclass
class Result:
    """What attend returned, and the gradients of a random linear function of it."""

    output: Tensor
    gradients: dict[str, Tensor] = field(default_factory=dict)


def cases() -> list[Case]:
    """Packed or not × window × chunk × softcap × sinks × heads per key head; and other widths of values."""
    grid = [
        Case(packed, window, chunk, softcap, sinks, key_heads=key_heads)
        for packed, window, chunk, softcap, sinks, key_heads in product(
            (True, False), (None, 3, 18, 70), (None, 7, 32), (None, 2.0), (False, True), (4, 2, 1)
        )
        # each number of key heads with every mask; softcap and sinks with every mask on grouped heads
        if key_heads == 2 or (softcap is None and not sinks)
    ]
    widths = [
        Case(window=window, sinks=sinks, key_heads=4, width=width, value_width=value_width)
        for window, sinks, (width, value_width) in product((None, 18), (False, True), ((24, 16), (16, 24)))
    ]
    return grid + widths


def documents() -> Tensor:
    """[rows, LENGTH]: long and short documents, padding before, between and after them, and a row of padding."""
    return torch.tensor([[number for number, count in row for _ in range(count)] for row in ROWS])


def run(
    backend: Backend | None,
    case: Case,
    dtype: torch.dtype = torch.float64,
    device: str = "cpu",
    gradients: bool = True,
    repeat: int = 1,
) -> Result:
    """The case's result; the inputs are the same numbers in every dtype and on every device."""
    generator = torch.Generator().manual_seed(1)
    rows, length = len(ROWS), LENGTH * repeat

    def tensor(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64).to(device, dtype).requires_grad_(gradients)

    inputs = {
        "query": tensor(rows, case.heads, length, case.width),
        "key": tensor(rows, case.key_heads, length, case.width),
        "value": tensor(rows, case.key_heads, length, case.value_width),
    }
    if case.sinks:
        inputs["sinks"] = tensor(case.heads)
    weight = tensor(rows, case.heads, length, case.value_width).detach()
    numbers = documents().repeat_interleave(repeat, dim=1).to(device) if case.packed else None
    context = Context(torch.arange(length, device=device).expand(rows, length), numbers)

    def call() -> Tensor:
        return attend(
            inputs["query"],
            inputs["key"],
            inputs["value"],
            context,
            AttentionOptions(0.3, case.window, case.chunk, case.softcap, inputs.get("sinks")),
        )

    if backend is None:
        output = call()
    else:
        with use_backend(backend):
            output = call()
    if not gradients:
        return Result(output)
    found = torch.autograd.grad((output * weight).sum(), list(inputs.values()))
    return Result(output.detach(), dict(zip(inputs, found, strict=True)))


def largest_difference(found: Result, expected: Result) -> float:
    """Over outputs and gradients, relative to the largest number of each."""
    pairs = [(found.output, expected.output)]
    pairs += [(found.gradients[name], value) for name, value in expected.gradients.items() if found.gradients]
    return max(float((a.cpu().double() - b.cpu().double()).abs().max() / b.abs().max()) for a, b in pairs)
