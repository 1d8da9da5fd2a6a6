"""How long a run stands still for a checkpoint: Ingot's saver, the same one synchronous, and torch's async_save, in turns.

A run of AdamW steps on one model; each way saves after a step, two more steps are made while it writes in the background, and
everything is waited for before the next way has its turn. The stall is the time of the call. Also shown: how much longer the
two steps took than without anything in the background. Ingot's way also checksums, flushes and renames; torch's does not.

    python benchmarks/checkpoints.py [--device cpu|cuda] [--quick] [--threads N] [--folder PATH]
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch.distributed.checkpoint.state_dict import get_model_state_dict, get_optimizer_state_dict
from torch.distributed.checkpoint.state_dict_saver import async_save

from ingot.model.config import ModelConfig
from ingot.model.initialise import initialise
from ingot.model.transformer import Transformer
from ingot.train.saving.config import CheckpointsConfig
from ingot.train.saving.saver import Saver
from ingot.workspace.progress import Progress
from ingot.workspace.stage import StageFolder

SHAPES = {  # width, inner, layers; vocabulary 16,384
    "quick": (384, 1152, 6),  # 18M parameters
    "cpu": (768, 2304, 12),  # 98M
    "cuda": (2048, 8192, 16),  # 1.1B
}
TOKENS = {"cpu": (1, 128), "cuda": (8, 2048)}
BACKGROUND_STEPS = 2

Way = Callable[[int], Callable[[], Any]]  # begins the save of a step and returns how to wait for it


class Run:
    """A model in training."""

    def __init__(self, shape: tuple[int, int, int], device: str) -> None:
        width, inner, layers = shape
        heads = {"heads": width // 64, "key_value_heads": width // 128, "head_width": 64}
        parts = {
            "vocabulary_size": 16_384,
            "width": width,
            "blocks": {"layer": {"mixer": heads, "feed_forward": {"width": inner}}},
            "layers": f"layer*{layers}",
            "context": 2048,
        }
        self.device = device
        self.model = Transformer(ModelConfig.model_validate(parts))
        initialise(self.model, seed=0)
        self.model.to(device)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-4, fused=True)
        self.tokens = torch.randint(0, 16_384, TOKENS[device], device=device)

    def steps(self, count: int) -> float:
        """Seconds of so many steps."""
        self.synchronize()
        began = time.perf_counter()
        for _ in range(count):
            with torch.autocast(self.device, torch.bfloat16, enabled=self.device == "cuda"):
                loss = self.model(self.tokens).float().logsumexp(-1).mean()
            loss.backward()
            self.optimizer.step()
            self.optimizer.zero_grad()
        self.synchronize()
        return time.perf_counter() - began

    def synchronize(self) -> None:
        if self.device == "cuda":
            torch.cuda.synchronize()


def ways(run: Run, folder: Path) -> dict[str, Way]:
    savers = {
        name: Saver(StageFolder(folder / name, 0, Progress()), CheckpointsConfig(keep=1, asynchronous=background), None)
        for name, background in (("ingot", True), ("synchronous", False))
    }

    def ingot(name: str) -> Way:
        def begin(step: int) -> Callable[[], Any]:
            savers[name].save(step, run.model, run.optimizer, {})
            return savers[name].wait

        return begin

    def peer(step: int) -> Callable[[], Any]:
        state = {
            "model": get_model_state_dict(run.model),
            "optimizer": get_optimizer_state_dict(run.model, run.optimizer),
        }
        future: Any = async_save(state, checkpoint_id=folder / "torch" / str(step), no_dist=True)

        def wait() -> None:
            future.result()
            shutil.rmtree(folder / "torch" / str(step))

        return wait

    return {"ingot": ingot("ingot"), "synchronous": ingot("synchronous"), "torch async_save": peer}


def measure(run: Run, folder: Path, rounds: int) -> tuple[float, dict[str, dict[str, float]]]:
    """Seconds of a step alone; and per way the median stall, seconds until all is written, and slowdown beside it."""
    run.steps(2)
    turns = ways(run, folder)
    alone: list[float] = []
    found: dict[str, dict[str, list[float]]] = {}
    for number in range(rounds + 1):
        for name, way in turns.items():
            alone.append(run.steps(BACKGROUND_STEPS))
            began = time.perf_counter()
            wait = way(number + 1)
            stall = time.perf_counter() - began
            beside = run.steps(BACKGROUND_STEPS)
            wait()
            if number:  # the first round makes buffers
                values = found.setdefault(name, {"stall": [], "written": [], "beside": []})
                values["stall"].append(stall)
                values["written"].append(time.perf_counter() - began)
                values["beside"].append(beside)
    usual = statistics.median(alone)
    medians = {
        name: {key: statistics.median(listed) for key, listed in values.items()} for name, values in found.items()
    }
    for each in medians.values():
        each["slowdown"] = each.pop("beside") / usual
    return usual / BACKGROUND_STEPS, medians


def main() -> None:
    parser = argparse.ArgumentParser(description="The stall of a checkpoint against torch's async_save.")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--quick", action="store_true", help="a smaller model and fewer rounds: within a minute")
    parser.add_argument("--threads", type=int, default=None, help="CPU threads (default: torch's choice)")
    parser.add_argument("--folder", type=Path, default=None, help="where to write (default: a temporary folder)")
    options = parser.parse_args()
    if options.threads:
        torch.set_num_threads(options.threads)
    run = Run(SHAPES["quick" if options.quick else options.device], options.device)
    count = sum(parameter.numel() for parameter in run.model.parameters())
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        step, found = measure(run, Path(folder), 2 if options.quick else 3)
    print(
        f"{count / 1e6:.0f}M parameters, AdamW, {options.device}, {torch.get_num_threads()} threads; one step: {step:.3f} s"
    )
    print(f"{'':18} {'stall':>9} {'in steps':>9} {'written':>9} {'steps beside':>13}")
    for name, each in found.items():
        print(
            f"{name:18} {each['stall']:7.3f} s {each['stall'] / step:9.2f} {each['written']:7.2f} s {each['slowdown']:12.2f}x"
        )
    ours = found["ingot"]["stall"]
    results = [
        {
            "case": f"stall, peer: {peer}",
            "ours": round(ours, 4),
            "peer": round(seconds, 4),
            "ratio": round(seconds / ours, 2),
        }
        for peer, seconds in (
            ("torch async_save", found["torch async_save"]["stall"]),
            ("synchronous", found["synchronous"]["stall"]),
            ("one training step", step),
        )
    ]
    print(
        json.dumps(
            {
                "benchmark": "checkpoints",
                "device": options.device,
                "results": [{**each, "unit": "s"} for each in results],
            }
        )
    )


if __name__ == "__main__":
    main()
