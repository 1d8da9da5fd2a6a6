"""Multi-token prediction modules in Hugging Face folders (DeepSeek-V3, GLM-4.5, GLM-5).

They follow the last layer: module k of a model with L layers is `model.layers.{L + k}`, a layer like the others plus

    enorm, hnorm, eh_proj, shared_head.norm        our embedding_norm, state_norm, input, norm
    embed_tokens, shared_head.head                 copies of the model's own embedding and head

config.json says how many there are (`num_nextn_predict_layers`), but not whether the weights come with it: transformers keeps
the number and saves none of them. So they are read if both the number and the tensors are there.
"""

from __future__ import annotations

from collections.abc import Callable

from ingot.checkpoints.families.family import Layout, TensorMap, ViewPair, maps_to
from ingot.checkpoints.families.keys import Keys, Values
from ingot.model.config import BlockConfig, ModelConfig, MultiTokenConfig
from ingot.model.mixers.mixer import Site

STEPS = "num_nextn_predict_layers"
NAMES = {
    "enorm.weight": "embedding_norm.gain",
    "hnorm.weight": "state_norm.gain",
    "eh_proj.weight": "input.weight",
    "shared_head.norm.weight": "norm.gain",
}
"""Theirs: ours."""


def read_multi_token(keys: Keys, config: ModelConfig) -> ModelConfig:
    """The model with the modules that its checkpoint has; each is a block like the last layer.

    If only the configuration is known, its number counts.
    """
    found = keys.tensors is not None and f"model.layers.{config.depth}.eh_proj.weight" in keys.tensors
    steps = keys.get(STEPS, keys.get("num_mtp_layers", 1 if found else 0))  # 1 is the default of transformers
    if steps == 0 or (keys.tensors is not None and not found):
        return config
    return config.model_copy(update={"multi_token": MultiTokenConfig(steps=steps, block=config.layer_names[-1])})


def write_multi_token(config: ModelConfig) -> Values:
    """The same in config.json; one module that serves all steps is written as one step."""
    return {STEPS: _count(config)}


def multi_token_layout(config: ModelConfig, layer: Callable[[str, str, BlockConfig, Site], Layout]) -> Layout:
    """The modules' tensors; `layer` is the layout of the family's layers (layouts.py)."""
    layout: Layout = {}
    head = "embedding.weight" if config.tied_embeddings else "output.weight"
    for step in range(_count(config)):
        assert config.multi_token is not None
        ours, theirs = f"multi_token.parts.{step}.", f"model.layers.{config.depth + step}."
        layout |= {f"{theirs}{name}": maps_to(f"{ours}{part}") for name, part in NAMES.items()}
        site = Site(config.width, config.depth + step, config.depth, config.norm)
        layout |= layer(f"{ours}block.", theirs, config.blocks[config.multi_token.block], site)
        layout[f"{theirs}embed_tokens.weight"] = TensorMap((ViewPair("embedding.weight"),), duplicate=True)
        layout[f"{theirs}shared_head.head.weight"] = TensorMap((ViewPair(head),), duplicate=True)
    return layout


def _count(config: ModelConfig) -> int:
    if config.multi_token is None:
        return 0
    return 1 if config.multi_token.shared else config.multi_token.steps
