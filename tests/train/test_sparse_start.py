"""Sparse attention put on a dense checkpoint: what is new, what stays bit by bit, and what is refused.

The dense model's logits are those of transformers' DeepseekV3 modules (tests/checkpoints/families/test_deepseek.py); here the
model with new indexers must give the very same ones in its warm-up.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from pydantic import ValidationError

from ingot.checkpoints.checkpoint import load_model, save_checkpoint
from ingot.checkpoints.families.table import write_config
from ingot.model.config import ModelConfig
from ingot.model.initialise import initialise
from ingot.model.presets.preset import preset
from ingot.model.transformer import Transformer
from ingot.train.pretrain import run as run_stage
from ingot.train.pretrain_config import PretrainConfig
from ingot.train.start import fill_model, start_model
from ingot.workspace.errors import RecipeError
from tests.making.stages import stage_folder
from tests.train.pretraining import CONFIG, write_inputs
from tests.train.toy import same_weights

INDEXER = {"heads": 4, "head_width": 32, "keep": 8}
WARMUP = {**INDEXER, "stage": "dense_warmup"}
LOSSLESS = {**INDEXER, "loss": 0.0}


def pretrain_config(**changes: Any) -> PretrainConfig:
    given = {**CONFIG, "model": None, "steps": 6, "checkpoints": {"every": 9}, **changes}
    return PretrainConfig.model_validate(given)


def small(**changes: Any) -> ModelConfig:
    """DeepSeek-V3's miniature with a dense layer, a mixture, and multi-token prediction."""
    return ModelConfig.model_validate({"preset": "deepseek-v3-mini", "layers": "dense moe", **changes})


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Shards and a dense checkpoint whose routers' biases have moved."""
    folder = tmp_path_factory.mktemp("inputs")
    made = write_inputs(folder)
    run_stage(pretrain_config(model=small().model_dump()), made, stage_folder(folder / "dense"))
    return {**made, "checkpoint": folder / "dense" / "checkpoint"}


def new_names(model: Transformer) -> set[str]:
    return {name for name in model.state_dict() if ".indexer." in name}


def rest(model: Transformer) -> dict[str, torch.Tensor]:
    return {name: value for name, value in model.state_dict().items() if ".indexer." not in name}


def test_only_indexers_are_new_and_the_warm_up_has_the_dense_logits(inputs: dict[str, Path]) -> None:
    dense = load_model(inputs["checkpoint"])
    model = start_model(pretrain_config(sparse=WARMUP), inputs, 3)
    assert same_weights(rest(model), dense.state_dict())
    layers = ("blocks.0", "blocks.1", "multi_token")
    assert len(new_names(model)) == 3 * 5 and all(any(layer in name for name in new_names(model)) for layer in layers)
    tokens = torch.randint(400, (2, 48), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        assert torch.equal(model(tokens), dense(tokens))
        sparse = start_model(pretrain_config(sparse=INDEXER), inputs, 3)
        assert not torch.equal(sparse(tokens), dense(tokens)), "8 of 48 keys"
    assert dense.config.export_as == "deepseek_v3" and write_config(model.config)[0].types[0] == "deepseek_v32"


def test_new_weights_are_drawn_as_a_new_models_are(inputs: dict[str, Path]) -> None:
    """Each kind has the mean and the deviation that `initialise` gives it, and no two layers the same values."""
    model = start_model(pretrain_config(sparse=INDEXER), inputs, 3)
    fresh = Transformer(model.config)
    initialise(fresh, seed=5)
    states, other = model.state_dict(), fresh.state_dict()
    for name in new_names(model):
        ours, theirs = states[name], other[name]
        if ours.dim() == 1:  # of the norm: ones, and zeros
            assert torch.equal(ours, theirs), name
        else:
            deviation, noise = ours.std().item(), 4 / ours.numel() ** 0.5
            assert abs(ours.mean().item()) < noise * deviation, name
            assert deviation == pytest.approx(theirs.std().item(), rel=2 * noise), name
    pair = [states[f"blocks.{layer}.mixer.indexer.query.weight"] for layer in (0, 1)]
    assert not torch.equal(*pair)


def test_they_are_a_function_of_the_seed_and_the_same_for_a_model_that_is_filled_later(inputs: dict[str, Path]) -> None:
    config = pretrain_config(sparse=INDEXER)
    one, other = (start_model(config, inputs, seed) for seed in (3, 4))
    filled = start_model(config, inputs, 3, empty=True).to_empty(device="cpu")
    fill_model(filled, config, inputs, 3)
    assert same_weights(one.state_dict(), filled.state_dict())
    name = "blocks.0.mixer.indexer.key.weight"
    assert not torch.equal(one.state_dict()[name], other.state_dict()[name])


def test_the_two_stages(inputs: dict[str, Path], tmp_path: Path) -> None:
    """The warm-up moves the indexers alone, not even a router's bias; the sparse stage goes on from their weights."""
    before = start_model(pretrain_config(sparse=WARMUP), inputs, 7)
    assert any(bool(value.any()) for name, value in rest(before).items() if name.endswith("selection_bias"))
    folder = stage_folder(tmp_path / "warmup")
    run_stage(pretrain_config(sparse=WARMUP, train_only=["*.indexer.*"]), inputs, folder)
    after = load_model(folder.path)
    assert same_weights(rest(after), rest(before))
    weights, start = after.state_dict(), before.state_dict()
    assert all(not torch.equal(weights[name], start[name]) for name in new_names(after) if name.startswith("blocks."))
    given = {**inputs, "checkpoint": folder.artifact("checkpoint")}
    model = start_model(pretrain_config(sparse={**INDEXER, "keep": 5}), given, 8)
    assert same_weights(model.state_dict(), weights)
    mixers = [block["mixer"]["sparse"] for block in model.config.model_dump()["blocks"].values()]
    assert [(one["stage"], one["keep"]) for one in mixers] == [("sparse", 5)] * 2


def test_a_layer_that_shares_a_choice_goes_on_sharing_it(inputs: dict[str, Path], tmp_path: Path) -> None:
    blocks = {"dense": {"mixer": {"sparse": WARMUP}}, "moe": {"mixer": {"sparse": {**WARMUP, "shared": True}}}}
    model = Transformer(small(blocks=blocks, vocabulary_size=400, multi_token=None))
    initialise(model, seed=0)
    save_checkpoint(tmp_path / "checkpoint", model)
    later = start_model(pretrain_config(sparse=INDEXER), {**inputs, "checkpoint": tmp_path / "checkpoint"}, 1)
    assert same_weights(later.state_dict(), model.state_dict())


def refused(model: ModelConfig, inputs: dict[str, Path], folder: Path, sparse: dict[str, Any]) -> str:
    save_checkpoint(folder / "checkpoint", Transformer(model))
    with pytest.raises(RecipeError) as caught:
        start_model(pretrain_config(sparse=sparse), {**inputs, "checkpoint": folder / "checkpoint"}, 1)
    return str(caught.value)


def with_mixer(**changes: Any) -> ModelConfig:
    given = {"dense": {"mixer": changes}, "moe": {"mixer": changes}}
    return small(blocks=given, vocabulary_size=400)


@pytest.mark.parametrize(
    ("model", "sparse", "message"),
    [
        (
            {"sparse": INDEXER},
            {**INDEXER, "heads": 8},
            "sparse.heads: block dense has an indexer with 4, and the stage says 8",
        ),
        (
            {"sparse": INDEXER},
            {**INDEXER, "pairing": "interleaved"},
            "sparse.pairing: block dense has an indexer with halves",
        ),
        ({}, {**INDEXER, "shared": True}, "sparse.shared: a layer that is given sparse attention needs an indexer"),
        ({}, LOSSLESS, "sparse.loss is 0: new indexers would stay random"),
        ({}, {**INDEXER, "head_width": 8}, "the indexer's head_width must be at least rope_width (16)"),
        ({"query_latent": None}, INDEXER, "the indexer reads the query latent: set query_latent"),
    ],
)
def test_what_does_not_fit_is_refused(
    inputs: dict[str, Path], tmp_path: Path, model: dict[str, Any], sparse: dict[str, Any], message: str
) -> None:
    assert message in refused(with_mixer(**model), inputs, tmp_path, sparse)


def test_a_model_without_latent_attention_is_refused(inputs: dict[str, Path], tmp_path: Path) -> None:
    llama = ModelConfig.model_validate({**CONFIG["model"], "vocabulary_size": 400})
    assert "sparse: no block of the model has latent attention" in refused(llama, inputs, tmp_path, INDEXER)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"sparse": {**INDEXER, "kept": 3}}, "kept"),
        ({"sparse": {"keep": 3}}, "heads"),
        ({"sparse": INDEXER, "lora": {"rank": 2}}, "lora: adapters are kept without the weights beside them"),
    ],
)
def test_options_that_are_wrong_by_themselves(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        pretrain_config(**changes)


def test_the_warm_up_is_counted_with_all_keys() -> None:
    mixer = preset("deepseek-v3.2").blocks["moe"].mixer
    dense = preset("deepseek-v3").blocks["moe"].mixer
    assert mixer is not None and dense is not None
    sparse = mixer.model_dump()["sparse"]
    warm = type(mixer).model_validate({**mixer.model_dump(), "sparse": {**sparse, "stage": "dense_warmup"}})
    scores = 2 * 64 * 128 * 131072 / 2
    assert warm.mixing_flops(131072) == dense.mixing_flops(131072) + scores > 4 * mixer.mixing_flops(131072)
