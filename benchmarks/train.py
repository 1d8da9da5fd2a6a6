"""Training speed: our trainer against transformers in its fastest configuration, on the same shapes and tokens.

Ours is the real loop: a source of random tokens, prefetch, guards, metrics; bfloat16 products with float32 master weights. The
peers are in train_peers.py; ratios are against the fastest of those that keep float32 masters too. Cases:

    dense       1.24B, Llama shape: 16 layers, width 2048, 32/8 heads, inner 8192, vocabulary 128,256; 8 rows of 4096
    float8      the same in float8, against our own bfloat16
    small       0.15B, GPT-2 size: 12 layers, width 768, 12 heads, inner 3072, vocabulary 50,304; 32 rows of 1024
    documents   the dense shape on 4 rows of 8192 that hold many documents, against rows of one document
    muon        a step of the dense shape with Muon, against AdamW
    muon-large  the same with four passes a step
    moe         64 experts, 8 active, a shared one, about 1B active: share of the active FLOPs
    cpu         10M with QK-norm on packed documents, on the CPU in float32, against the Trainer of transformers, eager
                against eager and compiled against compiled: same weights, rows and AdamW, in turns in one process, the
                fastest step of each, and how far the loss curves are from that of the eager Trainer

    python benchmarks/train.py [--device cpu|cuda] [--quick] [--cases dense,small] [--peers liger,eager,compile,liger-bf16]

MFU counts 6 · (matrix parameters) + attention FLOPs per token (ingot/model/count.py) against 989 TFLOP/s.
"""

from __future__ import annotations

import argparse
import copy
import json
import statistics
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # to be run as a file

from benchmarks.train_peers import LIKE_FOR_LIKE, PEAK, PEERS, clear, cpu_trainer, train_peers, warm_steps
from ingot.checkpoints.convert import export_model
from ingot.model.config import ModelConfig
from ingot.model.count import count
from ingot.model.transformer import Transformer
from ingot.tokens.batch import Batch
from ingot.train.batches import split_rows
from ingot.train.config import LanguageConfig
from ingot.train.loop import Trainer
from ingot.train.losses.terms import language_terms
from ingot.train.source import Source
from ingot.workspace.progress import Progress
from ingot.workspace.stage import StageFolder

SCALINGS = ("tensor", "row")


def llama(
    width: int, layers: int, heads: int, keys: int, inner: int, vocabulary: int, context: int, **mixer: Any
) -> ModelConfig:
    """A Llama-shaped model."""
    attention = {"heads": heads, "key_value_heads": keys, "head_width": width // heads, "rope": {"base": 500_000.0}}
    block = {"mixer": attention | mixer, "feed_forward": {"width": inner}}
    return ModelConfig.model_validate(
        {
            "vocabulary_size": vocabulary,
            "width": width,
            "blocks": {"layer": block},
            "layers": f"layer*{layers}",
            "context": context,
            "tied_embeddings": True,
        }
    )


def mixture(context: int) -> ModelConfig:
    """64 experts, 8 active, one shared: about 1B active parameters."""
    block = {
        "mixer": {"heads": 16, "key_value_heads": 4, "head_width": 128, "rope": {"base": 500_000.0}},
        "feed_forward": {
            "kind": "moe",
            "experts": 64,
            "active": 8,
            "expert": {"width": 768},
            "shared": {"width": 768},
            "router": {"score": "sigmoid", "selection_bias": True, "renormalise": True},
            "balancers": [{"kind": "bias"}],
        },
    }
    return ModelConfig.model_validate(
        {
            "vocabulary_size": 50_304,
            "width": 2048,
            "blocks": {"layer": block},
            "layers": "layer*16",
            "context": context,
            "tied_embeddings": True,
        }
    )


class RandomTokens(Source):
    """Rows of random tokens, in documents of `lengths` (None: one document a row); the same for every step's number."""

    ahead = True

    def __init__(self, vocabulary: int, rows: int, length: int, micro: int, documents: int | None = None) -> None:
        self.vocabulary, self.rows, self.length, self.micro, self.documents = vocabulary, rows, length, micro, documents

    def batches(self, step: int, rank: int = 0, world: int = 1) -> tuple[Sequence[Batch], dict[str, float]]:
        generator = torch.Generator().manual_seed(step)
        shape = (self.rows, self.length)
        ids = torch.randint(self.vocabulary, (self.rows, self.length + 1), generator=generator)
        begins = torch.zeros(shape, dtype=torch.bool)
        if self.documents is not None:
            begins = torch.rand(shape, generator=generator) < self.documents / self.length
        begins[:, 0] = True
        numbers = begins.long().cumsum(1) - 1
        place = torch.arange(self.length).expand(shape)
        start = torch.where(begins, place, 0).cummax(1).values
        weight = torch.ones(shape)
        weight[:, :-1] = (~begins[:, 1:]).float()
        batch = Batch(ids[:, :-1], ids[:, 1:], place - start, numbers, {"weight": weight})
        return split_rows(batch, self.micro), {}


def train_ours(
    config: ModelConfig, rows: int, length: int, micro: int, steps: int, documents: int | None = None, **options: Any
) -> dict[str, float]:
    """Tokens per second, memory and loss of the real loop."""
    clear()
    device = options.get("device", "cuda")
    with torch.device(device):
        model = Transformer(config)
    fill(model)
    settings = {"steps": steps, "sequence_length": length, "log_every": 1, "checkpoints": {"every": 10**6}}
    training = LanguageConfig.model_validate({**settings, **options})
    source = RandomTokens(config.vocabulary_size or 0, rows, length, micro, documents)
    with tempfile.TemporaryDirectory() as folder:
        stage = StageFolder(Path(folder), seed=0, progress=Progress())
        trainer = Trainer(model, language_terms(model, training), source, training, stage)
        trainer.saver.finish = lambda model: None  # type: ignore[method-assign]  # the disk is not what is measured
        trainer.run()
        lines = stage.metrics.read()
    skip = warm_steps(steps)
    speed = rows * length / statistics.median(line["seconds"] for line in lines[skip:])
    memory = torch.cuda.max_memory_allocated() / 2**30 if device == "cuda" else 0.0
    waits = statistics.mean(line["data_wait_share"] * line["seconds"] for line in lines[skip:])
    flops = count(config).training_flops_per_token(length)
    found = {"tokens_per_second": speed, "mfu": speed * flops / PEAK, "gib": memory, "data_wait": waits}
    if "index_divergence" in lines[-1]:  # of sparse attention
        found["index_divergence"] = lines[-1]["index_divergence"]
    return found | {"first_loss": lines[0]["loss"], "loss": lines[-1]["loss"]}


def fill(model: Transformer) -> None:
    """Random weights, drawn where they are: drawing billions on the host takes longer than the benchmark."""
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(0.0, 0.02) if parameter.dim() > 1 else parameter.fill_(1.0)


DENSE = llama(2048, 16, 32, 8, 8192, 128_256, 4096)
SMALL = llama(768, 12, 12, 12, 3072, 50_304, 1024)


def run_cuda(cases: Sequence[str], peers: Sequence[str], steps: int) -> list[dict[str, Any]]:
    """Every case that was asked for."""
    found: list[dict[str, Any]] = []
    bf16: dict[str, float] | None = None
    if {"dense", "float8", "muon", "documents"} & set(cases):
        bf16 = train_ours(DENSE, 8, 4096, 8, steps)
    if "dense" in cases:
        assert bf16 is not None
        found.append(line("dense 1.24B", bf16, train_peers(DENSE, 8, 4096, steps, peers)))
    if "float8" in cases:
        assert bf16 is not None
        for scaling in SCALINGS:
            ours = train_ours(DENSE, 8, 4096, 8, steps, precision="float8", float8_scaling=scaling)
            found.append(line(f"float8 ({scaling}) against our bfloat16", ours, {"ours in bfloat16": bf16}))
    if "muon" in cases:
        assert bf16 is not None
        ours = train_ours(DENSE, 8, 4096, 8, steps, optimizer={"kind": "muon"})
        found.append(line("Muon against our AdamW", ours, {"our AdamW": bf16}))
    if "muon-large" in cases:
        larger, few = (32, 4096, 8), max(steps // 2, 10)  # the optimizer's work is the same for any number of passes
        ours, plain = (train_ours(DENSE, *larger, few, optimizer={"kind": kind}) for kind in ("muon", "adamw"))
        found.append(line("Muon against our AdamW, 131k tokens a step", ours, {"our AdamW": plain}))
    if "documents" in cases:
        longer = llama(2048, 16, 32, 8, 8192, 128_256, 8192)
        plain = train_ours(longer, 4, 8192, 4, steps)
        packed = train_ours(longer, 4, 8192, 4, steps, 12)
        found.append(line("8k rows, about 12 documents each, against one", packed, {"one document a row": plain}))
    if "small" in cases:
        ours = train_ours(SMALL, 32, 1024, 32, steps)
        found.append(line("small 0.15B", ours, train_peers(SMALL, 32, 1024, steps, peers)))
    if "moe" in cases:
        found.append(line("MoE, 64 experts", train_ours(mixture(4096), 32, 4096, 4, steps), {}))
    return found


# 10M parameters, with QK-norm as the quickstart has it: the shape of Qwen3
SHAPE_CPU = llama(256, 8, 8, 4, 1024, 8192, 256, query_key_norm="head")
DOCUMENTS_CPU = 4  # of a row, on average
RATE = 1e-3


def run_cpu(steps: int, rounds: int, rows: int) -> list[dict[str, Any]]:
    """Ours and the peers in turns; what other programs take from the machine hits all, and the fastest steps count."""
    source = PackedRows(SHAPE_CPU.vocabulary_size or 0, rows, SHAPE_CPU.context, rows, DOCUMENTS_CPU)
    batches = [source.batches(step)[0][0] for step in range(steps)]
    model = Transformer(SHAPE_CPU)
    fill(model)
    seconds: dict[str, float] = dict.fromkeys(("ours", "ours compiled", "eager", "compiled"), float("inf"))
    losses: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        checkpoint = Path(folder) / "peer"
        export_model(model, checkpoint)
        for _ in range(rounds):
            for name in seconds:
                compiled = name.endswith("compiled")
                if name.startswith("ours"):
                    fastest, losses[name] = cpu_ours(copy.deepcopy(model), source, steps, compiled)
                else:
                    fastest, losses[name] = cpu_trainer(checkpoint, batches, RATE, compiled=compiled)
                seconds[name] = min(seconds[name], fastest)
    tokens, found = rows * SHAPE_CPU.context, []
    for ours, peer in (("ours", "eager"), ("ours compiled", "compiled")):
        apart = [abs(one / two - 1) for one, two in zip(losses[ours], losses["eager"], strict=True)]
        row = {
            "case": f"cpu 10M, packed documents, QK-norm, {peer}",
            "ours": round(tokens / seconds[ours]),
            "peer": round(tokens / seconds[peer]),
            "ratio": round(seconds[peer] / seconds[ours], 3),
            "unit": "tokens/s",
            "threads": torch.get_num_threads(),
            "losses": [round(losses[ours][0], 5), round(losses[ours][-1], 5)],
            "losses_apart": max(apart),
        }
        print(row, flush=True)
        found.append(row)
    return found


class PackedRows(RandomTokens):
    """The last position of a row has no weight: transformers predicts a row's tokens from each other."""

    def batches(self, step: int, rank: int = 0, world: int = 1) -> tuple[Sequence[Batch], dict[str, float]]:
        batches, logged = super().batches(step, rank, world)
        for batch in batches:
            batch.streams["weight"][:, -1] = 0
        return batches, logged


def cpu_ours(model: Transformer, source: PackedRows, steps: int, compiled: bool) -> tuple[float, list[float]]:
    """Seconds of the fastest step of our trainer, and its losses."""
    training = LanguageConfig.model_validate(
        {
            "steps": steps,
            "sequence_length": source.length,
            "device": "cpu",
            "precision": "float32",
            "compile": "blocks" if compiled else "off",
            "optimizer": {"lr": RATE, "weight_decay": 0.0, "betas": (0.9, 0.95)},
            "schedule": {"kind": "constant", "warmup": 0},
            "checkpoints": {"every": 10**6},
        }
    )
    with tempfile.TemporaryDirectory() as folder:
        stage = StageFolder(Path(folder), seed=0, progress=Progress())
        trainer = Trainer(model, language_terms(model, training), source, training, stage)
        trainer.saver.finish = lambda model: None  # type: ignore[method-assign]  # the disk is not what is measured
        trainer.run()
        lines = stage.metrics.read()
    return min(line["seconds"] for line in lines[steps // 2 :]), [line["loss"] for line in lines]


def line(case: str, ours: dict[str, float], peers: dict[str, dict[str, float]]) -> dict[str, Any]:
    """One case of the table; the ratio is that to the fastest peer with float32 masters."""
    like = {name: peer for name, peer in peers.items() if name in LIKE_FOR_LIKE or name not in PEERS}
    peer = max(like.values(), key=lambda each: each["tokens_per_second"], default=None)
    row = {
        "case": case,
        "ours": round(ours["tokens_per_second"]),
        "peer": None if peer is None else round(peer["tokens_per_second"]),
        "ratio": None if peer is None else round(ours["tokens_per_second"] / peer["tokens_per_second"], 3),
        "unit": "tokens/s",
        "mfu": round(ours["mfu"], 4),
        "gib": round(ours["gib"], 1),
        "peers": {name: [round(each["tokens_per_second"]), round(each["gib"], 1)] for name, each in peers.items()},
        "data_wait": round(ours["data_wait"], 5),
        "loss": [round(ours["first_loss"], 4), round(ours["loss"], 4)],
    }
    print(row, flush=True)
    return row


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--cases", default="dense,float8,small,documents,muon,moe")
    parser.add_argument("--peers", default=",".join(PEERS))
    parser.add_argument("--steps", type=int, default=24)
    arguments = parser.parse_args()
    if arguments.device == "cpu":
        results = run_cpu(steps=6, rounds=1, rows=2) if arguments.quick else run_cpu(steps=8, rounds=4, rows=4)
    else:
        peers = [name for name in arguments.peers.split(",") if name]
        results = run_cuda(arguments.cases.split(","), peers, 12 if arguments.quick else arguments.steps)
    print(json.dumps({"benchmark": "train", "device": arguments.device, "results": results}))


if __name__ == "__main__":
    main()
