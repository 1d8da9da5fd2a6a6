"""A checkpoint of another model or another optimizer: the error says what differs and what to do."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from ingot.workspace.errors import ArtifactError
from tests.model.tiny import config, random_model
from tests.train.saving.small_run import Run, make_saver


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    run, keeper = Run(), make_saver(tmp_path)
    run.train(0, 2)
    run.save(keeper, 2)
    keeper.wait()
    return tmp_path


def message(run: Run, path: Path) -> str:
    before = run.values()
    with pytest.raises(ArtifactError) as caught:
        run.restore(make_saver(path))
    after = run.values()
    assert all(torch.equal(after[name], before[name]) for name in run.model.state_dict()), "the weights are untouched"
    assert str(caught.value).startswith(f"{path / 'steps' / 'step-0000002'}: ")
    return str(caught.value)


def test_another_optimizer(saved: Path) -> None:
    run = Run()
    run.optimizer = torch.optim.SGD(run.model.parameters(), lr=0.1, momentum=0.9)
    said = message(run, saved)
    assert "made by another optimizer: it remembers exp_avg, exp_avg_sq, step, this run's momentum_buffer" in said
    assert "take only the weights" in said


def test_other_parameters_are_trained(saved: Path) -> None:
    run = Run()
    trained = [each for name, each in run.model.named_parameters() if "norm" not in name]
    run.optimizer = torch.optim.AdamW(trained, lr=0.1)
    assert "it remembers blocks.0.feed_forward_norm.gain.exp_avg, this run's does not" in message(run, saved)


def test_another_shape(saved: Path) -> None:
    run = Run()
    run.model = random_model(config(vocabulary_size=100))
    run.optimizer = torch.optim.AdamW(run.model.parameters())
    said = message(run, saved)
    assert "of another model: embedding.weight is " in said
    assert "in it and 100×" in said
    assert "config.json" in said


def test_more_and_fewer_layers(saved: Path) -> None:
    layers = Run().model.config.layers
    run = Run()
    run.model = random_model(config(layers=f"{layers} {layers}"))
    run.optimizer = torch.optim.AdamW(run.model.parameters())
    said = message(run, saved)
    assert "of another model: blocks.2" in said
    assert "is missing in it" in said
    assert "more" in said
