"""A real pre-training stage in the small: shards of the standard library's own text and a stage that runs in a process.

The process is forked from the server of tests/forking.py, so that starting it costs milliseconds and it can be killed a
dozen times in a test.
"""

from __future__ import annotations

import inspect
import json
import string
import sys
import textwrap
import time
from collections.abc import Mapping
from contextlib import suppress
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any

from ingot.tokens.config import TokenizerConfig
from ingot.tokens.shards import SourceWriter, write_index
from ingot.tokens.tokenize import bytes_of_tokens
from ingot.tokens.tokenizer import Tokenizer
from ingot.tokens.train_tokenizer import train_tokenizer
from ingot.train.pretrain import run as run_stage
from ingot.train.pretrain_config import PretrainConfig
from ingot.workspace.errors import Interrupted
from ingot.workspace.interrupt import stop_on_signals
from tests.forking import forking, freeze
from tests.making.stages import stage_folder

STEPS, CHECKPOINT_EVERY = 40, 5
STOPPED = 3  # the exit code of a process that was asked to stop and did
DEADLINE_SECONDS = 60.0

CONFIG: dict[str, Any] = {
    "steps": STEPS,
    "checkpoints": {"every": CHECKPOINT_EVERY},
    "sequence_length": 32,
    "batch_tokens": 128,
    "micro_batch_tokens": 64,
    "precision": "float32",
    "device": "cpu",
    "validate_every": 10,
    "validation_rows": 4,
    "optimizer": {"lr": 0.01},
    "phases": [{"until": 0.6, "weights": {"early": 1.0}}, {"until": 1.0, "weights": {"early": 1.0, "late": 3.0}}],
    "model": {
        "width": 16,
        "blocks": {
            "layer": {
                "mixer": {"heads": 2, "key_value_heads": 1, "head_width": 8},
                "feed_forward": {"width": 32},
            }
        },
        "layers": "layer*2",
    },
}


def write_inputs(folder: Path) -> dict[str, Path]:
    """A tokenizer and shards of three sources."""
    texts = [
        inspect.getsource(value)
        for module in (json, string, textwrap)
        for _, value in sorted(vars(module).items())
        if inspect.isfunction(value)
    ]
    tokenizer = train_tokenizer(texts, TokenizerConfig(vocabulary_size=400))
    tokenizer.save(folder / "tokenizer")
    write_shards(folder / "shards", tokenizer, {"early": texts[::3], "late": texts[1::3], "validation": texts[2::3]})
    return {"tokenizer": folder / "tokenizer", "shards": folder / "shards"}


def write_shards(folder: Path, tokenizer: Tokenizer, sources: Mapping[str, list[str]]) -> None:
    entries = {}
    for name, texts in sources.items():
        writer = SourceWriter(folder, name, tokenizer.vocabulary_size)
        for number, text in enumerate(texts):
            tokens = [*tokenizer.encode(text), tokenizer.end_of_text]
            writer.append(f"{name}-{number}", tokens, len(text.encode("utf-8")), 1.0)
        entries[name] = writer.finish()
    write_index(folder, entries, bytes_of_tokens(tokenizer), tokenizer.end_of_text)


def train(path: Path, inputs: dict[str, Path]) -> None:
    """Run the stage in `path` as the command line would; the body of a process."""
    freeze()
    folder = stage_folder(path, seed=7)
    try:
        with stop_on_signals(folder.stop):
            run_stage(PretrainConfig.model_validate(CONFIG), inputs, folder)
    except Interrupted:
        sys.exit(STOPPED)


def start(path: Path, inputs: dict[str, Path]) -> ForkServerProcess:
    """A process that trains in `path`."""
    process = forking().Process(target=train, args=(path, inputs))
    process.start()
    return process


def finish(process: ForkServerProcess) -> int:
    """Wait for the end; the exit code."""
    process.join(DEADLINE_SECONDS)
    if process.exitcode is None:
        process.kill()
        raise TimeoutError(f"the training did not end in {DEADLINE_SECONDS} s")
    return process.exitcode


def last_step(path: Path) -> int:
    """The last step in metrics.jsonl; −1 if there is none."""
    file = path / "metrics.jsonl"
    lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
    return max((int(json.loads(line)["step"]) for line in lines if line.endswith("}")), default=-1)


def wait_for_step(process: ForkServerProcess, path: Path, step: int) -> None:
    """Until this step is in metrics.jsonl."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    while last_step(path) < step:
        assert process.is_alive(), f"the training ended before step {step}, with exit code {process.exitcode}"
        assert time.monotonic() < deadline, f"step {step} was not reached in {DEADLINE_SECONDS} s"
        time.sleep(0.001)


def half_written(path: Path, since: float) -> bool:
    """Whether a checkpoint lies half written that was begun after `since`; older ones are what an earlier kill left."""
    for folder in (path / "steps").glob("*.partial"):
        with suppress(FileNotFoundError):  # it was finished between the two looks
            if folder.stat().st_ctime > since:
                return True
    return False


def wait_for_save(process: ForkServerProcess, path: Path, since: float) -> None:
    """Until a checkpoint is being written."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not half_written(path, since):
        assert process.is_alive(), f"the training ended without a save, with exit code {process.exitcode}"
        assert time.monotonic() < deadline, f"no checkpoint was written in {DEADLINE_SECONDS} s"
        time.sleep(0.0005)
