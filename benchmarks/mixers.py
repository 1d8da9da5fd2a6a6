"""Speed, memory and errors of the linear-time mixers: our definition, our kernels, and flash-linear-attention beside them.

    python benchmarks/mixers.py [--kinds gated_delta,kda,lightning,mamba2] [--lengths 4,32,128] [--compiled] [--quick]
        [--alone] [--tuned] [--profile]
    python benchmarks/mixers.py --tiles …       mixer_tiles.py
    python benchmarks/mixers.py --models …      mixer_models.py

The first prints errors of values and gradients against the definition in float64 (a small case with packed documents), then
milliseconds and memory of a forward and of a forward and backward pass of the recurrence alone: bfloat16, 16 heads of 128, 8 rows
of 4k tokens, one of 32k and of 128k; then a step of decoding in a captured graph. `host` is how long the launches take the host.
The peer is flash-linear-attention's public function; its refusal to go backwards on Hopper with Triton 3.4 to 3.7.0 (its issue
640) is switched off, so its gradients may be wrong there. The peer tunes itself among all its configurations, which are compiled
beforehand (mixer_peer.py); ours has one of each kernel (kernels/linear/fla_tuning.py).

`--quick` leaves out the definition, the peer's errors and decoding: two kinds at two lengths take about two minutes. `--tuned`
tunes our calls too, and says what was chosen. `--alone` leaves the peer out. `--compiled` adds the definition under torch.compile
at 4k. `--profile` says how long each kernel takes. Each line is printed when it is known.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # to be run as a file

from benchmarks.mixer_cases import (
    DOCUMENTS,
    HEADS,
    KINDS,
    WIDTH,
    Case,
    exact_gradients,
    gradient_errors,
    host_milliseconds,
    make_case,
    milliseconds,
    reported,
    wanted,
)
from benchmarks.mixer_models import train_models
from benchmarks.mixer_peer import chosen_configurations, compile_beforehand, only_compiling, tuning
from ingot.kernels.launch import has_fla
from ingot.kernels.linear.recurrent_step import step_in_place

ROWS = {4: 8, 32: 1, 128: 1}  # by thousands of tokens
SHORT = 1024  # tokens of a row are enough to know what is compiled


def runs_of(case: Case, alone: bool) -> dict[str, Callable[[], Tensor]]:
    return {"kernels": case.kernels} | ({} if alone else {"fla": case.peer})


def errors(kind: str, *, alone: bool, tuned: bool) -> dict[str, dict[str, float]]:
    """Relative errors of values and gradients against float64, document by document; the norm of all tokens."""
    case = make_case(kind, 1, sum(DOCUMENTS), DOCUMENTS)
    exact, count = exact_gradients(case), len(wanted(case))
    found: dict[str, dict[str, float]] = {}
    for name, run in runs_of(case, alone).items():
        with reported(f"{kind} errors, {name}"), tuning(name, tuned):
            found[name] = gradient_errors(case, exact[: count + 1], run)
            cells = "  ".join(f"{k} {v:.1e}" for k, v in found[name].items())
            print(f"{kind:12} {name:10} errors  {cells}", flush=True)
    return found


def both_passes(case: Case, run: Callable[[], Tensor]) -> None:
    torch.autograd.grad(run(), wanted(case), case.gradient)


def measure(case: Case, run: Callable[[], Tensor]) -> dict[str, float]:
    """Milliseconds forward (without gradients) and of both passes, of the device and of the host, and GiB above the inputs."""

    def forward() -> None:
        with torch.no_grad():
            run()

    def both() -> None:
        both_passes(case, run)

    forward()
    before = torch.cuda.memory_allocated()
    found = {"forward": milliseconds(forward), "host": host_milliseconds(forward)}
    both()
    torch.cuda.reset_peak_memory_stats()
    found["both"] = milliseconds(both)
    found["gib"] = (torch.cuda.max_memory_allocated() - before) / 2**30
    found["host both"] = host_milliseconds(both)
    return found


def compare(kind: str, thousands: int, options: argparse.Namespace) -> dict[str, Any]:
    """One line per implementation."""
    rows, length = ROWS[thousands], thousands * 1024
    case = make_case(kind, rows, length)
    runs = runs_of(case, options.alone)
    if thousands <= 32 and not options.quick:
        runs["definition"] = case.definition
    if options.compiled and thousands == 4:
        runs["compiled"] = torch.compile(case.definition)
    found: dict[str, dict[str, float]] = {}
    for name, run in runs.items():
        with reported(f"{kind} {thousands}k {name}"), tuning(name, options.tuned):
            found[name] = measure(case, run)
            ratio = ""
            if name != "kernels" and "kernels" in found:
                times = [found[name][key] / found["kernels"][key] for key in ("forward", "both")]
                ratio = "   kernels are " + " ".join(f"{each:.2f} x" for each in times)
            cells = " ".join(f"{key} {value:8.3f}" for key, value in found[name].items())
            print(f"{kind:12} {rows} x {thousands:3}k  {name:10} {cells}{ratio}", flush=True)
            if options.profile:
                profile(case, run)
    return {"kind": kind, "rows": rows, "thousands": thousands, **found}


def profile(case: Case, run: Callable[[], Tensor]) -> None:
    """What the device does in a forward and backward pass: each kernel's milliseconds, and how often it is launched."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as watched:
        for _ in range(3):
            both_passes(case, run)
        torch.cuda.synchronize()
    rows = [(row.self_device_time_total / 3e3, row.count // 3, row.key) for row in watched.key_averages()]
    for took, count, name in sorted(rows, reverse=True)[:16]:
        print(f"    {took:7.3f} ms  {count:2} x  {name[:110]}", flush=True)


def decoding(kind: str, rows: int) -> dict[str, Any]:
    """Microseconds of one token for every row, in a captured graph: the definition on copied states, and the kernel in place."""
    case = make_case(kind, rows, 1)
    inputs = [x.detach().float()[:, 0] for x in case.inputs]
    states = torch.randn(rows + 1, HEADS, inputs[1].shape[-1], WIDTH, device="cuda")
    slots, positions = torch.arange(rows, device="cuda"), torch.ones(rows, dtype=torch.long, device="cuda")

    def definition() -> Tensor:
        before = states[slots].masked_fill((positions == 0).view(-1, 1, 1, 1), 0)
        out, after = case.rule.step(*inputs, before)
        states[slots] = after
        return out

    def kernel() -> Tensor:
        return step_in_place(states, slots, positions, *inputs)

    found = {}
    with torch.inference_mode():
        for name, run in (("definition", definition), ("kernel", kernel)):
            with reported(f"{kind} decoding {name}"):
                stream = torch.cuda.Stream()
                stream.wait_stream(torch.cuda.current_stream())  # the inputs may not be there yet
                with torch.cuda.stream(stream):
                    run()
                    run()
                torch.cuda.synchronize()
                graph = torch.cuda.CUDAGraph()
                with torch.cuda.graph(graph):
                    run()
                found[name] = 1e3 * milliseconds(graph.replay, 0.2)
    print(f"{kind:12} decoding {rows:3} rows  " + "  ".join(f"{k} {v:7.1f} µs" for k, v in found.items()), flush=True)
    return {"kind": kind, "decoding_rows": rows, **found}


def compile_share(kinds: list[str], lengths: list[int], share: str, alone: bool) -> None:
    """What a run with these kinds and lengths launches; launched is nothing."""
    number, count = (int(each) for each in share.split("/"))
    shapes = [(ROWS[thousands], SHORT, None) for thousands in lengths]
    with only_compiling(number, count):
        for kind in kinds:
            for shape in dict.fromkeys([*shapes, (1, sum(DOCUMENTS), DOCUMENTS)]):
                case = make_case(kind, *shape)
                for name, run in runs_of(case, alone or shape[2] is not None).items():
                    with reported(f"{kind} {name}"), tuning(name, False):
                        both_passes(case, run)


def main() -> None:
    parser = argparse.ArgumentParser(description="Linear-time mixers against flash-linear-attention.")
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--lengths", default=None, help="thousands of tokens of a row")
    parser.add_argument("--compiled", action="store_true", help="the definition under torch.compile too, at 4k")
    parser.add_argument("--quick", action="store_true", help="without the definition, the peer's errors and decoding")
    parser.add_argument("--alone", action="store_true", help="without flash-linear-attention's own functions")
    parser.add_argument("--tuned", action="store_true", help="our calls of its kernels are tuned too")
    parser.add_argument("--profile", action="store_true", help="how long each kernel takes")
    parser.add_argument("--tiles", nargs="?", const="all", default=None)
    parser.add_argument("--models", nargs="?", const="dense,qwen3-next,kimi-linear,nemotron-h", default=None)
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--compile", default=None, help="only compile the share i of n (i/n)")
    options = parser.parse_args()
    if not torch.cuda.is_available():
        sys.exit("benchmarks/mixers.py needs a GPU")
    options.alone |= not has_fla()
    kinds, lengths = options.kinds.split(","), [int(each) for each in (options.lengths or "4,32,128").split(",")]
    if options.compile is not None:
        compile_share(kinds, lengths, options.compile, options.alone)
        return
    name = torch.cuda.get_device_name()
    there = "there" if has_fla() else "NOT installed"
    print(f"{name}, torch {torch.__version__}, flash-linear-attention {there}", flush=True)
    results: list[Any] = []
    if options.tiles is not None:
        from benchmarks.mixer_tiles import STAGES, try_tiles

        for stage in STAGES if options.tiles == "all" else options.tiles.split(","):
            with reported(stage):
                results += try_tiles(stage)
    elif options.models is not None:
        lengths = lengths if options.lengths else [4, 32]
        results = train_models(options.models.split(","), lengths, options.steps)
    else:
        given = ["--kinds", options.kinds, "--lengths", ",".join(map(str, lengths))]
        compile_beforehand([*given, *(["--alone"] if options.alone else [])])
        for kind in kinds:
            with reported(kind):
                found = errors(kind, alone=options.alone or options.quick, tuned=options.tuned)
                results.append({"kind": kind, "errors": found})
            for thousands in lengths:
                with reported(f"{kind} {thousands}k"):
                    results.append(compare(kind, thousands, options))
            for rows in () if options.quick else (1, 8, 64):
                with reported(f"{kind} decoding"):
                    results.append(decoding(kind, rows))
    if options.tuned:
        print(json.dumps({"chosen": chosen_configurations()}))
    print(json.dumps({"benchmark": "mixers", "device": name, "results": results}))


if __name__ == "__main__":
    main()
