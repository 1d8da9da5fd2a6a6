"""Inputs of the linear recurrences and their exact values: document by document, by the definition in float64."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import normalize

from ingot.kernels.linear import decayed_attention, delta_rule
from ingot.kernels.linear.chunks import Sequences, cut_documents, cut_rows

KINDS = ("head", "channel", "decayed")  # the delta rule with a decay per head and per channel, linear attention
# one token, several in a chunk, borders at the ends of chunks, one over four chunks, and none at all
DOCUMENTS = (64, 1, 1, 62, 3, 0, 200, 65)


@dataclass
class Recurrence:
    """[T, …] tensors of the flattened batch, a first state of every sequence and gradients of what comes out."""

    kind: str
    lengths: tuple[int, ...]
    inputs: list[Tensor]
    first: Tensor | None
    gradient: Tensor
    last_gradient: Tensor
    sequences: Sequences

    @property
    def rule(self) -> Any:
        return decayed_attention if self.kind == "decayed" else delta_rule

    def exact(self) -> list[Tensor]:
        """Outputs, last states, and the gradients of all inputs and of the first states, in float64."""
        given = [x.detach().double().requires_grad_() for x in self.inputs]
        heads, key_width, value_width = self.inputs[2].shape[1], self.inputs[1].shape[2], self.inputs[2].shape[2]
        count = len(self.sequences.starts) - 1
        first = torch.zeros(count, heads, key_width, value_width, dtype=torch.float64, device=self.gradient.device)
        if self.first is not None:
            first = self.first.detach().double()
        first.requires_grad_()
        outs, lasts = [], []
        pieces = zip(*(x.split(self.lengths) for x in given), strict=True)
        for number, (length, piece) in enumerate(zip(self.lengths, pieces, strict=True)):
            state = first[number : number + 1]
            if length:
                chunks = cut_rows(length, min(64, 1 << (length - 1).bit_length()), None, state.device)
                rows = [x[None] for x in piece]
                if self.kind == "head":
                    rows[3] = rows[3][..., None]
                mixed, state = self.rule.chunked(*rows, state, chunks)
                outs.append(mixed[0])
            lasts.append(state)
        lasts.append(first[len(self.lengths) :])
        out, last = torch.cat(outs), torch.cat(lasts)
        both = (self.gradient.double(), self.last_gradient.double())
        return [out, last, *torch.autograd.grad((out, last), [*given, first], both)]


def make_recurrence(
    kind: str,
    lengths: tuple[int, ...],
    groups: int,
    heads: int,
    key_width: int,
    value_width: int,
    *,
    dtype: torch.dtype = torch.float32,
    device: str = "cpu",
    strength: float = 0.3,
    first: bool = True,
) -> Recurrence:
    """Random inputs; decays between −strength and 0."""
    generator = torch.Generator().manual_seed(sum(lengths) + heads)
    tokens = sum(lengths)

    def draw(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator)

    query, key, value = (
        draw(tokens, groups, key_width),
        draw(tokens, groups, key_width),
        draw(tokens, heads, value_width),
    )
    decay = -strength * torch.rand(tokens, heads, key_width if kind == "channel" else 1, generator=generator)
    more = [decay if kind == "channel" else decay[..., 0]]
    if kind != "decayed":
        key = normalize(key, dim=-1)
        more.append(torch.rand(tokens, heads, generator=generator))
    starts = torch.tensor([0, *torch.tensor(lengths).cumsum(0).tolist()], dtype=torch.int32)
    sequences = cut_documents(starts.to(device), tokens)
    shape = (len(sequences.starts) - 1, heads, key_width, value_width)
    inputs = [*(x.to(device, dtype) for x in (normalize(query, dim=-1), key, value)), *(x.to(device) for x in more)]
    return Recurrence(
        kind,
        lengths,
        [x.requires_grad_() for x in inputs],
        draw(*shape).to(device).requires_grad_() if first else None,
        draw(tokens, heads, value_width).to(device, dtype),
        draw(*shape).to(device),
        sequences,
    )


def by_operator(case: Recurrence, operator: Any) -> list[Tensor]:
    """Outputs, last states and gradients by an operator of a kernel's file, in the order of `exact`."""
    at = (case.sequences.starts, case.sequences.chunks, case.sequences.offsets)
    out, last, *_ = operator(*case.inputs, case.first, *at, True)
    wanted = [*case.inputs, *([] if case.first is None else [case.first])]
    return [out, last, *torch.autograd.grad((out, last), wanted, (case.gradient, case.last_gradient))]


def distances(found: list[Tensor], exact: list[Tensor]) -> dict[str, float]:
    """Relative errors by name."""
    names = [*("out", "last", "queries", "keys", "values", "decays", "β")[: len(exact) - 1], "first"]
    pairs = zip(names, found, exact, strict=False)
    return {
        name: float((one.detach().double() - two.detach()).norm() / two.detach().norm()) for name, one, two in pairs
    }
