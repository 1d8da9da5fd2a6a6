"""What a training run writes of a model with adapters (model/lora.py).

step checkpoints     what trains: adapters, rows of new tokens, their optimizer state. The frozen weights are the input's
STAGE/checkpoint     a plain checkpoint like any other: the adapters merged into the input checkpoint's weights in float32,
                     whatever form these had while training (QLoRA's 4 bits are not rounded into the result)
STAGE/adapter        the adapters alone, as PEFT stores them, with the path of their base; if the model has a PEFT form
STAGE/base           the input checkpoint as the Hugging Face folder that this path must be, unless the input is one already
"""

from __future__ import annotations

import dataclasses
from pathlib import Path

import torch
from torch import Tensor

from ingot.checkpoints.adapter import Adapter, Update, adapted, joined
from ingot.checkpoints.checkpoint import open_model, write_checkpoint
from ingot.checkpoints.classification import LABELS, language_model
from ingot.checkpoints.convert import LARGEST_SHARD, check_space
from ingot.checkpoints.families.table import architecture
from ingot.checkpoints.huggingface import HuggingFacePlan, is_huggingface
from ingot.checkpoints.peft import write_peft
from ingot.model.config import ModelConfig
from ingot.model.lora import LowRank, is_head, lora_layers, trained_rows
from ingot.model.order import whole
from ingot.model.transformer import Transformer
from ingot.train.saving.ranks import Ranks
from ingot.workspace.errors import ArtifactError
from ingot.workspace.files import atomic_folder

ADAPTER, BASE = "adapter", "base"  # folders in a stage's


@torch.no_grad()
def gather_adapter(model: Transformer) -> Adapter:
    """The adapters of a model, or of this rank's pipeline stages, whole, on the CPU; called by all ranks.

    Heads, which train as they are, and buffers that training moves come along.
    """
    assert model.lora is not None
    updates = {
        f"{name}.weight": tuple(map(_gather_update, layer.low_ranks)) for name, layer in lora_layers(model).items()
    }
    numbers = model.lora.train_rows
    rows = {name: (numbers, _on_cpu(whole(model.get_parameter(name)))[list(numbers)]) for name in trained_rows(model)}
    parameters = dict(model.named_parameters())
    replaced = {
        name: _on_cpu(whole(value))
        for name, value in model.state_dict().items()
        if name not in parameters or is_head(name)
    }
    return Adapter(updates, rows, replaced)


def _gather_update(part: LowRank) -> Update:
    down, up = part.whole_factors()
    return Update(*part.span, _on_cpu(down), _on_cpu(up), part.scale)


def _on_cpu(tensor: Tensor) -> Tensor:
    return tensor.detach().cpu().clone()


def write_adapted(stage: Path, final: Path, model: Transformer, ranks: Ranks) -> str | None:
    """Write the merged checkpoint and the adapter by itself; returns why the latter cannot be, if so. Called by all ranks."""
    adapter = gather_adapter(model)
    if model.elsewhere:  # other stages of the pipeline have the rest
        adapter = joined(ranks.each(lambda: adapter))
    return ranks.once(lambda: _write(stage, final, model, adapter))


def _write(stage: Path, final: Path, model: Transformer, adapter: Adapter) -> str | None:
    base = model.lora_base
    assert model.lora is not None and base is not None
    stored = dataclasses.replace(open_model(base), config=model.config)
    with atomic_folder(final) as temporary:
        write_checkpoint(adapted(stored, adapter), temporary)
    try:
        with atomic_folder(stage / ADAPTER) as temporary:
            write_peft(temporary, adapter, model.config, model.lora, str(_loadable(stage / BASE, base, model.config)))
    except ArtifactError as error:
        return error.problem
    return None


def _loadable(folder: Path, base: Path, config: ModelConfig) -> Path:
    """What PEFT can load the base from: the input itself, or the copy of it that `folder` becomes."""
    stored, wanted = open_model(base), language_model(config)
    if is_huggingface(base) and architecture(language_model(stored.config)) == architecture(wanted):
        return base.absolute()
    plan = HuggingFacePlan(dataclasses.replace(stored, config=wanted), LARGEST_SHARD)
    if config.heads:
        plan.values |= LABELS  # else transformers gives a sequence classifier two scores
    check_space(folder, plan.tensors.bytes)
    with atomic_folder(folder) as temporary:
        plan.write(temporary, lambda _: None)
    return folder.absolute()
