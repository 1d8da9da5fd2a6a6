"""Runs one step of a pre-training stage on this machine, with random tokens, by the real Trainer in a temporary folder.

It runs in a process of its own (`python -m ingot.planner.dry_run`, a job as JSON on its standard input, the outcome as JSON
on its standard output), so that a process that runs out of memory, or hangs, is a finding and does not end the doctor.
Only one pass of one process is made: the mesh of the stage is not.
"""

from __future__ import annotations

import json
import math
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ingot.model.config import ModelConfig
from ingot.train.parallel.config import MeshConfig
from ingot.train.pretrain_config import PretrainConfig

MARK = "outcome: "


@dataclass(frozen=True)
class DryRunOutcome:
    """The measurements of the step; `error` says why there are none."""

    seconds: float = 0.0
    peak_bytes: int = 0
    loss: float = math.nan
    device: str = ""
    error: str | None = None


def dry_run(model: ModelConfig, config: PretrainConfig, deadline: float) -> DryRunOutcome:
    """One step in a process of its own, which is ended at the deadline."""
    rows = max(1, config.micro_batch_tokens // config.sequence_length)
    changed = {
        "steps": 1,
        "tokens": None,
        "batch_warmup": None,
        "batch_tokens": min(rows * config.sequence_length, config.batch_tokens),
        "mesh": MeshConfig().model_dump(),
        "phases": [{"until": 1.0, "weights": {"random": 1.0}}],
        "schedule": {"kind": "constant", "warmup": 0.0},
        "train_only": [],
        "from_step": None,
        "keep_optimizer": False,
        "model": model.model_dump(mode="json"),
    }
    job = json.dumps({**config.model_dump(mode="json"), **changed})
    command = [sys.executable, "-m", "ingot.planner.dry_run"]
    try:
        ended = subprocess.run(command, input=job, capture_output=True, text=True, timeout=deadline, check=False)
    except subprocess.TimeoutExpired:
        return DryRunOutcome(error=f"no step was finished within {deadline:.0f} s")
    found = [line for line in ended.stdout.splitlines() if line.startswith(MARK)]
    if not found:
        killed = (
            f"the process was killed by signal {-ended.returncode} (out of memory?)" if ended.returncode < 0 else ""
        )
        return DryRunOutcome(
            error=killed or (ended.stderr.strip().splitlines() or ["it ended without an error message"])[-1]
        )
    return DryRunOutcome(**json.loads(found[-1].removeprefix(MARK)))


def take_step(config: PretrainConfig) -> DryRunOutcome:
    """The step itself, in this process."""
    import torch

    from ingot.model.initialise import initialise
    from ingot.model.transformer import Transformer
    from ingot.tokens.batch import Batch
    from ingot.train.batches import split_rows
    from ingot.train.loop import Trainer
    from ingot.train.losses.terms import language_terms
    from ingot.train.source import Source
    from ingot.workspace.progress import Progress
    from ingot.workspace.stage import StageFolder

    assert config.model is not None and config.model.vocabulary_size is not None
    rows, length, vocabulary = (
        config.batch_tokens // config.sequence_length,
        config.sequence_length,
        config.model.vocabulary_size,
    )

    class RandomTokens(Source):
        """Rows of random tokens, each one document."""

        def batches(self, step: int, rank: int = 0, world: int = 1) -> tuple[Sequence[Batch], dict[str, float]]:
            tokens = torch.randint(vocabulary, (rows, length + 1), generator=torch.Generator().manual_seed(step))
            positions = torch.arange(length).expand(rows, length)
            weight = {"weight": torch.ones(rows, length)}
            batch = Batch(tokens[:, :-1], tokens[:, 1:], positions, torch.zeros(rows, length, dtype=torch.long), weight)
            return split_rows(batch, max(1, config.micro_batch_tokens // length)), {}

    before = _peak_bytes()
    model = Transformer(config.model)
    initialise(model, seed=0)
    with tempfile.TemporaryDirectory() as folder:
        trainer = Trainer(
            model, language_terms(model, config), RandomTokens(), config, StageFolder(Path(folder), 0, Progress())
        )
        began = time.perf_counter()
        last = trainer.run()
    cuda = trainer.device.type == "cuda"
    peak = torch.cuda.max_memory_allocated() if cuda else _peak_bytes() - before
    return DryRunOutcome(time.perf_counter() - began, peak, float(last["loss"]), str(trainer.device))


def _peak_bytes() -> int:
    """The most memory this process has had. Not what getrusage says on Linux: that begins with what the parent had."""
    status = Path("/proc/self/status")
    if not status.exists():
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    line = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM:"))
    return int(line.split()[1]) * 1024


def _main() -> None:
    job: dict[str, Any] = json.load(sys.stdin)
    sys.stdout.write(f"\n{MARK}{json.dumps(asdict(take_step(PretrainConfig.model_validate(job))))}\n")


if __name__ == "__main__":
    _main()
