"""The sizes of a model with adapters, read from its modules: built on the meta device, with the adapters of the recipe.

adapters     numbers of all A and B: they have gradients and moments. Tensor parallelism divides one of them; counted as whole
rows         numbers of the weights of which some rows train: they have gradients and moments as a whole
heads        those of reward and value heads
float32      numbers of the frozen weights that stay in float32; those of the blocks also have a copy in 16 bits
packed       bytes of the frozen weights in fewer bits (model/frozen.py): all of its pipeline stage's in every process
unpacked     numbers of the largest of these, which is written out for each product
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import torch

from ingot.model.config import ModelConfig
from ingot.model.lora import add_adapters, frozen_names, is_adapter, is_head, lora_layers, trained_rows
from ingot.model.lora_config import LoraConfig
from ingot.model.transformer import Transformer
from ingot.train.lora import choose_spans

UNPACKED_BYTES = {"float32": 0, "bfloat16": 2, "int4": 6, "nf4": 11}
"""A number of a weight while it is unpacked: its integer, its float32 value, and what the product reads."""


@dataclass(frozen=True)
class LoraSizes:
    """Numbers of parameters, and bytes of packed weights."""

    adapters: int
    rows: int
    heads: int
    float32: int
    float32_of_blocks: int
    packed: int
    unpacked: int


@lru_cache(maxsize=8)
def _sizes(model: str, lora: str) -> LoraSizes:
    config = LoraConfig.model_validate_json(lora)
    with torch.device("meta"):
        built = Transformer(ModelConfig.model_validate_json(model))
    add_adapters(built, config, choose_spans(built, config))
    rows = trained_rows(built)
    named = dict(built.named_parameters())
    frozen = {name: named[name].numel() for name in frozen_names(built)}
    layers = [layer.frozen for layer in lora_layers(built).values() if layer.frozen is not None]
    return LoraSizes(
        adapters=sum(each.numel() for name, each in named.items() if is_adapter(name)),
        rows=sum(named[name].numel() for name in rows),
        heads=sum(each.numel() for name, each in named.items() if is_head(name)),
        float32=sum(frozen.values()),
        float32_of_blocks=sum(size for name, size in frozen.items() if name.startswith("blocks.")),
        packed=sum(buffer.numel() * buffer.element_size() for layer in layers for buffer in layer.buffers()),
        unpacked=max((layer.shape[0] * layer.shape[1] for layer in layers), default=0),
    )


def lora_sizes(model: ModelConfig, lora: LoraConfig) -> LoraSizes:
    """The sizes of this model with these adapters."""
    return _sizes(model.model_dump_json(), lora.model_dump_json())
