"""Speed, memory and errors of the linear-time mixers: our definition, our kernels, and flash-linear-attention beside them.

    python benchmarks/mixers.py [--kinds gated_delta,kda,lightning,mamba2] [--lengths 4,32,128] [--compiled] [--quick]
        [--alone] [--tuned]
    python benchmarks/mixers.py --tiles [key_gradients,slope_gradients,states,states_few,outputs,value_gradients]
    python benchmarks/mixers.py --models [dense,qwen3-next,kimi-linear,nemotron-h] [--lengths 4,32] [--steps 12]

The first prints errors of values and gradients against the definition in float64 (a small case with packed documents), then
milliseconds and memory of a forward and of a forward and backward pass of the recurrence alone: bfloat16, 16 heads of 128, 8 rows
of 4k tokens, one of 32k and of 128k; then a step of decoding in a captured graph. The peer is flash-linear-attention's public
function; its refusal to go backwards on Hopper with Triton 3.4 to 3.7.0 (its issue 640) is switched off, so its gradients may be
wrong there. The peer tunes itself among all its configurations, which threads compile before they are timed; ours has one of each
kernel (kernels/fla_tuning.py). `--tuned` tunes ours too, and says what was chosen. `--alone` leaves the peer out. `--compiled`
adds the definition under torch.compile at 4k.

The second tries tiles of our kernels, says which are right and how fast they are; what is best becomes the constants at
the top of ingot/kernels/decayed_attention_kernel.py and key_gradients_kernel.py.

The third trains models of about 1B with our trainer (random tokens): the mixers and layer patterns of Qwen3-Next, Kimi Linear and
Nemotron-H with dense feed-forwards, width and vocabulary of the 1.24B of benchmarks/train.py, so that the mixers make
the difference.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor
from torch.nn.functional import normalize

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # to be run as a file

from ingot.kernels import decayed_attention, delta_rule, fla_tuning
from ingot.kernels.chunks import Sequences, cut_documents, cut_equal, cut_rows
from ingot.kernels.launch import has_fla
from ingot.kernels.recurrent_step import step_in_place
from ingot.model.config import ModelConfig
from ingot.model.mixers.lightning import slopes

PEER_MODULES = (*fla_tuning.MODULES, "common.chunk_h", "common.fused_chunk", "simple_gla.chunk")
KINDS = ("gated_delta", "kda", "lightning", "mamba2")
HEADS, WIDTH = 16, 128
ROWS = {4: 8, 32: 1, 128: 1}  # by thousands of tokens
DOCUMENTS = (64, 1, 1, 130, 200, 3, 65, 47)  # lengths of the small case


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


@contextmanager
def as_published() -> Iterator[None]:
    """flash-linear-attention without the check of issue 640, its kernels tuned among all their configurations."""
    from fla.ops.common import chunk_o

    from ingot.kernels import delta_rule_kernel

    given = fla_tuning.all_configurations()
    kernels = fla_tuning.tuned_kernels(PEER_MODULES)
    before = {name: kernel.configs for name, kernel in kernels.items()}
    for name, kernel in kernels.items():
        kernel.configs = given.get(name, kernel.configs)
        kernel.prune_configs = partial(compile_together, kernel)
    unchecked = patch.object(chunk_o, "IS_NVIDIA_HOPPER", False)
    unfixed = patch.object(delta_rule_kernel, "fix_configurations", lambda *_: None)
    try:
        with unchecked, unfixed:
            yield
    finally:
        for name, kernel in kernels.items():
            kernel.configs = before[name]
            del kernel.prune_configs


def tuning(name: str, tuned: bool) -> AbstractContextManager[None]:
    return as_published() if name == "fla" or tuned else nullcontext()


def compile_together(kernel: Any, given: dict[str, Any]) -> list[Any]:
    """The configurations that Triton's tuner is about to time, compiled by threads: alone it would take 2 s for each."""
    from triton.runtime._async_compile import AsyncCompileMode
    from triton.runtime.autotuner import Autotuner

    configs: list[Any] = Autotuner.prune_configs(kernel, given)
    rest = {name: value for name, value in given.items() if name != "warmup"}
    with ThreadPoolExecutor(os.cpu_count()) as threads, AsyncCompileMode(threads, ignore_errors=True):
        for config in configs:  # one that cannot be compiled fails again when it is timed, and is left out there
            kernel.fn.warmup(*kernel.nargs.values(), **rest, **config.all_kwargs())
    return configs


def chosen_configurations() -> dict[str, list[str]]:
    """What the tuners have chosen so far."""
    kernels = fla_tuning.tuned_kernels(fla_tuning.MODULES)
    return {name: sorted({str(each) for each in kernel.cache.values()}) for name, kernel in kernels.items()}


def errors(kind: str, *, alone: bool, tuned: bool) -> dict[str, dict[str, float]]:
    """Relative errors of values and gradients against float64, document by document; the norm of all tokens."""
    case = make_case(kind, 1, sum(DOCUMENTS), DOCUMENTS)
    exact, count = exact_gradients(case), len(wanted(case))
    found: dict[str, dict[str, float]] = {}
    runs = {"kernels": case.kernels} | ({} if alone else {"fla": case.peer})
    for name, run in runs.items():
        with reported(f"{kind} errors, {name}"), tuning(name, tuned):
            found[name] = gradient_errors(case, exact[: count + 1], run)
            print(
                f"{kind:12} {name:10} errors  " + "  ".join(f"{k} {v:.1e}" for k, v in found[name].items()), flush=True
            )
    return found


def distance(found: Tensor, exact: Tensor) -> float:
    return float((found.detach().double() - exact.detach()).norm() / exact.detach().norm())


@contextmanager
def reported(what: str) -> Iterator[None]:
    """A case that fails says so, and the others go on."""
    try:
        yield
    except Exception as error:  # noqa: BLE001
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


def measure(case: Case, run: Callable[[], Tensor]) -> dict[str, float]:
    """Milliseconds forward (without gradients) and forward and backward, and GiB above the inputs."""

    def forward() -> None:
        with torch.no_grad():
            run()

    def both() -> None:
        torch.autograd.grad(run(), wanted(case), case.gradient)

    forward()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    found = {"forward": milliseconds(forward)}
    both()
    torch.cuda.reset_peak_memory_stats()
    found["both"] = milliseconds(both)
    found["gib"] = (torch.cuda.max_memory_allocated() - before) / 2**30
    return found


def compare(kind: str, thousands: int, *, compiled: bool, quick: bool, alone: bool, tuned: bool) -> dict[str, Any]:
    """One line per implementation."""
    rows, length = ROWS[thousands], thousands * 1024
    case = make_case(kind, rows, length)
    runs = {"kernels": case.kernels} | ({} if alone else {"fla": case.peer})
    if thousands <= 32 and not quick:
        runs["definition"] = case.definition
    if compiled and thousands == 4:
        runs["compiled"] = torch.compile(case.definition)
    found: dict[str, dict[str, float]] = {}
    for name, run in runs.items():
        with reported(f"{kind} {thousands}k {name}"), tuning(name, tuned):
            found[name] = measure(case, run)
            ratio = ""
            if name != "kernels" and "kernels" in found:
                times = [found[name][key] / found["kernels"][key] for key in ("forward", "both")]
                ratio = "   kernels are " + " ".join(f"{each:.2f} x" for each in times)
            cells = " ".join(f"{key} {value:8.3f}" for key, value in found[name].items())
            print(f"{kind:12} {rows} x {thousands:3}k  {name:10} {cells}{ratio}", flush=True)
    return {"kind": kind, "rows": rows, "thousands": thousands, **found}


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


NARROW = ((64, 64), (128, 64), (32, 64))
SQUARE = ((64, 64), (32, 64), (64, 32), (32, 32))
WIDE = ((64, 64), (128, 64), (64, 128), (128, 128))
STAGES = {  # the sizes of tiles that are tried
    "key_gradients": NARROW,
    "slope_gradients": NARROW,
    "states": SQUARE,
    "states_few": SQUARE,
    "outputs": WIDE,
    "value_gradients": WIDE,
}
NOISE = 2e-2  # an error above this is no rounding


def stage_run(stage: str) -> Callable[[], object]:
    """The stage alone, on 8 rows of 4k (states_few: one of 32k)."""
    from ingot.kernels import decayed_attention_kernel as kernel
    from ingot.kernels.chunk_kernel import totals
    from ingot.kernels.key_gradients_kernel import run_key_gradients

    kind = "gated_delta" if stage == "slope_gradients" else "mamba2"
    case = make_case(kind, 1, 32_768) if stage == "states_few" else make_case(kind, 8, 4096)
    query, key, value = (x.detach().flatten(0, 1) for x in case.inputs[:3])
    decay = case.inputs[3].detach().flatten(2).flatten(0, 1)
    gradient, at = case.gradient.flatten(0, 1), (case.sequences.starts, case.sequences.chunks)
    summed = totals(decay, *at)

    def states() -> Tensor:
        given = (key, value, summed, None, *at, case.sequences.offsets)
        return kernel.run_states(*given, backwards=False, wants_last=False)[0]

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
    from ingot.kernels import decayed_attention_kernel, key_gradients_kernel
    from ingot.kernels.chunk_kernel import Tile

    kernel = key_gradients_kernel if stage in ("key_gradients", "slope_gradients") else decayed_attention_kernel
    case = make_case("gated_delta" if stage == "slope_gradients" else "mamba2", 1, sum(DOCUMENTS), DOCUMENTS)
    exact, run = exact_gradients(case), stage_run(stage)
    names = {"states_few": ("STATES", "STATES_FEW"), "states": ("STATES", "STATES_FEW")}.get(stage, (stage.upper(),))
    before = {name: getattr(kernel, name) for name in names}
    found: list[dict[str, Any]] = []
    for tile in (Tile(*size, warps, depth) for size in STAGES[stage] for warps in (4, 8) for depth in (2, 3)):
        for name in names:
            setattr(kernel, name, tile)
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


def shape_of(name: str, context: int) -> ModelConfig:
    """About 1B with a published model's mixers; width, vocabulary and feed-forwards as the dense 1.24B of benchmarks/train.py."""
    from benchmarks.train import llama

    if name == "dense":
        return llama(2048, 16, 32, 8, 8192, 128_256, context)
    common = {"vocabulary_size": 128_256, "width": 2048, "context": context, "tied_embeddings": True}
    if name == "qwen3-next":
        linear = {"kind": "gated_delta", "key_heads": 16, "value_heads": 32, "key_width": 128, "value_width": 128}
        full = {
            "heads": 16,
            "key_value_heads": 2,
            "head_width": 256,
            "rope": {"base": 10_000_000.0, "share": 0.25},
            "query_key_norm": "head",
            "gate": {"place": "output", "form": "elementwise", "activation": "sigmoid"},
        }
        blocks = {"linear": {"mixer": linear, "feed_forward": {"width": 5504}}}
        blocks["full"] = {"mixer": full, "feed_forward": {"width": 5504}}
        return ModelConfig.model_validate({**common, "blocks": blocks, "layers": "(linear*3 full)*4"})
    if name == "kimi-linear":
        latent = {
            "query_latent": None,
            "key_value_latent": 512,
            "content_width": 128,
            "rope_width": 64,
            "value_width": 128,
        }
        blocks = {"kda": {"mixer": {"kind": "kda", "heads": 16, "head_width": 128}, "feed_forward": {"width": 7680}}}
        mixer = {"kind": "mla", "heads": 16, "rope": None, **latent}
        blocks["mla"] = {"mixer": mixer, "feed_forward": {"width": 7680}}
        return ModelConfig.model_validate({**common, "blocks": blocks, "layers": "(kda*3 mla)*4"})
    if name == "nemotron-h":
        mamba = {"kind": "mamba2", "heads": 64, "head_width": 64, "state": 128, "groups": 8, "norm": "gate_first"}
        blocks = {
            "mamba": {"mixer": mamba},
            "attention": {"mixer": {"heads": 16, "key_value_heads": 4, "head_width": 128, "rope": None}},
            "ffn": {"feed_forward": {"width": 10_752, "gated": False, "activation": "relu_squared"}},
        }
        layers = "(mamba ffn)*3 mamba attention ffn (mamba ffn)*4 mamba attention ffn (mamba ffn)*2"
        return ModelConfig.model_validate({**common, "blocks": blocks, "layers": layers})
    raise ValueError(f"no shape {name}")


def train_models(names: list[str], lengths: list[int], steps: int) -> list[dict[str, Any]]:
    """Tokens per second of our trainer at 32,768 tokens a step."""
    from benchmarks.train import train_ours
    from ingot.model.count import count

    found = []
    for thousands in lengths:
        length = thousands * 1024
        rows = max(32_768 // length, 1)
        for name in names:
            with reported(f"{name} {thousands}k"):
                config = shape_of(name, length)
                size = count(config).total
                ours = train_ours(config, rows, length, rows, steps)
                row = {"model": name, "parameters": size, "thousands": thousands, **ours}
                found.append(row)
                print(
                    f"{name:12} {size / 1e9:.2f}B {rows} x {thousands}k  {ours['tokens_per_second']:9.0f} tokens/s  "
                    f"MFU {ours['mfu']:.3f}  {ours['gib']:.1f} GiB  loss {ours['first_loss']:.3f} {ours['loss']:.3f}",
                    flush=True,
                )
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description="Linear-time mixers against flash-linear-attention.")
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--lengths", default=None, help="thousands of tokens of a row")
    parser.add_argument("--compiled", action="store_true", help="the definition under torch.compile too, at 4k")
    parser.add_argument("--quick", action="store_true", help="without the definition")
    parser.add_argument("--alone", action="store_true", help="without flash-linear-attention's own functions")
    parser.add_argument("--tuned", action="store_true", help="our calls of its kernels are tuned too")
    parser.add_argument("--tiles", nargs="?", const=",".join(STAGES), default=None)
    parser.add_argument("--models", nargs="?", const="dense,qwen3-next,kimi-linear,nemotron-h", default=None)
    parser.add_argument("--steps", type=int, default=12)
    options = parser.parse_args()
    if not torch.cuda.is_available():
        sys.exit("benchmarks/mixers.py needs a GPU")
    name = torch.cuda.get_device_name()
    print(
        f"{name}, torch {torch.__version__}, flash-linear-attention {'there' if has_fla() else 'NOT installed'}",
        flush=True,
    )
    options.alone |= not has_fla()
    if options.tiles is not None:
        results: Any = []
        for stage in options.tiles.split(","):
            with reported(stage):
                results += try_tiles(stage)
    elif options.models is not None:
        lengths = [int(each) for each in (options.lengths or "4,32").split(",")]
        results = train_models(options.models.split(","), lengths, options.steps)
    else:
        results = []
        for kind in options.kinds.split(","):
            with reported(kind):
                results.append({"kind": kind, "errors": errors(kind, alone=options.alone, tuned=options.tuned)})
            for thousands in (int(each) for each in (options.lengths or "4,32,128").split(",")):
                with reported(f"{kind} {thousands}k"):
                    how = {name: getattr(options, name) for name in ("compiled", "quick", "alone", "tuned")}
                    results.append(compare(kind, thousands, **how))
            for rows in (1, 8, 64):
                with reported(f"{kind} decoding"):
                    results.append(decoding(kind, rows))
    if options.tuned:
        print(json.dumps({"chosen": chosen_configurations()}))
    print(json.dumps({"benchmark": "mixers", "device": name, "results": results}))


if __name__ == "__main__":
    main()
