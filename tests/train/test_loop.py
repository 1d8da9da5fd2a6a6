"""The loop: what it logs, what it refuses, and which checkpoints it keeps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from ingot.checkpoints.checkpoint import load_model
from ingot.model.transformer import Transformer
from ingot.tokens.batch import TokenSequence
from ingot.tokens.packing import make_batch
from ingot.train.losses.policy_gradient import PolicyGradient, ReferenceDivergence
from ingot.train.losses.preference import Preference
from ingot.train.losses.terms import CrossEntropy
from ingot.workspace.errors import CheckFailed, RecipeError
from ingot.workspace.stage import StageFolder
from tests.making.stages import Listener, stage_folder
from tests.model.tiny import config, random_model
from tests.train.toy import FixedSource, StepSource, make_trainer, records


def test_every_step_is_logged_with_what_the_report_reads(folder: StageFolder) -> None:
    trainer = make_trainer(folder, schedule={"kind": "wsd", "warmup": 0.25, "decay": 0.25})
    last = trainer.run()
    rows = folder.metrics.read()
    assert [row["step"] for row in rows] == list(range(12))
    names = {"loss", "cross_entropy", "learning_rate", "gradient_norm", "tokens", "tokens_per_second", "drawn"}
    assert names <= rows[0].keys()
    rates = [row["learning_rate"] / 0.01 for row in rows]
    assert rates == pytest.approx([0.25, 0.5, 0.75, 1, 1, 1, 1, 1, 1, 0.75, 0.5, 0.25])
    counts = [sum(batch.token_count for batch in StepSource().batches(step)[0]) for step in range(12)]
    assert [row["tokens"] for row in rows] == [sum(counts[: step + 1]) for step in range(12)]
    assert last == {"steps": 12, **{name: value for name, value in rows[-1].items() if name != "step"}}


def test_the_learning_rate_of_the_step_is_the_one_used(folder: StageFolder) -> None:
    """AdamW's first update moves every weight with a gradient by the learning rate: here a quarter of the peak."""
    trainer = make_trainer(
        folder,
        steps=4,
        schedule={"kind": "constant", "warmup": 0.75},
        source=StepSource(lambda step: seen.append(gain())),
    )
    seen: list[torch.Tensor] = []

    def gain() -> torch.Tensor:
        return trainer.model.get_parameter("norm.gain").detach().clone()

    trainer.run()
    assert (seen[1] - seen[0]).abs().tolist() == pytest.approx([0.01 / 4] * len(seen[0]), rel=1e-3)


def test_training_learns(folder: StageFolder) -> None:
    """The same few sequences again and again are learnt by heart."""
    batches, _ = StepSource().batches(0)
    make_trainer(folder, source=FixedSource(batches), steps=60, checkpoints={"every": 60}, optimizer={"lr": 0.02}).run()
    rows = folder.metrics.read()
    assert rows[0]["loss"] > 3 and rows[-1]["loss"] < 0.5


def test_the_gradient_is_clipped(tmp_path: Path) -> None:
    """AdamW's first moment after one step is (1 − β₁) times the clipped gradient."""
    norms = {}
    for clip in (0.01, 1e9):
        trainer = make_trainer(stage_folder(tmp_path / str(clip)), steps=1, optimizer={"clip": clip})
        last = trainer.run()
        moments = [state["exp_avg"].square().sum() for state in trainer.optimizer.state.values()]
        norms[clip] = float(torch.stack(moments).sum().sqrt()) / 0.1
        assert last["gradient_norm"] > 0.1
    assert norms[0.01] == pytest.approx(0.01, rel=1e-4)
    assert norms[1e9] == pytest.approx(last["gradient_norm"], rel=1e-5)


def test_fewer_lines_but_never_without_what_was_measured(folder: StageFolder) -> None:
    def measure(step: int, metrics: dict[str, Any]) -> dict[str, float]:
        return {"validation": metrics["loss"] + 1} if step % 4 == 3 else {}

    make_trainer(folder, log_every=5, after_step=measure).run()
    rows = folder.metrics.read()
    assert [row["step"] for row in rows] == [0, 3, 5, 7, 10, 11]
    assert [row["step"] for row in rows if "validation" in row] == [3, 7, 11]


def test_the_terms_that_are_on_are_announced(folder: StageFolder, listener: Listener) -> None:
    make_trainer(folder, terms=[CrossEntropy(coefficient=0.5), ReferenceDivergence(coefficient=0.0)], steps=1).run()
    assert listener.lines[0].endswith("on cpu in float32; loss = cross_entropy × 0.5; from step 0")
    count = sum(parameter.numel() for parameter in Transformer(config()).parameters())
    assert listener.lines[0].startswith(f"{count:,} parameters")


def batches(**streams: list[float]) -> FixedSource:
    return FixedSource([make_batch([TokenSequence([1, 2, 3], streams), TokenSequence([4, 5, 6], streams)], 4)])


def test_nothing_to_learn_from_is_an_error(folder: StageFolder) -> None:
    with pytest.raises(CheckFailed) as caught:
        make_trainer(folder, source=batches(weight=[1.0, 0.0, 0.0])).run()
    assert "step 0 has nothing to learn from: the denominator of the loss term 'cross_entropy' is 0.0" in str(
        caught.value
    )


def test_a_stream_that_a_term_reads_must_be_there(folder: StageFolder) -> None:
    with pytest.raises(CheckFailed) as caught:
        make_trainer(folder, terms=[PolicyGradient()], source=batches(response_mask=[0.0, 1.0, 1.0])).run()
    assert "'policy_gradient' reads advantage, sampled_logprob, which a batch does not have" in str(caught.value)


def test_a_pair_in_two_micro_batches_is_an_error(folder: StageFolder) -> None:
    halves = [
        make_batch(
            [
                TokenSequence(
                    [1, 2, 3], {"chosen": [0, one, one], "rejected": [0, two, two], "reference_logprob": [0.0] * 3}
                )
            ],
            4,
        )
        for one, two in ((1.0, 0.0), (0.0, 1.0))
    ]
    with pytest.raises(CheckFailed, match="a preference pair was split over two micro-batches"):
        make_trainer(folder, terms=[Preference()], source=FixedSource(halves)).run()


def test_numbers_that_are_not_finite_stop_the_run(folder: StageFolder) -> None:
    model = random_model(config())
    with torch.no_grad():
        model.get_parameter("blocks.1.feed_forward.down.weight")[0, 0] = torch.inf
    with pytest.raises(CheckFailed) as caught:
        make_trainer(folder, model=model).run()
    assert "step 0 (data of step 0): loss nan" in str(caught.value)
    assert "weights that are not finite: blocks.1.feed_forward.down.weight" in str(caught.value)
    assert not (folder.path / "checkpoint").exists()


def test_checkpoints_of_a_run_in_progress(folder: StageFolder) -> None:
    """Every third step, the newest two kept; none is left at the end, where weights alone are saved."""
    seen: list[list[str]] = []
    steps = folder.path / "steps"

    def look(step: int) -> None:
        trainer.saver.wait()  # what is written in the background is there
        seen.append(sorted(path.name[-2:] for path in steps.iterdir()) if steps.exists() else [])

    trainer = make_trainer(folder, source=StepSource(look))
    trainer.run()
    assert seen == [[]] * 3 + [["03"]] * 3 + [["03", "06"]] * 3 + [["06", "09"]] * 3
    assert list(steps.iterdir()) == []
    final = folder.path / "checkpoint"
    assert not (final / "training.json").exists()
    loaded = load_model(folder.path).state_dict()
    assert all(torch.equal(value, loaded[name]) for name, value in trainer.model.state_dict().items())
    assert records(folder)[-1]["step"] == 11


def test_guards_that_would_watch_nothing_are_refused_before_the_first_step(folder: StageFolder) -> None:
    """As for a checkpoint that no recipe says the model of; a recipe is refused when it is read."""
    with pytest.raises(RecipeError, match=r"guards\.router_violation: no layer of this model has experts"):
        make_trainer(folder, guards={"router_violation": 3.0})
