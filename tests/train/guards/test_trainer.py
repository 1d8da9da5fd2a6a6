"""The guards in the real loop: a poisoned batch is skipped or passed over, and a number that is not finite names its layer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from ingot.model.transformer import Transformer
from ingot.tokens.batch import Batch
from ingot.tokens.batch import TokenSequence as Text
from ingot.tokens.packing import make_batch
from ingot.train.batches import deal
from ingot.train.guards.guards import EVENTS
from ingot.train.loop import Trainer
from ingot.train.source import Source
from ingot.workspace.errors import CheckFailed, Interrupted
from ingot.workspace.files import read_jsonl
from ingot.workspace.stage import StageFolder
from tests.making.stages import Listener, stage_folder
from tests.model.tiny import config, random_model
from tests.slow import first_fast
from tests.train.test_routers import MOVERS, routed_model
from tests.train.toy import StepSource, make_trainer, records, same_weights

POISONED = 14
POISON = Text([7, 50, 3, 3, 41, 60, 12, 9, 55, 1, 1, 30, 2, 44, 17], {"weight": [1.0] + [1.0, -0.99] * 7})
GUARDS = {"window": 16, "gradient_limit": 1e9}


class PoisonedSource(Source):
    """Three batches in turn, and one whose weights nearly cancel, so that loss and gradient are huge.

    `order` maps a step to the one whose data it gets.
    """

    def __init__(self, order: Callable[[int], int], ahead: bool = False, poisoned: Sequence[int] = (POISONED,)) -> None:
        self.order, self.ahead, self.poisoned = order, ahead, poisoned

    def batches(self, step: int, rank: int = 0, world: int = 1) -> tuple[Sequence[Batch], dict[str, float]]:
        data = self.order(step)
        if data in self.poisoned:
            return deal([make_batch([POISON], 16)], rank, world), {}
        return StepSource().batches(data % 3, rank, world)


def train(
    path: Path,
    source: PoisonedSource,
    *,
    steps: int = 20,
    every: int = 4,
    model: Transformer | None = None,
    **guards: Any,
) -> tuple[Trainer, Listener]:
    listener = Listener()
    trainer = make_trainer(
        stage_folder(path, listener),
        source=source,
        model=model or random_model(config()),
        steps=steps,
        optimizer={"lr": 0.002},
        schedule={"kind": "constant", "warmup": 0.0},
        checkpoints={"every": every},
        guards={**GUARDS, **guards},
    )
    trainer.run()
    return trainer, listener


def events(path: Path) -> list[dict[str, Any]]:
    """What was said about the numbers; how fast this machine is does not belong here."""
    found = read_jsonl(path / EVENTS) if (path / EVENTS).exists() else []
    return [event for event in found if event["rule"] in ("spike", "not finite")]


def deviations(path: Path) -> list[float]:
    return [max(row["loss_deviations"], row["gradient_norm_deviations"]) for row in stage_folder(path).metrics.read()]


def test_the_poison_is_a_spike_and_nothing_else_is(tmp_path: Path) -> None:
    _, listener = train(tmp_path, PoisonedSource(lambda step: step), every=50, spike="warn")
    above = [step for step, each in enumerate(deviations(tmp_path)) if each > 6]
    assert above == [POISONED]
    assert [(event["step"], event["rule"], event["action"]) for event in events(tmp_path)] == [
        (POISONED, "spike", "warn")
    ]
    assert [line for line in listener.lines if line.startswith(f"step {POISONED}: spike: ")]


@pytest.mark.parametrize(
    "make",
    first_fast(
        [lambda: routed_model(MOVERS["bias"]), lambda: random_model(config()), lambda: routed_model(MOVERS["smebu"])]
    ),
)
def test_a_skipped_step_might_not_have_been_there(make: Callable[[], Transformer], tmp_path: Path) -> None:
    """Weights, moments, counts of steps and the routers' biases are those of a run without that batch."""
    poisoned, _ = train(tmp_path / "poisoned", PoisonedSource(lambda step: step), every=50, model=make(), spike="skip")
    clean, _ = train(
        tmp_path / "clean",
        PoisonedSource(lambda step: step + (step >= POISONED)),
        steps=19,
        every=50,
        model=make(),
        spike="off",
    )
    assert [event["step"] for event in events(tmp_path / "poisoned")] == [POISONED]
    assert same_weights(poisoned.model.state_dict(), clean.model.state_dict())
    for mine, other in zip(poisoned.optimizer.state.values(), clean.optimizer.state.values(), strict=True):
        assert all(torch.equal(torch.as_tensor(mine[name]), torch.as_tensor(other[name])) for name in other)
    row = stage_folder(tmp_path / "poisoned").metrics.read()[POISONED]
    ratios = [value for name, value in row.items() if name.startswith("update_ratio/")]
    assert ratios and set(ratios) == {0.0}


def passed_over(step: int) -> int:
    """The order of a run that came to the poison, went back to the checkpoint at 12, and passed over data 12, 13, 14."""
    return step if step < 12 else step + 3


@pytest.mark.parametrize("ahead", first_fast([True, False]))
def test_a_rewound_run_is_the_run_that_passed_over_the_data(ahead: bool, tmp_path: Path) -> None:
    rewound, listener = train(tmp_path / "rewound", PoisonedSource(lambda step: step, ahead), spike="rewind")
    reference, _ = train(tmp_path / "reference", PoisonedSource(passed_over), spike="rewind")
    assert "rewound to step 12; its data is now that of step 15" in listener.lines
    assert events(tmp_path / "reference") == []
    assert same_weights(rewound.model.state_dict(), reference.model.state_dict())
    assert records(stage_folder(tmp_path / "rewound")) == records(stage_folder(tmp_path / "reference"))


def test_a_rewound_run_that_is_stopped_goes_on_exactly(tmp_path: Path) -> None:
    folder = stage_folder(tmp_path / "stopped")

    def order(step: int) -> int:
        if step == passed_over(17) and not (folder.path / "stopped").exists():
            (folder.path / "stopped").touch()
            trainer_folder.stop.request()
        return step

    listener = Listener()
    trainer_folder = stage_folder(folder.path, listener)
    with pytest.raises(Interrupted):
        make_trainer(
            trainer_folder,
            source=PoisonedSource(order),
            steps=20,
            optimizer={"lr": 0.002},
            schedule={"kind": "constant", "warmup": 0.0},
            checkpoints={"every": 4},
            guards={**GUARDS, "spike": "rewind"},
        ).run()
    again, _ = train(folder.path, PoisonedSource(lambda step: step), spike="rewind")
    reference, _ = train(tmp_path / "reference", PoisonedSource(passed_over), spike="rewind")
    assert again.guards.rewinds == 1 and reference.guards.rewinds == 0
    assert same_weights(again.model.state_dict(), reference.model.state_dict())
    assert records(folder) == records(stage_folder(tmp_path / "reference"))


def test_poison_everywhere_ends_the_run(tmp_path: Path) -> None:
    """Data 14 is poisoned, and so is what follows every rewind."""
    with pytest.raises(CheckFailed, match="2 rewinds did not help"):
        train(tmp_path, PoisonedSource(lambda step: step, poisoned=(14, 17, 20)), spike="rewind", rewinds=2)
    assert [(event["step"], event["data_step"]) for event in events(tmp_path)] == [
        (14, 14),
        (14, 17),
        (14, 20),
    ]


def test_a_spike_before_the_first_checkpoint_goes_back_to_the_start(tmp_path: Path) -> None:
    """The window of 8 trips at step 6; the first checkpoint but that of the start would be at step 20."""
    guards = {"window": 8, "spike": "rewind"}
    listener = Listener()
    results = []
    for name, order in (("rewound", lambda step: step), ("reference", lambda step: step + 7)):
        trainer = make_trainer(
            stage_folder(tmp_path / name, listener),
            source=PoisonedSource(order, poisoned=(6,)),
            steps=8,
            optimizer={"lr": 0.002},
            checkpoints={"every": 20},
            guards=guards,
        )
        trainer.run()
        results.append(trainer.model.state_dict())
    assert "rewound to step 0; its data is now that of step 7" in listener.lines
    assert same_weights(*results)


def stopped(folder: StageFolder, prepare: Callable[[Trainer], object]) -> str:
    trainer = make_trainer(folder)
    with torch.no_grad():
        prepare(trainer)
    with pytest.raises(CheckFailed) as caught:
        trainer.run()
    (event,) = events(folder.path)
    assert (event["rule"], event["action"], event["step"]) == ("not finite", "stop", 0)
    assert event["seen"] in str(caught.value)
    return str(event["seen"])


def test_an_output_that_overflows_is_named(folder: StageFolder) -> None:
    seen = stopped(folder, lambda trainer: trainer.model.get_parameter("blocks.1.mixer.output.weight").fill_(1e38))
    assert "loss nan" in seen
    assert "cross_entropy" in seen, "the term of the loss"
    assert "first output that is not finite: blocks.1.mixer.output (" in seen


def test_a_gradient_that_is_not_finite_is_named(folder: StageFolder) -> None:
    def spoil(trainer: Trainer) -> None:
        trainer.model.get_parameter("blocks.0.feed_forward.down.weight").register_hook(
            lambda gradient: gradient * torch.nan
        )

    seen = stopped(folder, spoil)
    assert seen.endswith("gradients that are not, from the loss back: blocks.0.feed_forward.down.weight")


@pytest.mark.parametrize(
    ("every", "left"), [(100, "no checkpoint is complete yet"), (1, "the last checkpoint is intact")]
)
def test_a_stop_says_whether_there_is_a_checkpoint(every: int, left: str, folder: StageFolder) -> None:
    model = random_model(config())

    def spoil(step: int) -> None:
        if step == 2:
            torch.nn.init.constant_(model.get_parameter("norm.gain"), torch.nan)

    checkpoints = {"every": every, "asynchronous": False, "keep": 1}
    trainer = make_trainer(folder, source=StepSource(spoil), model=model, steps=4, checkpoints=checkpoints)
    with pytest.raises(CheckFailed, match=left):
        trainer.run()
    assert [path.name for path in folder.path.glob("steps/*")] == (["step-0000002"] if every == 1 else [])


def test_the_weights_of_the_failed_step_are_untouched(folder: StageFolder) -> None:
    before = random_model(config()).state_dict()

    def spoil(trainer: Trainer) -> None:
        trainer.model.get_parameter("norm.gain").register_hook(lambda gradient: gradient * torch.inf)

    trainer = make_trainer(folder)
    spoil(trainer)
    with pytest.raises(CheckFailed):
        trainer.run()
    assert same_weights(trainer.model.state_dict(), before)
