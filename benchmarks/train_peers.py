"""The peers of benchmarks/train.py: transformers on the same shapes, in every configuration that people use.

    liger        Liger's Triton kernels (norm, rotation, SwiGLU, head with loss), eager; float32 weights, bfloat16 autocast
    eager        the same without Liger
    compile      the same through torch.compile
    liger-bf16   Liger with weights in bfloat16 only: half the bytes of weights and gradients, but small updates are lost

The first three keep float32 master weights as our trainer does: the fastest of them is the peer that ratios are taken against.
All have SDPA attention and torch's fused AdamW. Steps before the clock starts compile and warm up, as many as ours.
"""

from __future__ import annotations

import gc
import importlib
import itertools
import statistics
import tempfile
import time
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch

from ingot.model.config import ModelConfig
from ingot.model.count import count
from ingot.tokens.batch import Batch

LIKE_FOR_LIKE = ("liger", "eager", "compile")  # float32 master weights
PEERS = (*LIKE_FOR_LIKE, "liger-bf16")
PEAK = 989e12  # FLOP/s of an H100 or H200 in bfloat16, dense


def clear() -> None:
    """Give memory back and forget compiled code, so that no case measures the one before."""
    gc.collect()
    torch._dynamo.reset()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()


def warm_steps(steps: int) -> int:
    """How many steps are not measured: ours and the peers' alike."""
    return min(8, steps // 2)


def train_peers(
    config: ModelConfig, rows: int, length: int, steps: int, names: Sequence[str]
) -> dict[str, dict[str, float]]:
    """Tokens per second, MFU and memory of each peer that fits into the device's memory."""
    found = {}
    for name in names:
        try:
            found[name] = train_peer(name, config, rows, length, steps)
        except torch.OutOfMemoryError:
            print(f"{name}: out of memory", flush=True)
    return found


def train_peer(name: str, config: ModelConfig, rows: int, length: int, steps: int) -> dict[str, float]:
    """One peer on random tokens."""
    clear()
    model = make_llama(config, length, torch.bfloat16 if name.endswith("bf16") else torch.float32)
    if name.startswith("liger"):
        apply_liger(model)
    run = torch.compile(model) if name == "compile" else model
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, betas=(0.9, 0.95), fused=True)
    seconds, loss = [], torch.zeros(())
    for step in range(steps):
        generator = torch.Generator().manual_seed(step)
        ids = torch.randint(model.config.vocab_size, (rows, length), generator=generator).cuda()
        torch.cuda.synchronize()
        began = time.perf_counter()
        with nullcontext() if name.endswith("bf16") else torch.autocast("cuda", torch.bfloat16):
            loss = run(input_ids=ids, labels=ids, use_cache=False).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        torch.cuda.synchronize()
        seconds.append(time.perf_counter() - began)
    speed = rows * length / statistics.median(seconds[warm_steps(steps) :])
    flops = count(config).training_flops_per_token(length)
    memory = torch.cuda.max_memory_allocated() / 2**30
    return {"tokens_per_second": speed, "mfu": speed * flops / PEAK, "gib": memory, "loss": float(loss)}


def make_llama(config: ModelConfig, length: int, dtype: torch.dtype) -> Any:
    """transformers' Llama of our shape, on the GPU; loaded anew, because Liger changes the module for all that come after."""
    from transformers import LlamaConfig
    from transformers.models.llama import modeling_llama

    modeling = importlib.reload(modeling_llama)
    mixer: Any = config.block(0).mixer
    feed_forward: Any = config.block(0).feed_forward
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
        return modeling.LlamaForCausalLM(shape).to(dtype)


def apply_liger(model: Any) -> None:
    """Put Liger's kernels into the model."""
    try:
        from liger_kernel.transformers import apply_liger_kernel_to_llama
    except ImportError:
        raise SystemExit("the fastest peer needs Liger's kernels: pip install --no-deps liger-kernel") from None
    apply_liger_kernel_to_llama(model=model)


def cpu_trainer(
    checkpoint: Path, batches: Sequence[Batch], rate: float, *, compiled: bool
) -> tuple[float, list[float]]:
    """transformers' own Trainer on the CPU, on these batches of packed rows: seconds of its fastest step, and its losses.

    Positions that begin again tell transformers where documents begin; labels hide each document's first token.
    A step is from the end of the one before to its own end.
    """
    import transformers

    rows = [row for batch in batches for row in _rows(batch)]
    ends: list[float] = []

    class Clock(transformers.TrainerCallback):  # type: ignore[misc]
        def on_step_end(self, *_: Any, **__: Any) -> None:
            ends.append(time.perf_counter())

    class InOrder(transformers.Trainer):  # type: ignore[misc]
        def _get_train_sampler(self, *_: Any) -> Any:
            return torch.utils.data.SequentialSampler(rows)

    with tempfile.TemporaryDirectory() as folder:
        arguments = transformers.TrainingArguments(
            output_dir=folder,
            max_steps=len(batches),
            per_device_train_batch_size=len(batches[0].tokens),
            learning_rate=rate,
            lr_scheduler_type="constant",
            warmup_steps=0,
            weight_decay=0.0,
            adam_beta2=0.95,
            max_grad_norm=1.0,
            optim="adamw_torch_fused",
            torch_compile=compiled,
            use_cpu=True,
            report_to=[],
            save_strategy="no",
            logging_steps=1,
            disable_tqdm=True,
        )
        model = transformers.AutoModelForCausalLM.from_pretrained(
            checkpoint, dtype=torch.float32, attn_implementation="sdpa", use_cache=False
        )
        trainer = InOrder(model=model, args=arguments, train_dataset=rows, callbacks=[Clock()])
        trainer.remove_callback(transformers.PrinterCallback)
        trainer.train()
    seconds = [after - before for before, after in itertools.pairwise(ends)]
    return min(seconds[len(seconds) // 2 :]), [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]


def _rows(batch: Batch) -> list[dict[str, torch.Tensor]]:
    """The rows of a batch as transformers takes them: its labels are the inputs, which it shifts itself."""
    first = batch.positions == 0
    labels = batch.tokens.masked_fill(first, -100)
    columns = {"input_ids": batch.tokens, "labels": labels, "position_ids": batch.positions}
    return [{name: column[row] for name, column in columns.items()} for row in range(len(batch.tokens))]
