"""Speed of packed attention: every backend of Ingot against transformers' own functions, forward and backward.

A pass is four layers that share one batch and one mask, so that what is made once per pass counts as it does in training.
The peer is transformers' sdpa_attention_forward with its dense T×T mask (for one document per row: without a mask), and
where its models with softcap or sinks have no such path, their eager_attention_forward.

    python benchmarks/attention.py [--device cpu|cuda] [--quick] [--threads N]

Short conversations in the rows of a small model, as SFT packs them:

    python benchmarks/attention.py --device cuda --shape rows=32,length=1024,heads=9,key_heads=3,width=64 --documents 2,6,27
"""

from __future__ import annotations

import argparse
import json
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, get_args

import torch
from torch import Tensor

from ingot.kernels.allow_list import understands
from ingot.kernels.attention.attention_options import AttentionOptions
from ingot.model.context import Context
from ingot.model.mixers.attend import OPTIONS, Backend, attend, choose_backend, use_backend
from ingot.model.mixers.attend_varlen import varlen_allowed
from ingot.model.mixers.mask import Mask
from ingot.tokens.batch import BatchMetadata
from ingot.tokens.metadata import document_starts

LAYERS = 4
SHAPES = {
    "cpu": {"rows": 2, "length": 2048, "heads": 8, "key_heads": 4, "width": 64},
    "cuda": {"rows": 2, "length": 8192, "heads": 32, "key_heads": 8, "width": 128},
}
QUICK = {"cpu": {"rows": 1, "length": 512}, "cuda": {"length": 4096}}


@dataclass
class Case:
    """What a batch looks like; windows and chunks are parts of the row's length."""

    name: str
    documents: int = 1
    window: int | None = None
    chunk: int | None = None
    softcap: float | None = None
    sinks: bool = False


def cases(length: int) -> list[Case]:
    return [
        Case("one document"),
        Case("4 documents", documents=4),
        Case("16 documents", documents=16),
        Case("64 documents", documents=64),
        Case("window 1/16", window=length // 16),
        Case("16 documents, window 1/32", documents=16, window=length // 32),
        Case("chunk 1/4", chunk=length // 4),
        Case("softcap", softcap=50.0),
        Case("softcap, 16 documents", documents=16, softcap=50.0),
        Case("sinks, window 1/16", window=length // 16, sinks=True),
        Case("sinks, 16 documents", documents=16, sinks=True),
    ]


@dataclass
class Batch:
    """Inputs of a case, on the device."""

    inputs: list[Tensor]
    gradient: Tensor  # of the heads' outputs, as the output projection gives it: [rows, length, heads · width]
    sinks: Tensor | None
    positions: Tensor
    documents: Tensor | None
    metadata: BatchMetadata | None  # found on the host before the pass, as in training

    def context(self) -> Context:
        return Context(self.positions, self.documents, metadata=self.metadata)


def make_batch(case: Case, shape: dict[str, int], device: str, dtype: torch.dtype) -> Batch:
    """Random documents whose lengths are drawn once per case."""
    rows, length = shape["rows"], shape["length"]
    rng = random.Random(0)
    cuts = torch.tensor([sorted(rng.sample(range(1, length), case.documents - 1)) for _ in range(rows)])
    index = torch.arange(length).expand(rows, length).contiguous()
    documents = torch.searchsorted(cuts, index, right=True) if case.documents > 1 else None
    metadata = None
    if documents is not None:
        starts, longest = document_starts(documents)
        metadata = BatchMetadata(starts.to(device), longest, whole=False, scored=None)
    generator = torch.Generator().manual_seed(0)
    heads = (shape["heads"], shape["key_heads"], shape["key_heads"])
    return Batch(
        [
            torch.randn(rows, length, count, shape["width"], generator=generator)
            .to(device, dtype)
            .transpose(1, 2)
            .requires_grad_()
            for count in heads
        ],
        torch.randn(rows, length, shape["heads"] * shape["width"], generator=generator).to(device, dtype),
        torch.zeros(shape["heads"], device=device, dtype=dtype, requires_grad=True) if case.sinks else None,
        index.to(device),
        None if documents is None else documents.to(device),
        metadata,
    )


def options_of(case: Case, batch: Batch, scale: float) -> AttentionOptions:
    return AttentionOptions(scale, case.window, case.chunk, case.softcap, batch.sinks)


def our_pass(case: Case, batch: Batch, scale: float, backend: Backend | None) -> Callable[[], None]:
    def layer(context: Context) -> None:
        query, key, value = batch.inputs
        mixed = attend(
            query,
            key,
            value,
            context,
            options_of(case, batch, scale),
        )
        mixed.transpose(1, 2).flatten(2).backward(batch.gradient)

    def run() -> None:
        context = batch.context()
        for _ in range(LAYERS):
            if backend is None:
                layer(context)
            else:
                with use_backend(backend):
                    layer(context)

    return run


def peer_pass(case: Case, batch: Batch, scale: float) -> Callable[[], None]:
    """transformers: a dense mask once per pass, then its function in every layer."""
    from transformers.integrations.sdpa_attention import sdpa_attention_forward
    from transformers.models.gemma2.modeling_gemma2 import eager_attention_forward as softcapped
    from transformers.models.gpt_oss.modeling_gpt_oss import eager_attention_forward as sunken

    query, key, value = batch.inputs
    groups = query.shape[1] // key.shape[1]
    module: Any = SimpleNamespace(num_key_value_groups=groups, is_causal=True, training=False, sinks=batch.sinks)
    masked = case.documents > 1 or case.window is not None or case.chunk is not None

    def layer(visible: Tensor | None, added: Tensor | None) -> Tensor:
        if case.softcap is not None:
            return softcapped(module, query, key, value, added, scaling=scale, softcap=case.softcap)[0]
        if case.sinks:
            return sunken(module, query, key, value, added, scaling=scale)[0]
        return sdpa_attention_forward(module, query, key, value, visible, scaling=scale)[0]

    def run() -> None:
        eager = case.softcap is not None or case.sinks
        dense = Mask(case.window, case.chunk).dense(batch.context()) if masked or eager else None
        added = None
        if eager and dense is not None:
            lowest = torch.finfo(query.dtype).min
            added = torch.zeros(dense.shape, dtype=query.dtype, device=dense.device).masked_fill(~dense, lowest)
        for _ in range(LAYERS):
            layer(dense, added).flatten(2).backward(batch.gradient)

    return run


def backends(case: Case, batch: Batch, device: str) -> list[Backend]:
    """Those that can do the case on the device."""
    fits = {
        "plain": device == "cpu",
        "blocks": True,
        "sdpa": True,
        "varlen": varlen_allowed(batch.inputs[0], batch.inputs[2]),
        "flex": device == "cuda",
        "ring": False,  # needs several ranks
    }
    options = options_of(case, batch, 1.0)
    return [name for name in get_args(Backend) if fits[name] and understands(options, OPTIONS[name])]


def best_seconds(functions: list[Callable[[], None]], repeats: int, device: str) -> list[float]:
    """The best time of each; they take turns, so that a busy machine is busy for all."""
    best = [float("inf")] * len(functions)
    for _ in range(repeats + 1):  # the first round warms up
        for index, function in enumerate(functions):
            start = time.perf_counter()
            function()
            if device == "cuda":
                torch.cuda.synchronize()
            best[index] = min(best[index], time.perf_counter() - start)
    return best


def main() -> None:
    parser = argparse.ArgumentParser(description="Packed attention against transformers.")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--quick", action="store_true", help="shorter rows and fewer repeats: within a minute")
    parser.add_argument("--threads", type=int, default=None, help="CPU threads (default: torch's choice)")
    parser.add_argument("--shape", default="", help="numbers that differ from the usual: rows=32,length=1024,heads=9")
    parser.add_argument("--documents", help="only rows of so many documents: 2,6,27")
    options = parser.parse_args()
    if options.threads:
        torch.set_num_threads(options.threads)
    shape = {**SHAPES[options.device], **(QUICK[options.device] if options.quick else {})}
    shape |= {name: int(value) for name, value in (one.split("=") for one in options.shape.split(",") if one)}
    packed = [Case(f"{count} documents", int(count)) for count in (options.documents or "").split(",") if count]
    dtype = torch.float32 if options.device == "cpu" else torch.bfloat16
    scale, tokens = shape["width"] ** -0.5, shape["rows"] * shape["length"]
    print(
        f"{shape}, {dtype}, {options.device}, {LAYERS} layers a pass, forward and backward; thousand tokens per second"
    )
    columns = [*get_args(Backend), "transformers"]
    print(f"{'case':28}" + "".join(f"{name:>13}" for name in columns) + "   automatic     ratio")
    results = []
    for case in packed or cases(shape["length"]):
        batch = make_batch(case, shape, options.device, dtype)
        mask = Mask.within(shape["length"], case.window, case.chunk)
        attention = options_of(case, batch, scale)
        chosen = choose_backend(batch.inputs[0], batch.inputs[2], batch.context(), mask, attention)
        able = backends(case, batch, options.device)
        runs = [*(our_pass(case, batch, scale, name) for name in able), peer_pass(case, batch, scale)]
        seconds = best_seconds(runs, 1 if options.quick else 5, options.device)
        speed = {name: tokens / value for name, value in zip([*able, "transformers"], seconds, strict=True)}
        ratio = speed[chosen] / speed["transformers"]
        results.append(
            {
                "case": case.name,
                "ours": round(speed[chosen], 1),
                "peer": round(speed["transformers"], 1),
                "ratio": round(ratio, 2),
                "unit": "tokens/s",
            }
        )
        cells = "".join(f"{speed[name] / 1e3:13.1f}" if name in speed else f"{'':13}" for name in columns)
        print(f"{case.name:28}{cells}   {chosen:10} {ratio:8.2f}", flush=True)
    print(json.dumps({"benchmark": "attention", "device": options.device, "results": results}))


if __name__ == "__main__":
    main()
