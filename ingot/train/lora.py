"""LoRA in a training stage: chooses the layers, adds the adapters, and keeps all but some rows of new tokens frozen.

A layer is named as PEFT names it (q_proj) where the model has a Hugging Face form, and always by our own name. What is written
of a model with adapters is in saving/adapter.py.
"""

from __future__ import annotations

from collections.abc import Callable
from fnmatch import fnmatchcase
from pathlib import Path

import torch
from torch.distributed.tensor import DTensor
from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

from ingot.checkpoints.peft import modules_of
from ingot.model.feed_forward.experts import Experts
from ingot.model.linear import Linear
from ingot.model.lora import Span, add_adapters, initialise_adapters, trained_rows
from ingot.model.lora_config import ALL_LINEAR, LoraConfig
from ingot.model.matrices import fused_weights
from ingot.model.transformer import Transformer
from ingot.optim.config import GroupConfig, OptimizerConfig
from ingot.train.parallel.layout import AXES, Layout
from ingot.workspace.config import content_hash
from ingot.workspace.errors import ArtifactError, RecipeError

PLACE = "lora"

Fill = Callable[[Transformer], None]


def adapt(
    model: Transformer, fill: Fill | None, config: LoraConfig | None, base: Path | None, seed: int
) -> Fill | None:
    """Add the adapters that a stage asks for; returns what fills a model that was built empty, adapters included.

    `base` is the checkpoint that the model's weights come from.
    """
    if config is None:
        return fill
    if base is None:
        raise RecipeError("adapters need weights to adapt", place=PLACE, fix="give the stage an input checkpoint")
    check_lora(model, config)
    model.lora_base = base
    add_adapters(model, config, choose_spans(model, config))
    if not next(model.parameters()).is_meta:
        initialise_adapters(model, seed)
        return fill
    assert fill is not None

    def filled(empty: Transformer) -> None:
        fill(empty)
        initialise_adapters(empty, seed)

    return filled


def check_lora(model: Transformer, config: LoraConfig) -> None:
    """Refuse what adapters cannot do, before anything is changed."""
    if model.config.quantisation is not None:
        raise RecipeError(
            "the model trains rounded weights (quantisation), and an adapter's sum would not be rounded",
            place=PLACE,
            fix="train all weights, or a model without `quantisation`",
        )
    size = model.config.vocabulary_size or 0
    if any(row >= size for row in config.train_rows):
        raise RecipeError(
            f"train_rows: token {max(config.train_rows)}, and the model has {size}",
            place=PLACE,
            fix=f"give numbers below {size}",
        )


def choose_spans(model: Transformer, config: LoraConfig) -> dict[str, list[Span]]:
    """The rows of each layer's weight that get an adapter: those of the projections that `layers` names."""
    chosen: dict[str, list[Span]] = {}
    patterns = ("*",) if config.layers == ALL_LINEAR else tuple(config.layers)
    unused = set(patterns)
    projections = find_projections(model)
    for (layer, span), names in projections.items():
        matching = {pattern for pattern in patterns if any(fnmatchcase(name, pattern) for name in names)}
        unused -= matching
        if matching:
            chosen.setdefault(layer, []).append(span)
    if unused:
        known = sorted({names[-1] for names in projections.values()})
        raise RecipeError(
            f"layers: {', '.join(sorted(unused))} matches no linear layer of the blocks",
            place=PLACE,
            fix=f"write all-linear, or names such as {', '.join(known[:8])}; routed experts have no adapters",
        )
    return chosen


def without_adapters(model: Transformer) -> tuple[str, ...]:
    """In words what `all-linear` leaves out that may be most of a model; nothing where it leaves nothing out."""
    experts = {
        parameter for part in model.blocks.modules() if isinstance(part, Experts) for parameter in part.parameters()
    }
    if model.lora is None or model.lora.layers != ALL_LINEAR or not experts:
        return ()
    share = sum(each.numel() for each in experts) / sum(each.numel() for each in model.blocks.parameters())
    return (
        f"lora: the routed experts, {share:.0%} of the blocks' weights, have no adapters: all-linear means the others",
    )


def find_projections(model: Transformer) -> dict[tuple[str, Span], tuple[str, ...]]:
    """Every projection of the blocks' linear layers: (layer, rows) -> its names, ours and the Hugging Face module's."""
    try:
        modules = modules_of(model.config)
    except ArtifactError:  # a model that is in no family
        modules = {}
    known: dict[str, list[tuple[Span, str]]] = {}
    for module, (weight, span) in modules.items():
        known.setdefault(weight, []).append((span, module.rpartition(".")[2]))
    fused = fused_weights(model)
    found: dict[tuple[str, Span], tuple[str, ...]] = {}
    for name, layer in model.blocks.named_modules(prefix="blocks"):
        if not isinstance(layer, Linear):
            continue
        weight = f"{name}.weight"
        spans = known.get(weight, [])
        if sum(span.end - span.start for span, _ in spans) == layer.out_features:
            found |= {(name, span): (name, module) for span, module in spans}
            continue
        stacked = [Span(rows.start, rows.start + rows.heads * rows.width) for rows in fused.get(weight, ())]
        if any(
            rows.stride != rows.width for rows in fused.get(weight, ())
        ):  # they take turns head by head: one projection
            stacked = []
        found |= {(name, span): (name,) for span in stacked or [Span(0, layer.out_features)]}
    return found


def rows_optimizer(config: OptimizerConfig, model: Transformer) -> OptimizerConfig:
    """The optimizer with AdamW and no decay for weights of which some rows train: a row without a gradient must stay."""
    rules = [GroupConfig(match=name, optimizer="adamw", weight_decay=0.0) for name in trained_rows(model)]
    return config.model_copy(update={"groups": (*rules, *config.groups)}) if rules else config


def seed_dropout(model: Transformer, seed: int, step: int, layout: Layout | None) -> None:
    """Make the masks of a step a function of seed, step and rank, so that a run resumes exactly.

    The ranks of `tensor` have the same masks: what they all compute, each of them from the same input, must be the same.
    """
    if model.lora is not None and model.lora.dropout:
        rank = 0 if layout is None else layout.rank(*(axis for axis in AXES if axis != "tensor"))
        torch.manual_seed(int(content_hash([seed, step, rank], digits=15), 16))


@torch.no_grad()
def keep_rows(model: Transformer) -> None:
    """Set the gradients of all other rows to zero: Adam then leaves them exactly as they are."""
    for name in trained_rows(model):
        gradient = model.get_parameter(name).grad
        if gradient is None:
            continue
        assert model.lora is not None
        local, first = gradient, 0
        if isinstance(gradient, DTensor):
            local = gradient.to_local()
            first = _first_row(gradient)
        frozen = torch.ones(len(local), dtype=torch.bool)
        own = [row - first for row in model.lora.train_rows if first <= row < first + len(local)]
        frozen[own] = False
        local[frozen.to(local.device)] = 0


def _first_row(tensor: DTensor) -> int:
    """The first row of this rank's shard."""
    _, offset = compute_local_shape_and_global_offset(tensor.shape, tensor.device_mesh, tensor.placements)
    return int(offset[0])
