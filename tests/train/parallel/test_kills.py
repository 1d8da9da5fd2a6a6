"""One run, trained by one, two, four and again one process, with a kill between: it sees the tokens of an undisturbed one.

Every process notes the rows that its passes really work on. The last rank kills itself in the middle of a step, after the
gradients of a micro-batch; the next start has another world size and goes on from the last checkpoint, so that some steps are
trained twice, in two world sizes. Rows, losses and weights are compared with those of a single process that is never killed.
"""

from __future__ import annotations

import json
import os
import signal
from collections import defaultdict
from datetime import timedelta
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

import numpy
import pytest
from torch import distributed
from torch._C._distributed_c10d import FileStore

from ingot.checkpoints.checkpoint import load_model
from ingot.tokens.batch import PADDING_DOCUMENT, Batch
from ingot.train import pretrain
from ingot.train.loop import PendingStep, Trainer
from ingot.train.pretrain_config import PretrainConfig
from tests.forking import forking, freeze
from tests.making.rows import read_rows
from tests.making.stages import stage_folder
from tests.slow import slow
from tests.train.pretraining import CONFIG, DEADLINE_SECONDS, write_inputs

STEPS, EVERY = 24, 4
STARTS = ((1, 6), (2, 11), (4, 18), (1, STEPS))  # world size, and the step in which it is killed
FEW = 7  # steps of the short run: one checkpoint
ROWS = 5  # of a step: two and four ranks have unequal shares

Rows = dict[int, list[str]]  # by step: every row that was trained on, in order


def config(steps: int) -> PretrainConfig:
    changes = {
        "steps": steps,
        "checkpoints": {"every": EVERY, "asynchronous": False},  # so that it is known which one is there
        "batch_tokens": ROWS * CONFIG["sequence_length"],
        "optimizer": {"lr": 0.01, "epsilon": 1e-4},  # a small ε makes large steps of the last bits of small gradients
        "packing": "best_fit",  # documents of very different lengths
    }
    return PretrainConfig.model_validate({**CONFIG, **changes})


def row_contents(batch: Batch) -> list[str]:
    """Tokens, targets, positions, documents and weights of every row that is not padding alone."""
    parts = (batch.tokens, batch.targets, batch.positions, batch.documents, batch.streams["weight"])
    real = (batch.documents != PADDING_DOCUMENT).any(dim=1).tolist()
    return [
        b"".join(part[row].numpy().tobytes() for part in parts).hex() for row, is_real in enumerate(real) if is_real
    ]


def train_rank(
    path: Path, seen: Path, inputs: dict[str, Path], rank: int, world: int, store: Path, kill: int, steps: int
) -> None:
    """One rank of the stage in `path`; notes its rows in `seen` and kills itself in step `kill`. The body of a process."""
    freeze()

    class Noting(Trainer):
        def _step(self, step: int) -> PendingStep:
            train = self.passes.run_one

            def noted(batch: Batch, *given: Any) -> None:
                with seen.open("a", encoding="utf-8") as file:
                    file.write(json.dumps([step, row_contents(batch)]) + "\n")
                train(batch, *given)
                if step == kill and rank == world - 1:
                    os.kill(os.getpid(), signal.SIGKILL)

            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(self.passes, "run_one", noted)
                return super()._step(step)

    pytest.MonkeyPatch().setattr(pretrain, "Trainer", Noting)
    if world > 1:
        deadline, shared = timedelta(seconds=DEADLINE_SECONDS), FileStore(str(store), world)
        distributed.init_process_group("gloo", store=shared, timeout=deadline, rank=rank, world_size=world)
    pretrain.run(config(steps), inputs, stage_folder(path, seed=7))
    if world > 1:
        distributed.destroy_process_group()


def start(path: Path, inputs: dict[str, Path], world: int, kill: int, number: int = 0, steps: int = STEPS) -> Rows:
    """Train until the kill or the end; the rows of the steps before the kill, all ranks' together."""
    seen = [path.with_name(f"{path.name}-{number}-{rank}.jsonl") for rank in range(world)]
    store = path.with_name(f"{path.name}-{number}-store")
    given = [(path, seen[rank], inputs, rank, world, store, kill, steps) for rank in range(world)]
    ranks = [forking().Process(target=train_rank, args=each, daemon=True) for each in given]
    for process in ranks:
        process.start()
    victim = ranks[-1]
    assert wait([victim.sentinel], DEADLINE_SECONDS), f"{world} processes took too long"
    victim.join()
    assert victim.exitcode == (0 if kill == steps else -signal.SIGKILL)
    for process in ranks:
        process.join(0 if kill < steps else DEADLINE_SECONDS)
        process.kill()  # those that wait for the dead one
        process.join()
    rows: defaultdict[int, list[str]] = defaultdict(list)
    for file in seen:
        for line in file.read_text(encoding="utf-8").splitlines():
            step, contents = json.loads(line)
            rows[step] += contents
    return {step: each for step, each in rows.items() if step < kill}


@pytest.mark.parametrize(("first", "second"), [(2, 1), slow((1, 2))])
def test_killed_once_it_goes_on_in_another_world_size(first: int, second: int, tmp_path: Path) -> None:
    """The short form of the test below: killed in step 5, resumed from the checkpoint of step 4 by one process more or less."""
    inputs = write_inputs(tmp_path / "inputs")
    expected = start(tmp_path / "alone", inputs, 1, FEW, steps=FEW)
    rows = start(tmp_path / "killed", inputs, first, 5, 0, FEW)
    again = start(tmp_path / "killed", inputs, second, FEW, 1, FEW)
    assert list(rows) == [0, 1, 2, 3, 4] and list(again) == [4, 5, 6] and rows | again == expected
    assert_same_result(tmp_path / "killed", tmp_path / "alone")


@pytest.mark.slow
def test_killed_and_resumed_in_other_world_sizes_it_trains_on_the_same_tokens(tmp_path: Path) -> None:
    inputs = write_inputs(tmp_path / "inputs")
    expected = start(tmp_path / "alone", inputs, 1, STEPS)
    assert list(expected) == list(range(STEPS)) and all(len(rows) == ROWS for rows in expected.values())
    assert len({row for rows in expected.values() for row in rows}) > STEPS, "steps have rows of their own"

    trained: list[int] = []
    for number, (world, kill) in enumerate(STARTS):
        rows = start(tmp_path / "killed", inputs, world, kill, number)
        first = 0 if number == 0 else STARTS[number - 1][1] // EVERY * EVERY
        assert list(rows) == list(range(first, kill)), "from the last checkpoint on"
        for step, each in rows.items():
            assert each == expected[step], f"step {step} of {world} processes"
        trained += rows
    assert len(trained) > STEPS and set(trained) == set(range(STEPS)), "some steps twice, none never"

    alone = read_rows(tmp_path / "alone" / "metrics.jsonl")
    assert len(alone) == STEPS and alone[-1]["loss"] < alone[0]["loss"] - 0.5, "it learns"
    assert_same_result(tmp_path / "killed", tmp_path / "alone")


def assert_same_result(path: Path, undisturbed: Path) -> None:
    """The numbers of every step, and the weights at the end: other orders of a sum change their last bits only."""
    alone, killed = read_rows(undisturbed / "metrics.jsonl"), read_rows(path / "metrics.jsonl")
    assert [row["step"] for row in killed] == [row["step"] for row in alone]
    for name, bound in (("loss", 1e-5), ("tokens", 0), ("learning_rate", 0), ("gradient_norm", 1e-4)):
        numpy.testing.assert_allclose(
            [row[name] for row in killed], [row[name] for row in alone], rtol=bound, err_msg=name
        )
    weights = load_model(path).state_dict()
    for name, weight in load_model(undisturbed).state_dict().items():
        numpy.testing.assert_allclose(weights[name].numpy(), weight.numpy(), rtol=1e-3, atol=1e-5, err_msg=name)
