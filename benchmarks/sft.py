"""Supervised fine-tuning: the `sft` stage against transformers' Trainer, on the same packed rows of the same conversations.

Ours is the stage as a recipe runs it: conversations from the store on disk, packing, guards, metrics, float32 master weights,
bfloat16 products on a GPU. The Trainer gets the very batches, ready-made in memory: rows in which positions begin again with each
conversation, so that none sees another, and labels on what the assistant writes. It runs in each way that people run it:

    sdpa        scaled_dot_product_attention, which masks packed conversations by a dense mask
    flex        flex_attention, which skips what is masked
    +liger      with Liger's Triton kernels (norm, rotation, SwiGLU, head with loss)

    python benchmarks/sft.py MODEL FILE.jsonl [--steps 80] [--length 1024] [--tokens 32768] [--peers sdpa,sdpa+liger]

MODEL is a checkpoint, a Hugging Face folder or a GGUF file. The first half of the steps is not timed, on either side: rows differ
from step to step, and each new number of them is compiled once. Losses are compared step by step.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # to be run as a file

from benchmarks.train_peers import apply_liger, clear
from ingot.checkpoints.checkpoint import load_model, save_checkpoint
from ingot.checkpoints.convert import export_model
from ingot.post.sft import Sft
from ingot.post.sft_config import SftConfig
from ingot.tokens.batch import Batch
from ingot.workspace.progress import Progress
from ingot.workspace.stage import StageFolder

RATE = 1e-4


def run_ours(config: SftConfig, checkpoint: Path, folder: Path) -> tuple[dict[str, float], list[float]]:
    """The stage: tokens a second, memory, losses."""
    clear()
    stage_folder = StageFolder(folder, seed=0, progress=Progress())
    Sft(config, {"checkpoint": checkpoint}, stage_folder).run()
    lines = stage_folder.metrics.read()
    timed = [line["seconds"] for line in lines[config.steps // 2 :]]
    return figures(sum(timed), len(timed), config), [line["loss"] for line in lines]


def step_batches(config: SftConfig, checkpoint: Path, folder: Path) -> list[Batch]:
    """The batches that the stage trains on, one a step."""
    source = Sft(config, {"checkpoint": checkpoint}, StageFolder(folder, seed=0, progress=Progress())).source()
    steps = [source.batches(step)[0] for step in range(config.steps)]
    if any(len(batches) != 1 for batches in steps):
        raise SystemExit("a step is more than one pass: give --tokens of at most 65536")
    return [batches[0] for batches in steps]


def run_peer(
    name: str, config: SftConfig, checkpoint: Path, batches: Sequence[Batch]
) -> tuple[dict[str, float], list[float]]:
    """transformers' Trainer on these batches."""
    import transformers

    clear()
    steps, losses, times = [columns(batch) for batch in batches], list[torch.Tensor](), list[float]()

    class Clock(transformers.TrainerCallback):  # type: ignore[misc]  # its base has no types here
        def on_step_end(self, _: Any, state: Any, *__: Any, **___: Any) -> None:
            if state.global_step in (len(steps) // 2, len(steps)):  # between them it waits for nothing
                if config.device == "cuda":
                    torch.cuda.synchronize()
                times.append(time.perf_counter())

    class InOrder(transformers.Trainer):  # type: ignore[misc]  # its base has no types here
        def _get_train_sampler(self, *_: Any) -> Any:
            return torch.utils.data.SequentialSampler(steps)

        def training_step(self, *given: Any, **options: Any) -> torch.Tensor:
            loss: torch.Tensor = super().training_step(*given, **options)
            losses.append(
                loss.detach()
            )  # read at the end: logging each step would make the Trainer wait for the device
            return loss

    attention, _, liger = name.partition("+")
    model = transformers.AutoModelForCausalLM.from_pretrained(
        checkpoint,
        dtype=torch.float32,
        attn_implementation={"sdpa": "sdpa", "flex": "flex_attention"}[attention],
        use_cache=False,
    )
    if liger:
        apply_liger(model)
    with tempfile.TemporaryDirectory() as folder:
        arguments = transformers.TrainingArguments(
            output_dir=folder,
            max_steps=len(steps),
            per_device_train_batch_size=1,  # an item is a whole batch of rows
            learning_rate=RATE,
            lr_scheduler_type="constant",
            warmup_steps=0,
            weight_decay=0.0,
            adam_beta2=0.95,
            max_grad_norm=1.0,
            optim="adamw_torch_fused",
            bf16=config.device == "cuda",
            use_cpu=config.device == "cpu",
            remove_unused_columns=False,
            report_to=[],
            save_strategy="no",
            logging_strategy="no",
            logging_nan_inf_filter=False,  # it looks at every loss
            disable_tqdm=True,
        )
        trainer = InOrder(
            model=model, args=arguments, train_dataset=steps, data_collator=lambda items: items[0], callbacks=[Clock()]
        )
        trainer.remove_callback(transformers.PrinterCallback)
        trainer.train()
    timed = len(steps) - len(steps) // 2
    return figures(times[1] - times[0], timed, config), [float(loss) for loss in losses]


def columns(batch: Batch) -> dict[str, torch.Tensor]:
    """A batch as transformers takes it. Labels stand where they are predicted; `shift_labels` says that they do."""
    labels = batch.targets.masked_fill(batch.streams["weight"] == 0, -100)
    return {"input_ids": batch.tokens, "position_ids": batch.positions, "labels": labels, "shift_labels": labels}


def figures(seconds: float, steps: int, config: SftConfig) -> dict[str, float]:
    """Tokens of full rows a second over these steps together, and the highest memory."""
    speed = (config.batch_tokens or 0) * steps / seconds
    return {
        "tokens_per_second": round(speed),
        "gib": round(torch.cuda.max_memory_allocated() / 2**30, 1) if config.device == "cuda" else 0.0,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="a checkpoint, a Hugging Face folder or a GGUF file")
    parser.add_argument("files", nargs="+", help="files of conversations, as those of the sft stage")
    parser.add_argument("--steps", type=int, default=80)
    parser.add_argument("--length", type=int, default=1024, help="positions of a row")
    parser.add_argument("--tokens", type=int, default=32_768, help="tokens of a step")
    parser.add_argument("--peers", default="sdpa,sdpa+liger,flex+liger")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda" if torch.cuda.is_available() else "cpu")
    given = parser.parse_args()
    config = SftConfig.model_validate(
        {
            "steps": given.steps,
            "sequence_length": given.length,
            "batch_tokens": given.tokens,
            "micro_batch_tokens": 65_536,
            "files": tuple(given.files),
            "tasks": None,
            "too_long": "leave_out",
            "device": given.device,
            "optimizer": {"lr": RATE, "weight_decay": 0.0, "betas": (0.9, 0.95)},
            "schedule": {"kind": "constant", "warmup": 0},
            "checkpoints": {"every": 10**6},
        }
    )
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        save_checkpoint(folder / "checkpoint", load_model(Path(given.model)))
        export_model(folder / "checkpoint", folder / "exported", dtype=torch.float32)
        batches = step_batches(config, folder / "checkpoint", folder / "batches")
        ours, losses = run_ours(config, folder / "checkpoint", folder / "ours")
        print({"ours": ours, "first and last loss": [losses[0], losses[-1]]}, flush=True)
        found: dict[str, Any] = {"device": given.device, "ours": ours}
        for peer in given.peers.split(","):
            theirs, other = run_peer(peer, config, folder / "exported", batches)
            apart = [abs(one - two) for one, two in zip(losses, other, strict=True)]
            found[peer] = theirs | {
                "ratio": round(ours["tokens_per_second"] / theirs["tokens_per_second"], 2),
                "losses apart, mean": round(statistics.mean(apart), 5),
                "losses apart, most": round(max(apart), 5),
            }
            print({peer: found[peer]}, flush=True)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
