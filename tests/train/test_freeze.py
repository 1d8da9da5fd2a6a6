"""Training a part of a model: the indexer's dense warm-up, and patterns that match nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from ingot.model.config import ModelConfig
from ingot.model.transformer import Transformer
from ingot.workspace.errors import Interrupted, RecipeError
from ingot.workspace.stage import StageFolder
from tests.making.stages import stage_folder
from tests.model.tiny import config, random_model
from tests.train.test_resume import stopping
from tests.train.toy import make_trainer, same_weights

LATENT = {
    "kind": "mla",
    "heads": 2,
    "query_latent": 12,
    "key_value_latent": 10,
    "content_width": 6,
    "rope_width": 4,
    "value_width": 6,
    "sparse": {"heads": 4, "head_width": 6, "keep": 3, "stage": "dense_warmup", "loss": 1.0},
}


def sparse_model() -> Transformer:
    shape = config().model_dump()
    shape["blocks"]["layer0"]["mixer"] = LATENT
    return random_model(ModelConfig.model_validate(shape))


def test_the_warm_up_trains_the_indexer_alone(folder: StageFolder) -> None:
    model = sparse_model()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    trainer = make_trainer(folder, model=model, train_only=["*.indexer.*"], steps=8)
    trainer.run()
    moved = {name for name, value in model.state_dict().items() if not torch.equal(value, before[name])}
    assert moved == {name for name in before if ".indexer." in name}
    rows = folder.metrics.read()
    assert rows[-1]["index_divergence"] < rows[0]["index_divergence"]


def test_a_frozen_part_resumes_exactly(folder: StageFolder, tmp_path: Path) -> None:
    options: dict[str, Any] = {"train_only": ["*.indexer.*"], "steps": 8}
    whole = make_trainer(folder, model=sparse_model(), **options)
    whole.run()
    cut = stage_folder(tmp_path / "cut")
    with pytest.raises(Interrupted):
        make_trainer(cut, model=sparse_model(), source=stopping(cut, 5), **options).run()
    again = make_trainer(stage_folder(cut.path), model=sparse_model(), **options)
    again.run()
    assert same_weights(whole.model.state_dict(), again.model.state_dict())


def test_a_pattern_that_matches_nothing_is_an_error(folder: StageFolder) -> None:
    with pytest.raises(RecipeError, match=r"train_only: \*.adapter.\* matches no parameter"):
        make_trainer(folder, train_only=["*.mixer.*", "*.adapter.*"])


def test_a_pattern_after_an_exclamation_mark_is_frozen(folder: StageFolder) -> None:
    model = sparse_model()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    make_trainer(folder, model=model, train_only=["!*.indexer.*"], steps=2).run()
    same = {name for name, value in model.state_dict().items() if torch.equal(value, before[name])}
    assert same == {name for name in before if ".indexer." in name}
    assert "index_divergence" not in folder.metrics.read()[-1]
