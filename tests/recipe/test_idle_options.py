"""An option of training that its recipe wrote and that would do nothing is refused when the recipe is read.

The option is fine where it acts. What is not written is never refused, nor a default that is.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from ingot.recipe.load import load_recipe
from ingot.train.pretrain_config import PretrainConfig
from ingot.workspace.errors import RecipeError

ATTENTION = {"mixer": {"heads": 2, "key_value_heads": 1, "head_width": 8}, "feed_forward": {"width": 32}}
RECURRENT = {
    "mixer": {"kind": "mamba2", "heads": 4, "head_width": 8, "state": 8},
    "feed_forward": {"width": 32},
}
ROUTED = {**ATTENTION, "feed_forward": {"kind": "moe", "experts": 4, "active": 2, "expert": {"width": 8}}}
NOPE = {**ATTENTION, "mixer": {**ATTENTION["mixer"], "rope": None}}
WINDOWED = {**ATTENTION, "mixer": {**ATTENTION["mixer"], "window": 16}}
NORMED = {**ATTENTION, "mixer": {**ATTENTION["mixer"], "query_key_norm": "head"}}
YARN = {"kind": "yarn", "factor": 2, "original_context": 32}
MUON = {"kind": "muon", "lr": 1e-3}


def model(block: Mapping[str, Any] = ATTENTION, **options: Any) -> dict[str, Any]:
    return {"width": 16, "blocks": {"layer": dict(block)}, "layers": "layer*2", **options}


def read(folder: Path, *stages: Mapping[str, Any], changes: tuple[str, ...] = ()) -> list[Any]:
    """The configs of pre-training stages, each going on from the one before."""
    common = {"steps": 4, "sequence_length": 32, "batch_tokens": 64, "phases": [{"until": 1, "weights": {"a": 1}}]}
    named = {f"stage{number}": {"stage": "pretrain", **common, **stage} for number, stage in enumerate(stages)}
    for name in list(named)[1:]:
        named[name] |= {"inputs": {"checkpoint": list(named)[list(named).index(name) - 1]}}
    inputs = {"tokenizer": str(folder / "tokenizer"), "shards": str(folder / "shards")}
    path = folder / "recipe.yaml"
    path.write_text(yaml.safe_dump({"inputs": inputs, "stages": named}, sort_keys=False), encoding="utf-8")
    return [stage.config for stage in load_recipe(path, changes, absent=True).stages]


OPTIONS: dict[str, tuple[dict[str, Any], str, dict[str, Any]]] = {
    "decay of cosine": (
        {"schedule": {"kind": "cosine", "decay": 0.3}},
        "schedule: decay: a cosine",
        {"schedule": {"decay": 0.3}},
    ),
    "decay_shape of constant": (
        {"schedule": {"kind": "constant", "decay_shape": "cosine"}},
        "schedule: decay_shape: a constant schedule does not use it; leave it out, or choose wsd",
        {"schedule": {"decay_shape": "cosine"}},
    ),
    "milestones of cosine": (
        {"schedule": {"kind": "cosine", "milestones": [{"at": 0.5, "factor": 0.1}]}},
        "schedule: milestones: a cosine",
        {"schedule": {"kind": "multi_step", "milestones": [{"at": 0.5, "factor": 0.1}]}},
    ),
    "final of constant": (
        {"schedule": {"kind": "constant", "final": 0.1}},
        "schedule: final: a constant schedule does not use it; leave it out, or choose wsd or cosine",
        {"schedule": {"kind": "cosine", "final": 0.1}},
    ),
    "final of no decay": (
        {"schedule": {"decay": 0, "final": 0.1}},
        "schedule: final: there is no decay",
        {"schedule": {"decay": 1, "warmup": 0, "final": 0.1}},
    ),
    "final of multi_step": ({"schedule": {"kind": "multi_step", "final": 0.1}}, "schedule: final: a multi_step", {}),
    "decay of multi_step": ({"schedule": {"kind": "multi_step", "decay": 0.1}}, "schedule: decay: a multi_step", {}),
    "scales of no float8": (
        {"float8_scaling": "row"},
        r"float8_scaling: nothing is multiplied in float8 \(precision: auto\)",
        {"float8_scaling": "row", "precision": "float8"},
    ),
    "a budget that is not kept to": (
        {"activations": {"keep": "blocks", "budget": 0.4}},
        "activations: budget: keep: blocks has none",
        {"activations": {"keep": "budget", "budget": 0.4}},
    ),
    "a way to divide rows": (
        {"mesh": {"context_method": "ring"}},
        "mesh: context_method: no row is divided",
        {"mesh": {"context_method": "ring", "context": 2}},
    ),
    "a schedule of no pipeline": (
        {"mesh": {"pipeline_schedule": "interleaved", "pipeline_stages": 2}},
        "mesh: pipeline_schedule, pipeline_stages: layers are not divided",
        {"mesh": {"pipeline_schedule": "interleaved", "pipeline_stages": 2, "pipeline": 2}},
    ),
    "weights that are not gathered": (
        {"mesh": {"shard": 1, "reshard_after_forward": False}},
        "mesh: reshard_after_forward: no weights are gathered",
        {"mesh": {"reshard_after_forward": False}},
    ),
    "rewinds without rewinding": (
        {"guards": {"rewinds": 4}},
        "guards: rewinds: spike: warn never rewinds",
        {"guards": {"rewinds": 2, "spike": "rewind"}},
    ),
    "spikes that nobody looks for": (
        {"guards": {"spike": "off", "spike_sigmas": 9.0}},
        "guards: spike_sigmas: spikes are not looked for",
        {"guards": {"spike_sigmas": 9.0}},
    ),
    "experts of a dense model": (
        {"guards": {"dead_expert_steps": 20, "router_violation": 3.0}},
        "guards.dead_expert_steps: no layer of this model has experts",
        {"guards": {"dead_expert_steps": 20, "router_violation": 3.0}, "model": model(ROUTED)},
    ),
    "Muon on a tied head": (
        {"optimizer": {**MUON, "head": "muon"}},
        "optimizer.head: muon updates a head of its own",
        {"optimizer": {**MUON, "head": "muon"}, "model": model(tied_embeddings=False)},
    ),
    "heads of a model without heads": (
        {"optimizer": {**MUON, "split_heads": True}, "model": model(RECURRENT)},
        "optimizer.split_heads: no mixer of this model",
        {"optimizer": {**MUON, "split_heads": True}},
    ),
    "logits of a model without attention": (
        {"optimizer": {"qk_clip": 100}, "model": model(RECURRENT)},
        "optimizer.qk_clip: there is nothing to clip",
        {"optimizer": {"qk_clip": 100}},
    ),
    "logits that norms bound": (
        {"optimizer": {**MUON, "qk_clip": 100}, "model": model(NORMED)},
        "optimizer.qk_clip: there is nothing to clip",
        {"optimizer": {**MUON, "qk_clip": 100}},
    ),
    "a context that is not trained": (
        {"model": model(context=64)},
        r"model.context: .* sequence_length \(32\)",
        {"model": model(context=32)},
    ),
    "a scale beside a std": (
        {"model": model(initial={"scale": 0.5})},
        "model.initial.scale: std is 0.02 whatever it is",
        {"model": model(initial={"scale": 0.5, "std": None})},
    ),
    "a std beside that of xavier": (
        {"model": model(initial={"distribution": "xavier", "std": 0.1})},
        "model.initial.std: xavier has a std of its own",
        {"model": model(initial={"distribution": "truncated", "std": 0.1})},
    ),
    "a scale of one, rounded": (
        {"model": model(embedding_scale_rounded=True)},
        "model.embedding_scale_rounded: there is no embedding_scale",
        {"model": model(embedding_scale_rounded=True, embedding_scale=3.3)},
    ),
    "a type that is none": (
        {"model": model(export_as="lama")},
        "model.export_as: unknown model type 'lama'; did you mean llama?",
        {"model": model(export_as="llama")},
    ),
}


@pytest.mark.parametrize("case", OPTIONS)
def test_an_option_without_effect_is_refused(case: str, tmp_path: Path) -> None:
    refused, message, fine = OPTIONS[case]
    with pytest.raises(RecipeError, match=message):
        read(tmp_path, {"model": model(), **refused})
    assert read(tmp_path, {"model": model(), **fine})


@pytest.mark.parametrize(
    ("block", "change", "message"),
    [
        (NOPE, {"rope_base": 1e6}, "rope_base: no layer of the model rotates its positions"),
        (
            NOPE,
            {"rope_scaling": YARN},
            "rope_scaling: no layer of the model rotates its positions and sees the whole text",
        ),
        (
            WINDOWED,
            {"rope_scaling": YARN},
            "rope_scaling: no layer of the model rotates its positions and sees the whole",
        ),
        (ATTENTION, {"multi_token_weight": 0.1}, "multi_token_weight: the model has no multi-token prediction"),
        (ATTENTION, {"bias_rate": 0.0}, "bias_rate: no router of the model has a balancer"),
        (ATTENTION, {"optimizer": {**MUON, "head": "muon"}}, "optimizer.head: muon updates a head of its own"),
    ],
)
def test_a_later_stage_is_checked_against_the_model_it_goes_on_with(
    block: Mapping[str, Any], change: Mapping[str, Any], message: str, tmp_path: Path
) -> None:
    """Also two stages on: the model is that of the first."""
    longer = {"sequence_length": 64}
    with pytest.raises(RecipeError, match=rf"stage2\.{message}"):
        read(tmp_path, {"model": model(block)}, longer, longer | dict(change))


def test_layers_that_rotate_take_the_change(tmp_path: Path) -> None:
    longer = {"sequence_length": 64}
    assert read(tmp_path, {"model": model(WINDOWED)}, longer | {"rope_base": 1e6})
    mixed = model() | {"blocks": {"layer": ATTENTION, "near": WINDOWED, "free": NOPE}, "layers": "layer near free"}
    assert read(tmp_path, {"model": mixed}, longer | {"rope_base": 1e6, "rope_scaling": YARN})
    unused = model() | {"blocks": {"layer": ATTENTION, "free": NOPE}, "layers": "free*2"}
    with pytest.raises(RecipeError, match="rope_base: no layer"):
        read(tmp_path, {"model": unused}, longer | {"rope_base": 1e6})


def test_defaults_that_are_spelt_out_are_no_choice(tmp_path: Path) -> None:
    """A stage's recipe.yaml has them all and must run again; over a recipe with a `decay` its default takes that away."""
    (config,) = read(tmp_path, {"model": model(context=32, initial={"std": None, "scale": 0.5})})
    spelt_out = config.model_dump(mode="json")
    spelt_out["model"]["context"] = 2048
    assert read(tmp_path, spelt_out)
    below = {"model": model(), "schedule": {"warmup": 0.1, "decay": 0.4}}
    with pytest.raises(RecipeError, match="decay: a cosine schedule"):
        read(tmp_path, below, changes=("stage0.schedule.kind=cosine",))
    assert read(tmp_path, below, changes=("stage0.schedule.kind=cosine", "stage0.schedule.decay=0.2"))


def test_what_a_preset_brings_is_not_written(tmp_path: Path) -> None:
    """A miniature has {std: null, scale: 0.5}; a std of one's own over it leaves a scale that nobody wrote."""
    over = {"preset": "qwen3-8b-mini", "initial": {"std": 0.03}}
    (config,) = read(tmp_path, {"model": over})
    assert isinstance(config, PretrainConfig) and config.model is not None
    assert (config.model.initial.std, config.model.initial.scale) == (0.03, 0.5)
