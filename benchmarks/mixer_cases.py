"""Inputs of the linear recurrences for benchmarks/mixers.py, what is exact for them, and how long a call takes."""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import normalize

from ingot.kernels.launch import has_triton
from ingot.kernels.linear import decayed_attention, delta_rule
from ingot.kernels.linear.chunks import Sequences, cut_documents, cut_equal, cut_rows
from ingot.model.mixers.lightning import slopes

KINDS = ("gated_delta", "kda", "lightning", "mamba2")
HEADS, WIDTH = 16, 128
DOCUMENTS = (64, 1, 1, 130, 200, 3, 65, 47)  # lengths of the small case
FAILURES: tuple[type[Exception], ...] = (RuntimeError, ValueError, TypeError, ImportError)
if has_triton():
    from triton import TritonError

    FAILURES = (*FAILURES, TritonError)  # a tile that does not fit


@dataclass
class Case:
    """Inputs of one recurrence: queries, keys, values [B, T, H, W] in bfloat16, decays and β in float32."""

    kind: str
    inputs: list[Tensor]
    gradient: Tensor
    sequences: Sequences

    @property
    def rule(self) -> Any:
        return delta_rule if self.kind in ("gated_delta", "kda") else decayed_attention

    def kernels(self) -> Tensor:
        out: Tensor = self.rule.by_kernel(*self.inputs, None, self.sequences, wants_state=False)[0]
        return out

    def definition(self, inputs: list[Tensor] | None = None) -> Tensor:
        given = [x.float() for x in self.inputs] if inputs is None else inputs
        rows, length, heads, width = given[2].shape
        state = given[2].new_zeros(rows, heads, given[1].shape[-1], width)
        size = min(64, 1 << (length - 1).bit_length())
        out: Tensor = self.rule.chunked(*given, state, cut_rows(length, size, None, state.device))[0]
        return out

    def peer(self) -> Tensor:
        """flash-linear-attention's own function, over the same documents."""
        query, key, value, decay, *beta = self.inputs
        shape, more = value.shape, {}
        if len(self.sequences.starts) - 1 != shape[0]:
            query, key, value, decay = (x.flatten(0, 1)[None] for x in (query, key, value, decay))
            beta = [x.flatten(0, 1)[None] for x in beta]
            more = {"cu_seqlens": self.sequences.starts.long()}
        if self.kind == "gated_delta":
            from fla.ops.gated_delta_rule import chunk_gated_delta_rule

            found = chunk_gated_delta_rule(query, key, value, decay[..., 0], beta[0], scale=1.0, **more)
        elif self.kind == "kda":
            from fla.ops.kda import chunk_kda

            found = chunk_kda(query, key, value, decay, beta[0], scale=1.0, **more)
        else:
            from fla.ops.simple_gla import chunk_simple_gla

            share = value.shape[2] // key.shape[2]  # it has no groups
            query, key = (x.repeat_interleave(share, dim=2) if share > 1 else x for x in (query, key))
            forget = {"g_gamma": decay[0, 0].detach()} if self.kind == "lightning" else {"g": decay}
            found = chunk_simple_gla(query, key, value, scale=1.0, **forget, **more)
        out: Tensor = found[0]
        return out.view(shape)


def make_case(kind: str, rows: int, length: int, documents: tuple[int, ...] | None = None, heads: int = HEADS) -> Case:
    """Decays as at the start of training: heads remember over a few to a few thousand tokens."""
    generator = torch.Generator("cuda").manual_seed(0)

    def draw(*shape: int) -> Tensor:
        return torch.randn(rows, length, *shape, generator=generator, device="cuda")

    groups = {"gated_delta": heads // 2, "mamba2": heads // 8 or 1}.get(kind, heads)
    query, key, value = draw(groups, WIDTH), draw(groups, WIDTH), draw(heads, WIDTH)
    rate = torch.rand(heads, generator=generator, device="cuda") * 15 + 1
    forget = -rate * torch.exp(draw(heads) * 0.5 - 4.0)
    if kind in ("gated_delta", "kda"):
        query, key = normalize(query, dim=-1) * WIDTH**-0.5, normalize(key, dim=-1)
        decay = forget[..., None] * (torch.exp(0.5 * draw(heads, WIDTH)) if kind == "kda" else 1.0)
        more = [decay, torch.sigmoid(draw(heads))]
    else:
        query, key = query * WIDTH**-0.5, key * WIDTH**-0.5
        fixed = -slopes(heads, 1, 8, torch.device("cuda")).expand(rows, length, heads).contiguous()
        more = [fixed if kind == "lightning" else forget]
    inputs = [*(x.bfloat16() for x in (query, key, value)), *more]
    ends = torch.tensor(documents or (), device="cuda").cumsum(0)
    sequences = (
        cut_equal(rows, length, torch.device("cuda"))
        if documents is None
        else cut_documents(torch.cat((ends.new_zeros(1), ends)), rows * length)
    )
    learned = inputs[:3] if kind == "lightning" else inputs
    for x in learned:
        x.requires_grad_()
    return Case(kind, inputs, draw(heads, WIDTH).bfloat16(), sequences)


def wanted(case: Case) -> list[Tensor]:
    return [x for x in case.inputs if x.requires_grad]


def exact_gradients(case: Case) -> list[Tensor]:
    """Outputs and gradients in float64, document by document."""
    exact = [x.detach().double().requires_grad_() for x in case.inputs]
    pieces = zip(*(x.split(DOCUMENTS, dim=1) for x in exact), strict=True)
    out = torch.cat([case.definition(list(piece)) for piece in pieces], dim=1)
    return [out, *torch.autograd.grad(out, exact, case.gradient.double())]


def gradient_errors(case: Case, exact: list[Tensor], run: Callable[[], Tensor] | None = None) -> dict[str, float]:
    out = case.kernels() if run is None else run()
    found = [out, *torch.autograd.grad(out, wanted(case), case.gradient)]
    names = ("out", "queries", "keys", "values", "decays", "β")
    pairs = zip(found, exact, strict=True)
    return {name: distance(one, two) for name, (one, two) in zip(names, pairs, strict=False)}


def distance(found: Tensor, exact: Tensor) -> float:
    return float((found.detach().double() - exact.detach()).norm() / exact.detach().norm())


@contextmanager
def reported(what: str) -> Iterator[None]:
    """A case that fails says so, and the others go on."""
    try:
        yield
    except FAILURES as error:
        print(f"{what}: {type(error).__name__}: {str(error)[:300]}", flush=True)
        if not isinstance(error, torch.OutOfMemoryError):
            traceback.print_exc(limit=-3)
    torch.cuda.empty_cache()


def milliseconds(run: Callable[[], object], at_most: float = 1.5) -> float:
    """The median; as many repeats as fit into `at_most` seconds, five at least."""
    run()
    torch.cuda.synchronize()
    began = time.perf_counter()
    run()
    torch.cuda.synchronize()
    repeats = max(5, min(30, int(at_most / max(time.perf_counter() - began, 1e-6))))
    events = [(torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)) for _ in range(repeats)]
    for start, end in events:
        start.record()
        run()
        end.record()
    torch.cuda.synchronize()
    return sorted(start.elapsed_time(end) for start, end in events)[repeats // 2]


def host_milliseconds(run: Callable[[], object]) -> float:
    """How long the host takes to launch it: where that is more than the device takes, the device waits. The median of nine."""
    took = []
    for _ in range(9):
        torch.cuda.synchronize()
        began = time.perf_counter()
        run()
        took.append(1e3 * (time.perf_counter() - began))
    torch.cuda.synchronize()
    return sorted(took)[4]
