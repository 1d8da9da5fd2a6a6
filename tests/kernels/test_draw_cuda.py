"""The kernel against `draw_rows`, its reference on the CPU: same ids, kept sets and log-probabilities on the same logits.

Exponentials differ by some 1e-7 between the two, so an id may differ where u falls that close to the boundary between
two tokens, and a kept set where a mass comes that close to top_p; everything else must be equal. With
TRITON_INTERPRET=1 the same tests run on a CPU, with small vocabularies.
"""

from __future__ import annotations

import math
import os
from dataclasses import replace
from importlib.util import find_spec
from typing import Any

import pytest
import torch
from torch import Tensor

from ingot.inference.controls import Controls
from ingot.inference.draw import draw, draw_positions, unpack_kept
from ingot.inference.sampling import Sampling
from ingot.kernels.head.draw import draw_rows_definition
from ingot.kernels.head.uniform import uniform
from tests.slow import first_fast

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1" and find_spec("triton") is not None
pytestmark = pytest.mark.skipif(
    not (torch.cuda.is_available() or INTERPRETED), reason="needs a CUDA device, or TRITON_INTERPRET=1 and Triton"
)
CPU, DEVICE = torch.device("cpu"), torch.device("cpu" if INTERPRETED else "cuda")
CLOSE = 2e-6  # of the mass: where an id may be another
SIZES = [1, 7, 300, 1500] if INTERPRETED else [2, 7, 300, 4096, 49_152, 151_936, 262_144]
ROWS = 12 if INTERPRETED else 48
MIXTURE: list[dict[str, Any]] = [
    {},
    {"temperature": 0.0},
    {"top_k": 5},
    {"top_p": 0.8},
    {"min_p": 0.1},
    {"top_k": 40, "top_p": 0.9, "temperature": 0.7},
    {"temperature": 0.5, "raw_logprobs": True},
    {"top_k": 20, "top_p": 0.95, "min_p": 0.05, "temperature": 1.5},
    {"temperature": 1.8},
    {"top_p": 0.999},
    {"top_k": 10**6, "top_p": 0.3},
    {"temperature": 0.0, "top_k": 3, "raw_logprobs": True},
]
PLAIN: list[dict[str, Any]] = [{}, {"temperature": 0.0}, {"temperature": 0.6}, {"temperature": 1.9}]


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the interpreter, several blocks in a small vocabulary; on a device the kernel as it is used."""
    from ingot.kernels.head import draw_kernel

    if INTERPRETED:
        monkeypatch.setattr(draw_kernel, "BLOCK", 64)
        monkeypatch.setattr(draw_kernel, "SEARCH_BLOCK", 128)


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def compare(logits: Tensor, modified: Tensor | None, samplings: list[Sampling], steps: Tensor) -> None:
    """The kernel and the reference on the same rows."""
    from ingot.kernels.head import draw_kernel

    size = logits.shape[-1]
    ours = Controls(samplings, DEVICE, size)
    theirs = Controls(samplings, CPU, size)
    there = None if modified is None else modified.to(DEVICE)
    ids, logprobs, floor = draw_kernel.draw_rows_triton(logits.to(DEVICE), there, ours, steps.to(DEVICE))
    ids, logprobs, floor = ids.cpu(), logprobs.cpu(), None if floor is None else floor.cpu()
    exact_ids, exact_logprobs, exact_floor = draw_rows_definition(logits, modified, theirs, steps)

    scaled = (logits if modified is None else modified).float() * theirs.scale_B.float()[:, None]
    mass = (scaled.double() - scaled.double().amax(-1, keepdim=True)).exp()
    assert (floor is None) == (exact_floor is None)
    kept = torch.ones_like(scaled, dtype=torch.bool)
    if floor is not None and exact_floor is not None:
        kept, exact_kept = scaled >= floor[:, None], scaled >= exact_floor[:, None]
        for row in (kept != exact_kept).any(-1).nonzero()[:, 0].tolist():  # only where top_p is met within rounding
            base = mass[row] * (scaled[row] >= kth_largest(scaled[row], int(theirs.top_k_B[row])))
            shares = [float(mass[row][one[row]].sum() / base.sum()) for one in (kept, exact_kept)]
            assert min(abs(share - float(theirs.top_p_B[row])) for share in shares) < CLOSE
    cumulative = mass.masked_fill(~kept, 0.0).cumsum(-1)
    cumulative /= cumulative[:, -1:].clone()
    target = uniform(theirs.streams_B, steps)
    for row, (token, exact) in enumerate(zip(ids.tolist(), exact_ids.tolist(), strict=True)):
        assert bool(kept[row, token]) and float(mass[row, token]) > 0
        if token != exact and bool(theirs.greedy_B[row] == 0):
            low, high = sorted((token, exact))
            assert float((cumulative[row, low:high] - target[row]).abs().max()) < CLOSE
    greedy = theirs.greedy_B > 0
    assert ids[greedy].tolist() == exact_ids[greedy].tolist()
    assert int((ids != exact_ids).sum()) <= max(1, len(ids) // 50)
    same = ids == exact_ids
    torch.testing.assert_close(logprobs[same], exact_logprobs[same], atol=1e-6, rtol=1e-6)


def kth_largest(values: Tensor, k: int) -> float:
    return float(values.topk(k).values[-1]) if k else -math.inf


@pytest.mark.parametrize("dtype", first_fast([torch.float32, torch.bfloat16]))
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("kinds", first_fast([MIXTURE, PLAIN]), ids=["mixture", "plain"])
def test_ids_kept_sets_and_log_probabilities(size: int, dtype: torch.dtype, kinds: list[dict[str, Any]]) -> None:
    for scale in (0.3, 3.0):
        logits = (normal(ROWS, size, seed=size) * scale).to(dtype)
        samplings = [Sampling(seed=row, **kinds[row % len(kinds)]) for row in range(ROWS)]
        compare(logits, None, samplings, torch.arange(ROWS) * 7)


def test_modified_logits_draw_and_the_models_own_are_reported() -> None:
    size = 300 if INTERPRETED else 49_152
    logits = (normal(ROWS, size, seed=1) * 2).bfloat16()
    modified = logits.float() + normal(ROWS, size, seed=2)
    modified[:, ::3] = -math.inf
    modified[:, 64:200] = -math.inf  # whole blocks of the interpreter's kernel
    samplings = [Sampling(seed=row, **MIXTURE[row % len(MIXTURE)]) for row in range(ROWS)]
    compare(logits, modified, samplings, torch.arange(ROWS))


def test_difficult_values() -> None:
    """Ties, zeros of both signs, denormal numbers, huge ones, nearly everything −∞."""
    size = 1100 if INTERPRETED else 20_000
    rows = [
        torch.zeros(size),
        normal(size).round(),
        torch.where(normal(size) > 0, 0.0, -0.0),
        normal(size) * 1e-42,
        normal(size) * 1e4,
        torch.full((size,), -math.inf).index_fill_(0, torch.tensor([3, size - 1]), -5.0),
        torch.cat((torch.full((size - 1,), -1e30), torch.tensor([1e30]))),
        torch.linspace(-1, 1, size),
    ]
    for options in ({}, {"temperature": 0.0}, {"top_k": 3}, {"top_p": 0.5}, {"min_p": 0.5, "top_k": 7, "top_p": 0.9}):
        samplings = [Sampling(seed=seed, **options) for seed in range(len(rows))]
        compare(torch.stack(rows), None, samplings, torch.zeros(len(rows), dtype=torch.int64))


@pytest.mark.parametrize("wrong", [math.nan, math.inf, None])
def test_rows_without_a_distribution_report_it(wrong: float | None) -> None:
    from ingot.kernels.head import draw_kernel

    kinds: list[dict[str, Any]] = [{}, {"temperature": 0.0}, {"top_k": 3}, {"top_p": 0.9}]
    logits = normal(8, 150)
    if wrong is None:
        logits[4:] = -math.inf
    else:
        logits[4:, 7] = wrong
    controls = Controls([Sampling(**kinds[row % 4]) for row in range(8)], DEVICE, 150)
    steps = torch.zeros(8, dtype=torch.int64, device=DEVICE)
    ids, logprobs, _ = draw_kernel.draw_rows_triton(logits.to(DEVICE), None, controls, steps)
    assert torch.isfinite(logprobs[:4]).all() and not torch.isfinite(logprobs[4:]).any()
    assert int(ids.min()) >= 0 and int(ids.max()) < 150


@pytest.mark.skipif(INTERPRETED, reason="`draw` takes the kernel on a CUDA device only")
def test_a_whole_draw_without_waiting() -> None:
    """Penalties, masks, kept sets and positions on the device: the numbers of the CPU, and no synchronisation."""
    size, more = 5000, {"keep_set": True, "top_logprobs": 5}
    kinds = [
        *MIXTURE,
        {"repetition_penalty": 1.3, "frequency_penalty": 0.4, "presence_penalty": 0.2},
        {"logit_bias": ((3, 5.0), (4, -5.0)), "allowed_tokens": tuple(range(0, 900))},
        {"min_new_tokens": 3, "stop_tokens": (1, 2, 3)},
    ]
    samplings = [Sampling(seed=row, **{**more, **kinds[row % len(kinds)]}) for row in range(30)]
    histories = [([row, row + 1], [5 * row]) for row in range(30)]
    ours, theirs = (Controls(samplings, device, size, histories) for device in (DEVICE, CPU))
    steps = torch.arange(30) % 5
    on_device = steps.to(DEVICE)
    for number in range(4):
        logits = normal(30, size, seed=number) * 3
        there = logits.to(DEVICE)
        torch.cuda.set_sync_debug_mode("error")
        found = draw(there, ours, on_device + number)
        torch.cuda.set_sync_debug_mode("default")
        exact = draw(logits, theirs, steps + number)
        assert found.ids_B.tolist() == exact.ids_B.tolist()
        torch.testing.assert_close(found.logprobs_B.cpu(), exact.logprobs_B, atol=1e-6, rtol=1e-6)
        assert found.kept_BW is not None and exact.kept_BW is not None
        assert [unpack_kept(row) for row in found.kept_BW.cpu()] == [unpack_kept(row) for row in exact.kept_BW]
        for ours_part, theirs_part in (
            (found.kept_logmass_B, exact.kept_logmass_B),
            (found.top_logprobs_BN, exact.top_logprobs_BN),
        ):
            assert ours_part is not None and theirs_part is not None
            torch.testing.assert_close(ours_part.cpu(), theirs_part, atol=1e-5, rtol=1e-5)
    positions = normal(30, 3, size, seed=9)
    several = draw_positions(positions.to(DEVICE), ours, on_device)
    assert several.ids_B.tolist() == draw_positions(positions, theirs, steps).ids_B.tolist()


def test_a_row_is_drawn_the_same_in_any_batch() -> None:
    """Bit for bit, whichever variant of the kernel the neighbours ask for."""
    from ingot.kernels.head import draw_kernel

    size = 300 if INTERPRETED else 49_152
    logits = (normal(4, size) * 2).to(DEVICE)
    plain = [Sampling(seed=row, temperature=0.5 + row / 4) for row in range(4)]
    steps = torch.arange(4, device=DEVICE)
    ids, logprobs, _ = draw_kernel.draw_rows_triton(logits, None, Controls(plain, DEVICE, size), steps)
    for neighbour in (Sampling(top_k=3), Sampling(temperature=0.3, raw_logprobs=True)):
        beside = Controls([*plain[:3], replace(neighbour, seed=3)], DEVICE, size)
        again, others, _ = draw_kernel.draw_rows_triton(logits, logits.clone(), beside, steps)
        assert again[:3].tolist() == ids[:3].tolist()
        assert others[:3].tolist() == logprobs[:3].tolist()
