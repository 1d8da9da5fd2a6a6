"""A step on a GPU never waits for the device: torch raises at whatever would, from the asking for data to the queued update.

The first steps compile, allocate and make the optimizer's state; those may wait. After them `_step` runs in torch's mode that
makes every synchronising call an error. The numbers are read outside of it, one step later.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from ingot.train.loop import PendingStep, Trainer
from ingot.train.reading import Reading
from tests.train import one_gpu
from tests.train.one_gpu import DENSE, MOE, Rows, build, make_trainer

pytestmark = pytest.mark.skipif(
    not torch.cuda.is_available() or not torch.cuda.is_bf16_supported(), reason="needs a CUDA device with bfloat16"
)

STEPS, FREE = 8, 3  # of the steps, so many may wait
MUON = {"kind": "muon", "lr": 0.003, "qk_clip": 100.0}
CASES: dict[str, tuple[dict[str, Any], bool, dict[str, Any]]] = {
    "dense": (DENSE, False, {}),
    "documents": (DENSE, True, {"guards": {"spike": "skip"}}),
    "experts": (MOE, True, {"guards": {"spike": "skip"}}),
    "muon": (DENSE, True, {"optimizer": MUON, "guards": {"spike": "clip"}, "measure_noise": True}),
}


@pytest.fixture(autouse=True)
def forget() -> Iterator[None]:
    """No compiled code from test to test, and no mode left on."""
    torch._dynamo.reset()
    yield
    torch.cuda.set_sync_debug_mode("default")
    torch._dynamo.reset()


class Watched(Trainer):
    """Waiting for the device inside of `_step` is an error."""

    watched = 0

    def _step(self, step: int) -> PendingStep:
        if step < FREE:
            return super()._step(step)
        torch.cuda.synchronize()  # what earlier steps left to do is not this one's
        torch.cuda.set_sync_debug_mode("error")
        try:
            pending = super()._step(step)
        finally:
            torch.cuda.set_sync_debug_mode("default")
        self.watched += 1
        return pending


def run(folder: Path, block: dict[str, Any], packed: bool, **changes: Any) -> Watched:
    trainer = make_trainer(build(block), folder, Rows(packed), Watched, steps=STEPS, precision="bfloat16", **changes)
    assert isinstance(trainer, Watched)
    trainer.run()
    return trainer


@pytest.mark.parametrize("compiled", ["off", "blocks"])
@pytest.mark.parametrize("case", CASES)
def test_nothing_waits_for_the_device(case: str, compiled: str, tmp_path: Path) -> None:
    block, packed, changes = CASES[case]
    trainer = run(tmp_path, block, packed, compile=compiled, **changes)
    assert trainer.watched == STEPS - FREE
    losses = [row["loss"] for row in trainer.folder.metrics.read()]
    assert len(losses) == STEPS and all(3 < loss < 9 for loss in losses), losses  # even odds: log 512 = 6.2


def test_a_wait_would_be_seen(tmp_path: Path) -> None:
    """The same with a learning rate that is asked of the device."""
    trainer = make_trainer(build(DENSE), tmp_path, Rows(False), Watched, steps=STEPS, compile="off")
    rate = torch.ones((), device=one_gpu.DEVICE)
    trainer.rate = lambda step: float(rate)
    with pytest.raises(RuntimeError, match="synchroniz"):
        trainer.run()


def test_a_step_is_read_while_the_next_one_is_queued(tmp_path: Path) -> None:
    """The order of the calls: step s + 1 before the numbers of step s."""
    calls: list[str] = []

    class Noted(Trainer):
        def _step(self, step: int) -> PendingStep:
            calls.append(f"step {step}")
            return super()._step(step)

        def _settle(self, pending: PendingStep) -> dict[str, Any]:
            calls.append(f"read {pending.step}")
            return super()._settle(pending)

    make_trainer(build(DENSE), tmp_path, Rows(False), Noted, steps=4, compile="off").run()
    assert calls == ["step 0", "step 1", "read 0", "step 2", "read 1", "step 3", "read 2", "read 3"]


def test_numbers_are_read_while_the_next_step_runs() -> None:
    """A second of work that is queued after them is still going on when they are there."""
    reading = Reading(
        {"loss": torch.tensor(1.5, device=one_gpu.DEVICE), "tokens": torch.tensor(7, device=one_gpu.DEVICE)}
    )
    torch.cuda._sleep(2_000_000_000)
    later = torch.cuda.Event()
    later.record()
    assert reading.read() == {"loss": 1.5, "tokens": 7.0}
    assert not later.query()
    torch.cuda.synchronize()
