"""Tries tiles of our kernels of linear attention: which are right, and how fast they are.

    python benchmarks/mixers.py --tiles [slope_gradients,key_gradients,states,states_few,parts,outputs,value_gradients]

What is best becomes the constants at the top of ingot/kernels/linear/decayed_attention_kernel.py, states_kernel.py and
key_gradients_kernel.py.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from benchmarks.mixer_cases import (
    DOCUMENTS,
    exact_gradients,
    gradient_errors,
    make_case,
    milliseconds,
    reported,
    wanted,
)
from benchmarks.mixer_peer import compile_by_threads
from ingot.kernels.linear.chunk_kernel import Tile
from ingot.kernels.linear.key_gradients_kernel import GradientTile

SQUARE = ((64, 64), (32, 64), (64, 32), (32, 32))
WIDE = ((64, 64), (128, 64), (64, 128), (128, 128))


def tiles(sizes: tuple[tuple[int, int], ...]) -> list[Tile]:
    return [Tile(*size, warps, depth) for size in sizes for warps in (4, 8) for depth in (2, 3)]


GRADIENTS = [  # one head a program spills nothing; with more, sums over a group stay in registers, and some of them are spilled
    GradientTile(64, 1, warps=4, stages=1),
    GradientTile(32, 1, warps=4, stages=1),
    GradientTile(128, 1, warps=8, stages=1),
    GradientTile(32, 8, warps=4, stages=2),
    GradientTile(64, 8, warps=4, stages=2),
]
STAGES: dict[str, list[Any]] = {
    "slope_gradients": GRADIENTS,
    "key_gradients": GRADIENTS,
    "states": tiles(SQUARE),
    "states_few": tiles(SQUARE),
    "parts": tiles(SQUARE),
    "outputs": tiles(WIDE),
    "value_gradients": tiles(WIDE),
}
ROW = {"states_few": 8192, "parts": 131_072}  # one row of as many tokens; else 8 of 4k
NOISE = 2e-2  # an error above this is no rounding


def stage_run(stage: str) -> Callable[[], object]:
    """The stage alone."""
    from ingot.kernels.linear import decayed_attention_kernel as kernel
    from ingot.kernels.linear.chunk_kernel import totals
    from ingot.kernels.linear.key_gradients_kernel import run_key_gradients
    from ingot.kernels.linear.states_kernel import run_states

    kind = "gated_delta" if stage == "slope_gradients" else "mamba2"
    case = make_case(kind, 1, ROW[stage]) if stage in ROW else make_case(kind, 8, 4096)
    query, key, value = (x.detach().flatten(0, 1) for x in case.inputs[:3])
    decay = case.inputs[3].detach().flatten(2).flatten(0, 1)
    gradient, at = case.gradient.flatten(0, 1), (case.sequences.starts, case.sequences.chunks)
    summed = totals(decay, *at)

    def states() -> Tensor:
        given = (key, value, summed, None, *at, case.sequences.offsets)
        return run_states(*given, backwards=False, wants_last=False)[0]

    made = states()
    if stage == "outputs":
        return lambda: kernel.run_outputs(query, key, value, summed, made, *at)
    if stage == "value_gradients":
        return lambda: kernel.run_value_gradients(query, key, gradient, summed, made, *at)
    if stage in ("key_gradients", "slope_gradients"):
        error = gradient if stage == "slope_gradients" else None
        given = (query, key, value, gradient, summed, made, made, *at)
        return lambda: run_key_gradients(*given, error_gradient_THV=error)
    return states


def try_tiles(stage: str) -> list[dict[str, Any]]:
    """Every tile of a kernel: the largest error of a whole pass against float64, and milliseconds of the stage."""
    from ingot.kernels.linear import decayed_attention_kernel, key_gradients_kernel, states_kernel

    kernel = key_gradients_kernel if stage in ("key_gradients", "slope_gradients") else decayed_attention_kernel
    kernel = states_kernel if stage in ("states", "states_few", "parts") else kernel
    case = make_case("gated_delta" if stage == "slope_gradients" else "mamba2", 1, sum(DOCUMENTS), DOCUMENTS)
    exact, run = exact_gradients(case), stage_run(stage)
    several = dict.fromkeys(("states", "states_few"), ("STATES", "STATES_FEW"))
    several["key_gradients"] = ("GROUP_GRADIENTS", "KEY_GRADIENTS")
    names = several.get(stage, (stage.upper(),))
    before = {name: getattr(kernel, name) for name in names}
    candidates = list(dict.fromkeys([*before.values(), *STAGES[stage]]))

    def use(tile: Any) -> None:
        for name in names:
            setattr(kernel, name, tile)

    def whole_pass() -> None:
        torch.autograd.grad(case.kernels(), wanted(case), case.gradient)

    with torch.autograd.set_multithreading_enabled(False):  # what a thread compiles is known to that thread
        compile_by_threads([each for tile in candidates for each in (partial(use, tile), whole_pass, run)])
    found: list[dict[str, Any]] = []
    for tile in candidates:
        use(tile)
        with reported(f"{stage} {tile}"):
            wrong = gradient_errors(case, exact)
            worst, took = max(wrong.values()), milliseconds(run, 0.2)
            verdict = "right" if worst < NOISE else f"WRONG {wrong}"
            print(f"{stage:16} {tile}  {took:7.3f} ms  worst {worst:.1e} {verdict}", flush=True)
            found.append({"stage": stage, "tile": repr(tile), "ms": took, "worst": worst, "errors": wrong})
    for name, value in before.items():
        setattr(kernel, name, value)
    right = [row for row in found if row["worst"] < NOISE]
    if right:
        best = min(right, key=lambda row: float(row["ms"]))
        print(f"best: {stage.upper()} = {best['tile']}  {best['ms']:.3f} ms", flush=True)
    return found
