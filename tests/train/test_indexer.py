"""Sparse attention in training: the indexer of a preset learns which keys attention needs, and one that cannot learn is said."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from pydantic import ValidationError
from torch import Tensor

from ingot.kernels.attention.attend_latent import probabilities
from ingot.kernels.sparse.dense_divergence import visible
from ingot.model.config import ModelConfig
from ingot.model.context import Context
from ingot.model.initialise import initialise
from ingot.model.mixers.mla import Mla
from ingot.model.mixers.sparse import select, sight
from ingot.model.presets.preset import preset, presets
from ingot.model.transformer import Transformer
from ingot.tokens.batch import Batch
from ingot.tokens.batch import TokenSequence as Text
from ingot.tokens.packing import make_batch
from ingot.train.batches import deal
from ingot.train.pretrain_config import PretrainConfig
from ingot.train.source import Source
from ingot.workspace.stage import StageFolder
from tests.making.stages import Listener
from tests.train.pretraining import CONFIG
from tests.train.test_freeze import LATENT, sparse_model
from tests.train.toy import make_trainer, run_without_final_checkpoint

ROW, KEEP, SYMBOLS = 64, 8, 24
MINIS = [one.name for one in presets() if one.mini and "SparseConfig" in str(one.model.blocks)]


def text(seed: int) -> list[int]:
    """A row in which every symbol but the first few is one that stood before: there is something to look for."""
    rng = random.Random(seed)
    pattern = [rng.randrange(SYMBOLS) for _ in range(12)]
    return [pattern[place % 12] if rng.random() < 0.8 else rng.randrange(SYMBOLS) for place in range(ROW)]


class Rows(Source):
    """Four new rows in every step."""

    def batches(self, step: int, rank: int = 0, world: int = 1) -> tuple[Sequence[Batch], dict[str, float]]:
        rows = [Text(text(4 * step + row), {"weight": [1.0] * ROW}) for row in range(4)]
        return deal([make_batch(rows, ROW)], rank, world), {}


def small(name: str) -> ModelConfig:
    """The miniature with two layers, which keeps `KEEP` keys; the weight of the indexer's loss is the preset's."""
    whole = preset(name).model_dump()
    dense = whole["blocks"]["dense"]
    dense["mixer"]["sparse"]["keep"] = KEEP
    changes = {"vocabulary_size": SYMBOLS, "blocks": {"dense": dense}, "layers": "dense*2", "multi_token": None}
    return ModelConfig.model_validate({**whole, **changes})


def agreement(layer: Mla, x_BTD: Tensor) -> float:
    """The share of the attention's own `KEEP` best keys that the indexer chose, over the second half of the rows."""
    rows, length, _ = x_BTD.shape
    context = Context(torch.arange(length).expand(rows, -1))
    query_BHTW, latent_BTQ = layer._queries(x_BTD, context)
    index = layer._index(x_BTD, latent_BTQ, context)
    assert index is not None
    chosen = select(index, KEEP, context)[:, ROW // 2 :]
    seen = visible(*sight(context), length)
    attention_BTS = probabilities(layer._absorb(query_BHTW), layer._entries(x_BTD, context), seen, layer.scale).mean(2)
    best = attention_BTS.topk(KEEP, dim=-1).indices[:, ROW // 2 :]
    return (chosen[..., None] == best[..., None, :]).any(-1).float().mean().item()


@torch.no_grad()
def mean_agreement(model: Transformer) -> float:
    """Over all layers, on rows that training does not see."""
    inputs: list[Tensor] = []
    layers = [module for module in model.modules() if isinstance(module, Mla)]
    hooks = [layer.register_forward_pre_hook(lambda _, given: inputs.append(given[0])) for layer in layers]
    model.hidden(torch.tensor([text(10**6 + row) for row in range(8)]))
    for hook in hooks:
        hook.remove()
    found = [agreement(layer, x) for layer, x in zip(layers, inputs, strict=True)]
    return sum(found) / len(found)


@pytest.mark.slow
@pytest.mark.parametrize("name", MINIS)
def test_the_indexer_of_a_preset_learns_to_choose_what_attention_looks_at(name: str, folder: StageFolder) -> None:
    """Chance is 8 keys of 33 to 64: 17 %."""
    model = Transformer(small(name))
    initialise(model, seed=0)
    before = mean_agreement(model)
    trainer = make_trainer(
        folder, model=model, source=Rows(), sequence_length=ROW, steps=60, checkpoints={"every": 100}
    )
    run_without_final_checkpoint(trainer)
    after = mean_agreement(model)
    assert before < 0.4 and after > 0.5, (before, after)


def unweighted(**changes: Any) -> dict[str, Any]:
    """A model whose indexer has no loss."""
    sparse = {**LATENT["sparse"], "loss": 0.0}  # type: ignore[dict-item]
    block = {"mixer": {**LATENT, "sparse": sparse}, "feed_forward": {"width": 16}}
    return {"width": 16, "blocks": {"layer": block}, "layers": "layer", **changes}


def test_a_new_model_whose_indexer_would_stay_random_is_refused() -> None:
    with pytest.raises(
        ValidationError, match=r"the indexer of sparse attention does not train: mixer.sparse.loss is 0"
    ):
        PretrainConfig.model_validate({**CONFIG, "model": unweighted()})


def test_a_checkpoint_whose_indexer_does_not_train_says_so(folder: StageFolder, listener: Listener) -> None:
    shape = sparse_model().config.model_dump()
    shape["blocks"]["layer0"]["mixer"]["sparse"]["loss"] = 0.0
    model = Transformer(ModelConfig.model_validate(shape))
    initialise(model, seed=0)
    run_without_final_checkpoint(make_trainer(folder, model=model, steps=1))
    assert "the indexer of sparse attention does not train: mixer.sparse.loss is 0" in listener.lines
