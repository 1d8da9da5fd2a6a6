"""Training speed: our trainer against transformers with torch.compile, fused AdamW and SDPA, on the same shapes and tokens.

Ours is the real loop: a source of random tokens, prefetch, guards, metrics; bfloat16 products with float32 masters. The peer has
bfloat16 weights throughout. Cases:

    dense       1.24B, Llama shape: 16 layers, width 2048, 32/8 heads, inner 8192, vocabulary 128,256; 8 rows of 4096
    float8      the same in float8, against our own bfloat16
    small       0.15B, GPT-2 size: 12 layers, width 768, 12 heads, inner 3072, vocabulary 50,304; 32 rows of 1024
    small-long  0.12B: the same with inner 2048; 16 rows of 2048
    documents   the dense shape on 4 rows of 8192 that hold many documents, against rows of one document
    muon        a step of the dense shape with Muon, against AdamW
    muon-large  the same with four passes a step
    moe         64 experts, 8 active, a shared one, about 1B active: share of the active FLOPs
    cpu         10M on the CPU in float32, nothing compiled, against the Trainer of transformers: same weights, rows and AdamW,
                in turns in one process, the fastest step of each; also how far the two loss curves are apart

    python benchmarks/train.py [--device cpu|cuda] [--quick] [--cases dense,small]

MFU counts 6 · (matrix parameters) + attention FLOPs per token (ingot/model/count.py) against 989 TFLOP/s.
"""

from __future__ import annotations

import argparse
import copy
import gc
import itertools
import json
import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from ingot.checkpoints.convert import export_model
from ingot.model.config import ModelConfig
from ingot.model.count import count
from ingot.model.transformer import Transformer
from ingot.tokens.batch import Batch
from ingot.train.batches import split_rows
from ingot.train.config import LanguageConfig
from ingot.train.language import language_terms
from ingot.train.loop import Trainer
from ingot.train.source import Source
from ingot.workspace.progress import Progress
from ingot.workspace.stage import StageFolder

PEAK = 989e12
SCALINGS = ("tensor", "row")


def llama(width: int, layers: int, heads: int, keys: int, inner: int, vocabulary: int, context: int) -> ModelConfig:
    """A Llama-shaped model."""
    block = {
        "mixer": {"heads": heads, "key_value_heads": keys, "head_width": width // heads, "rope": {"base": 500_000.0}},
        "feed_forward": {"width": inner},
    }
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
    _clear()
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
    skip = min(8, steps // 2)
    speed = rows * length / statistics.median(line["seconds"] for line in lines[skip:])
    memory = torch.cuda.max_memory_allocated() / 2**30 if device == "cuda" else 0.0
    waits = statistics.mean(line["data_wait_share"] * line["seconds"] for line in lines[skip:])
    flops = count(config).training_flops_per_token(length)
    found = {"tokens_per_second": speed, "mfu": speed * flops / PEAK, "gib": memory, "data_wait": waits}
    return found | {"first_loss": lines[0]["loss"], "loss": lines[-1]["loss"]}


def fill(model: Transformer) -> None:
    """Random weights, drawn where they are: drawing billions on the host takes longer than the benchmark."""
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(0.0, 0.02) if parameter.dim() > 1 else parameter.fill_(1.0)


def train_peer(config: ModelConfig, rows: int, length: int, steps: int) -> dict[str, float]:
    """The same with transformers' Llama: bfloat16 weights, torch.compile, SDPA, fused AdamW."""
    from transformers import LlamaConfig, LlamaForCausalLM

    _clear()
    block = config.block(0)
    mixer: Any = block.mixer
    feed_forward: Any = block.feed_forward
    shape = LlamaConfig(
        vocab_size=config.vocabulary_size,
        hidden_size=config.width,
        intermediate_size=feed_forward.width,
        num_hidden_layers=config.depth,
        num_attention_heads=mixer.heads,
        num_key_value_heads=mixer.key_value_heads,
        max_position_embeddings=length,
        rope_theta=500_000.0,
        tie_word_embeddings=config.tied_embeddings,
        attn_implementation="sdpa",
    )
    with torch.device("cuda"):
        model = LlamaForCausalLM(shape).to(torch.bfloat16)
    run = torch.compile(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, betas=(0.9, 0.95), fused=True)
    times = []
    loss = torch.zeros(())
    for step in range(steps):
        ids = torch.randint(shape.vocab_size, (rows, length), generator=torch.Generator().manual_seed(step)).cuda()
        torch.cuda.synchronize()
        began = time.perf_counter()
        loss = run(input_ids=ids, labels=ids, use_cache=False).loss  # type: ignore[no-untyped-call]
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        torch.cuda.synchronize()
        times.append(time.perf_counter() - began)
    speed = rows * length / statistics.median(times[min(8, steps // 2) :])
    flops = count(config).training_flops_per_token(length)
    memory = torch.cuda.max_memory_allocated() / 2**30
    return {"tokens_per_second": speed, "mfu": speed * flops / PEAK, "gib": memory, "loss": float(loss)}


def _clear() -> None:
    gc.collect()
    torch._dynamo.reset()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()


DENSE = llama(2048, 16, 32, 8, 8192, 128_256, 4096)
SMALL = llama(768, 12, 12, 12, 3072, 50_304, 1024)
SMALL_LONG = llama(768, 12, 12, 12, 2048, 50_304, 2048)


def run_cuda(cases: Sequence[str], steps: int) -> list[dict[str, Any]]:
    """Every case that was asked for."""
    found: list[dict[str, Any]] = []
    bf16: dict[str, float] | None = None
    if {"dense", "float8", "muon", "documents"} & set(cases):
        bf16 = train_ours(DENSE, 8, 4096, 8, steps)
    if "dense" in cases:
        assert bf16 is not None
        found.append(line("dense 1.24B", bf16, train_peer(DENSE, 8, 4096, steps)))
    if "float8" in cases:
        assert bf16 is not None
        for scaling in SCALINGS:
            ours = train_ours(DENSE, 8, 4096, 8, steps, precision="float8", float8_scaling=scaling)
            found.append(line(f"float8 ({scaling}) against our bfloat16", ours, bf16))
    if "muon" in cases:
        assert bf16 is not None
        ours = train_ours(DENSE, 8, 4096, 8, steps, optimizer={"kind": "muon"})
        found.append(line("Muon against our AdamW", ours, bf16))
    if "muon-large" in cases:
        larger, few = (32, 4096, 8), max(steps // 2, 10)  # the optimizer's work is the same for any number of passes
        ours, plain = (train_ours(DENSE, *larger, few, optimizer={"kind": kind}) for kind in ("muon", "adamw"))
        found.append(line("Muon against our AdamW, 131k tokens a step", ours, plain))
    if "documents" in cases:
        longer = llama(2048, 16, 32, 8, 8192, 128_256, 8192)
        plain = train_ours(longer, 4, 8192, 4, steps)
        found.append(
            line("8k rows, about 12 documents each, against one", train_ours(longer, 4, 8192, 4, steps, 12), plain)
        )
    if "small" in cases:
        found.append(line("small 0.15B", train_ours(SMALL, 32, 1024, 32, steps), train_peer(SMALL, 32, 1024, steps)))
    if "small-long" in cases:
        ours, peer = train_ours(SMALL_LONG, 16, 2048, 16, steps), train_peer(SMALL_LONG, 16, 2048, steps)
        found.append(line("small 0.12B, longer rows", ours, peer))
    if "moe" in cases:
        found.append(line("MoE, 64 experts", train_ours(mixture(4096), 32, 4096, 4, steps), None))
    return found


SHAPE_CPU = llama(256, 8, 8, 4, 1024, 8192, 256)  # 10M parameters
RATE = 1e-3


def run_cpu(steps: int, rounds: int, rows: int) -> list[dict[str, Any]]:
    """Ours and the peer in turns; what other programs take from the machine hits both, and the fastest steps count."""
    length = SHAPE_CPU.context
    model = Transformer(SHAPE_CPU)
    fill(model)
    ours, peer = list[float](), list[float]()
    losses, theirs = list[float](), list[float]()
    with tempfile.TemporaryDirectory() as folder:
        export_model(model, Path(folder) / "peer")
        for _ in range(rounds):
            seconds, losses = cpu_ours(copy.deepcopy(model), rows, length, steps)
            ours.append(seconds)
            seconds, theirs = cpu_peer(Path(folder) / "peer", rows, length, steps)
            peer.append(seconds)
    ratios = [round(other / one, 3) for one, other in zip(ours, peer, strict=True)]
    row = {
        "case": "cpu 10M",
        "ours": round(rows * length / min(ours)),
        "peer": round(rows * length / min(peer)),
        "ratio": round(min(peer) / min(ours), 3),
        "ratio_by_round": ratios,
        "unit": "tokens/s",
        "threads": torch.get_num_threads(),
        "losses": [round(losses[0], 5), round(losses[-1], 5)],
        "losses_apart": max(abs(one / other - 1) for one, other in zip(losses, theirs, strict=True)),
    }
    print(row, flush=True)
    return [row]


class ShiftedRows(RandomTokens):
    """The last position of a row has no weight: transformers predicts a row's tokens from each other."""

    def batches(self, step: int, rank: int = 0, world: int = 1) -> tuple[Sequence[Batch], dict[str, float]]:
        batches, logged = super().batches(step, rank, world)
        for batch in batches:
            batch.streams["weight"][:, -1] = 0
        return batches, logged


def cpu_ours(model: Transformer, rows: int, length: int, steps: int) -> tuple[float, list[float]]:
    """Seconds of the fastest step of our trainer, and its losses."""
    training = LanguageConfig.model_validate(
        {
            "steps": steps,
            "sequence_length": length,
            "device": "cpu",
            "precision": "float32",
            "optimizer": {"lr": RATE, "weight_decay": 0.0, "betas": (0.9, 0.95)},
            "schedule": {"kind": "constant", "warmup": 0},
            "checkpoints": {"every": 10**6},
        }
    )
    source = ShiftedRows(model.config.vocabulary_size or 0, rows, length, rows)
    with tempfile.TemporaryDirectory() as folder:
        stage = StageFolder(Path(folder), seed=0, progress=Progress())
        trainer = Trainer(model, language_terms(model, training), source, training, stage)
        trainer.saver.finish = lambda model: None  # type: ignore[method-assign]  # the disk is not what is measured
        trainer.run()
        lines = stage.metrics.read()
    return min(line["seconds"] for line in lines[1:]), [line["loss"] for line in lines]


def cpu_peer(checkpoint: Path, rows: int, length: int, steps: int) -> tuple[float, list[float]]:
    """The same with transformers' own Trainer; a step is from the end of the one before to its own end."""
    import transformers

    source = ShiftedRows(SHAPE_CPU.vocabulary_size or 0, rows, length, rows)
    listed = [row for step in range(steps) for row in source.batches(step)[0][0].tokens]
    ends: list[float] = []

    class Clock(transformers.TrainerCallback):  # type: ignore[misc]
        def on_step_end(self, *_: Any, **__: Any) -> None:
            ends.append(time.perf_counter())

    class InOrder(transformers.Trainer):  # type: ignore[misc]
        def _get_train_sampler(self, *_: Any) -> Any:
            return torch.utils.data.SequentialSampler(listed)

    with tempfile.TemporaryDirectory() as folder:
        arguments = transformers.TrainingArguments(
            output_dir=folder,
            max_steps=steps,
            per_device_train_batch_size=rows,
            learning_rate=RATE,
            lr_scheduler_type="constant",
            warmup_steps=0,
            weight_decay=0.0,
            adam_beta2=0.95,
            max_grad_norm=1.0,
            optim="adamw_torch_fused",
            use_cpu=True,
            report_to=[],
            save_strategy="no",
            logging_steps=1,
            disable_tqdm=True,
        )
        model = transformers.LlamaForCausalLM.from_pretrained(
            checkpoint, dtype=torch.float32, attn_implementation="sdpa", use_cache=False
        )
        data: Any = [{"input_ids": row, "labels": row} for row in listed]
        trainer = InOrder(model=model, args=arguments, train_dataset=data, callbacks=[Clock()])
        trainer.remove_callback(transformers.PrinterCallback)
        trainer.train()
    times = [after - before for before, after in itertools.pairwise(ends)]
    return min(times), [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]


def line(case: str, ours: dict[str, float], peer: dict[str, float] | None) -> dict[str, Any]:
    """One case of the table."""
    ratio = None if peer is None else ours["tokens_per_second"] / peer["tokens_per_second"]
    row = {
        "case": case,
        "ours": round(ours["tokens_per_second"]),
        "peer": None if peer is None else round(peer["tokens_per_second"]),
        "ratio": None if ratio is None else round(ratio, 3),
        "unit": "tokens/s",
        "mfu": round(ours["mfu"], 4),
        "gib": round(ours["gib"], 1),
        "peer_gib": None if peer is None else round(peer["gib"], 1),
        "data_wait": round(ours["data_wait"], 5),
        "loss": [round(ours["first_loss"], 4), round(ours["loss"], 4)],
    }
    print(row, flush=True)
    return row


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--cases", default="dense,float8,small,small-long,documents,muon,moe")
    parser.add_argument("--steps", type=int, default=24)
    arguments = parser.parse_args()
    if arguments.device == "cpu":
        results = run_cpu(steps=4, rounds=3, rows=2) if arguments.quick else run_cpu(steps=8, rounds=6, rows=4)
    else:
        results = run_cuda(arguments.cases.split(","), 12 if arguments.quick else arguments.steps)
    print(json.dumps({"benchmark": "train", "device": arguments.device, "results": results}))


if __name__ == "__main__":
    main()
