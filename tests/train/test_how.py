"""What a stage's hash is made of: the work, not where and how it is done."""

from __future__ import annotations

from typing import Any

import pytest

from ingot.train.config import TrainingConfig
from tests.train.toy import training_config

HOW: dict[str, Any] = {
    "mesh": {"tensor": 2},
    "checkpoints": {"every": 7, "keep": 9},
    "guards": {"spike": "skip"},
    "micro_batch_tokens": 77,
    "activations": {"keep": "blocks"},
    "compile": "off",
    "log_every": 5,
}


@pytest.mark.parametrize("name", sorted(HOW))
def test_how_the_work_is_done_does_not_name_it(name: str) -> None:
    """A run that goes on with other processes, or is saved more often, goes on in the same folder."""
    assert training_config(**{name: HOW[name]}).work() == training_config().work()


def test_what_the_work_is_names_it() -> None:
    for change in ({"steps": 13}, {"precision": "bfloat16"}, {"optimizer": {"lr": 0.02}}, {"train_only": ["*.norm.*"]}):
        assert training_config(**change).work() != training_config().work()


def test_only_fields_that_exist_are_left_out() -> None:
    assert TrainingConfig.how <= TrainingConfig.model_fields.keys()
