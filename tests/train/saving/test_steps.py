"""Which checkpoints are kept, and finding one to branch from."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingot.checkpoints.checkpoint import load_model
from ingot.train.saving.config import CheckpointsConfig
from ingot.train.saving.steps import Steps, find_step, steps_to_keep
from ingot.workspace.errors import ArtifactError
from ingot.workspace.files import read_json
from tests.train.saving.small_run import Run, make_saver, names, same


def test_the_newest_the_multiples_and_the_best_are_kept(tmp_path: Path) -> None:
    run, keeper = Run(), make_saver(tmp_path, keep=2, keep_every=4, keep_best=True)
    validations = {1: 3.0, 2: 2.0, 3: 2.5, 4: 2.2, 5: 2.0, 6: None, 7: 2.1}
    expected = {
        1: [1],
        2: [1, 2],
        3: [2, 3],
        4: [2, 3, 4],
        5: [2, 4, 5],  # as good is not better
        6: [2, 4, 5, 6],
        7: [2, 4, 6, 7],
    }
    for step, validation in validations.items():
        run.train(step - 1, step)
        training = {} if validation is None else {"validation_bits_per_byte": validation}
        run.save(keeper, step, **training)
        keeper.wait()
        assert Steps(tmp_path).there() == expected[step]
    assert read_json(tmp_path / "steps" / "best.json") == {"step": 2, "validation_bits_per_byte": 2.0}
    assert not keeper.keeps(10, {"validation_bits_per_byte": 2.0})
    assert keeper.keeps(10, {"validation_bits_per_byte": 1.9})
    assert keeper.keeps(12, {})
    run.save(keeper, 10, validation_bits_per_byte=1.9)
    keeper.finish(run.model)
    assert Steps(tmp_path).there() == [4, 10], "the best and the multiples outlive the stage"
    assert names(tmp_path) == ["best.json", "step-0000004", "step-0000010"]
    assert same(load_model(tmp_path / "steps" / "step-0000010").state_dict(), dict(run.model.state_dict()))


@given(
    st.sets(st.integers(0, 60)),
    st.integers(1, 4),
    st.none() | st.integers(1, 10),
    st.none() | st.integers(0, 60),
    st.booleans(),
)
def test_the_policy_is_what_its_sentence_says(
    steps: set[int], keep: int, every: int | None, best: int | None, finished: bool
) -> None:
    found = steps_to_keep(steps, CheckpointsConfig(keep=keep, keep_every=every), best, finished=finished)
    for step in range(61):
        newer = len([other for other in steps if other > step])
        wanted = (newer < keep and not finished) or (every is not None and step % every == 0) or step == best
        assert (step in found) == (step in steps and wanted)


def test_a_best_that_the_run_does_not_reach_again_is_forgotten(tmp_path: Path) -> None:
    """The newest is damaged and was the best: its validation must not stand in the way of the one that is made again."""
    run, keeper = Run(), make_saver(tmp_path, keep=2, keep_best=True)
    for step, validation in ((1, 3.0), (2, 1.0)):
        run.train(step - 1, step)
        run.save(keeper, step, validation_bits_per_byte=validation)
    keeper.wait()
    (tmp_path / "steps" / "step-0000002" / "config.json").write_text("{}")
    assert run.restore(keeper) == {"step": 1, "validation_bits_per_byte": 3.0}
    assert Steps(tmp_path).there() == [1]
    run.save(keeper, 2, validation_bits_per_byte=1.0)
    keeper.wait()
    assert Steps(tmp_path).best() == (2, 1.0)


def test_a_step_to_branch_from(tmp_path: Path) -> None:
    run, keeper = Run(), make_saver(tmp_path, keep=1, keep_every=2)
    for step in range(1, 6):
        run.train(step - 1, step)
        run.save(keeper, step)
    keeper.finish(run.model)
    assert find_step(tmp_path, 4) == tmp_path / "steps" / "step-0000004"
    assert load_model(find_step(tmp_path, 2)).config == run.model.config
    with pytest.raises(ArtifactError) as caught:
        find_step(tmp_path, 5)
    assert "no checkpoint of step 5; there are those of 2, 4" in str(caught.value)
    with pytest.raises(ArtifactError, match=r"no step at all(.|\n)*keep_every"):
        find_step(tmp_path / "elsewhere", 5)
