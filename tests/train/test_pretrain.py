"""The pre-training stage: where the model starts, what validation measures, and the extension of the context."""

from __future__ import annotations

import math
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch

from ingot.model.checkpoint import load_model, save_checkpoint
from ingot.model.mixers.config import AttentionConfig
from ingot.tokens.shards import Shards
from ingot.tokens.tokenizer import Tokenizer
from ingot.train.config import PretrainConfig
from ingot.train.pretrain import STAGE, start_model
from ingot.workspace.errors import RecipeError
from ingot.workspace.stage import StageFolder
from tests.train.pretraining import CONFIG, write_inputs
from tests.train.toy import stage_folder


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return write_inputs(tmp_path_factory.mktemp("inputs"))


def pretrain_config(**changes: Any) -> PretrainConfig:
    return PretrainConfig.model_validate({**CONFIG, "steps": 4, "checkpoint_every": 9, "validate_every": 2, **changes})


def test_fresh_weights_take_the_vocabulary_and_the_seed(inputs: dict[str, Path]) -> None:
    models = [start_model(pretrain_config(), inputs, seed) for seed in (1, 1, 2)]
    tokenizer = Tokenizer.load(inputs["tokenizer"])
    assert models[0].config.vocabulary_size == tokenizer.vocabulary_size
    assert models[0].config.context == 32
    weights = [model.embedding.weight for model in models]
    assert torch.equal(weights[0], weights[1]) and not torch.equal(weights[0], weights[2])


def test_a_vocabulary_that_is_too_small_is_refused(inputs: dict[str, Path]) -> None:
    config = pretrain_config(model={**CONFIG["model"], "vocabulary_size": 64})
    with pytest.raises(RecipeError, match=r"the tokenizer has \d+ tokens, the model's vocabulary_size is 64"):
        start_model(config, inputs, 1)
    assert start_model(pretrain_config(model={**CONFIG["model"], "vocabulary_size": 512}), inputs, 1) is not None


def test_a_model_and_a_checkpoint_exclude_each_other(inputs: dict[str, Path], tmp_path: Path) -> None:
    for config, given in ((pretrain_config(model=None), {}), (pretrain_config(), {"checkpoint": tmp_path})):
        with pytest.raises(RecipeError, match=r"either `model` \(fresh weights\) or an input checkpoint, and not both"):
            start_model(config, {**inputs, **given}, 1)


def test_extending_the_context_keeps_the_weights(inputs: dict[str, Path], tmp_path: Path) -> None:
    first = start_model(pretrain_config(), inputs, 1)
    save_checkpoint(tmp_path / "checkpoint", first)
    given = {**inputs, "checkpoint": tmp_path / "checkpoint"}
    longer = start_model(pretrain_config(model=None, sequence_length=64, rope_base=40_000.0), given, 1)
    assert longer.config.context == 64
    mixer = longer.config.blocks["layer"].mixer
    assert isinstance(mixer, AttentionConfig) and mixer.rope is not None and mixer.rope.base == 40_000.0
    assert all(torch.equal(value, first.state_dict()[name]) for name, value in longer.state_dict().items())
    shorter = start_model(pretrain_config(model=None, sequence_length=16, batch_tokens=64), given, 1)
    assert shorter.config == first.config, "a shorter stage forgets nothing"
    assert longer.tokenizer is not None and shorter.tokenizer is not None


def test_bits_per_byte_against_document_by_document(inputs: dict[str, Path], folder: StageFolder) -> None:
    """−Σ log2 p of every token but the first of a piece, over the bytes that these tokens stand for.

    A piece is what a window of 256 tokens holds of a document; here each goes through the model by itself.
    """
    shards = Shards(inputs["shards"])
    source = shards.source("validation")
    config = pretrain_config(
        sequence_length=256, batch_tokens=256, validation_rows=99, phases=[{"until": 1.0, "weights": {"late": 1.0}}]
    )
    summary = STAGE.run(config, inputs, folder)
    model = load_model(folder.path)
    bits, size = 0.0, 0
    for start in range(0, len(source) - 1, 256):
        stop = min(start + 256 + 1, len(source))
        cuts = [start, *(int(begin) for begin in source.starts if start < begin < stop), stop]
        for begin, end in pairwise(cuts):
            tokens = torch.from_numpy(source.read(begin, end))
            if len(tokens) < 2:
                continue
            table = model(tokens[None, :-1])[0].detach().double().log_softmax(-1)
            bits -= float(table.gather(-1, tokens[1:, None]).sum()) / math.log(2)
            size += sum(int(shards.token_bytes[token]) for token in tokens[1:].tolist())
    assert summary["validation_bits_per_byte"] == pytest.approx(bits / size, rel=1e-6)
    assert summary["parameters"] == sum(parameter.numel() for parameter in model.parameters())
    rows = folder.metrics.read()
    assert [row["step"] for row in rows if "validation_bits_per_byte" in row] == [1, 3]
    assert rows[-1]["validation_bits_per_byte"] == summary["validation_bits_per_byte"]


def test_micro_batches_do_not_change_the_run(inputs: dict[str, Path], tmp_path: Path) -> None:
    losses = []
    for tokens in (1, 64, 10_000):
        folder = stage_folder(tmp_path / str(tokens))
        STAGE.run(pretrain_config(micro_batch_tokens=tokens), inputs, folder)
        losses.append([row["loss"] for row in folder.metrics.read()])
    assert losses[1] == pytest.approx(losses[0], rel=1e-5)
    assert losses[2] == pytest.approx(losses[0], rel=1e-5)
