"""Activation recomputation: drops what a block's forward pass made, and computes it again in the backward pass.

    blocks     only what enters each block is kept; a third more FLOPs (Chen et al., arXiv 1604.06174)
    products   what matrix products and attention made is kept too; only cheap things are done twice
    budget     torch.compile weighs memory against work and keeps what fits into the given share

Routers report after their block, outside of what is computed twice (block.py), so they report once. The backward pass runs the
blocks from the last to the first: sparse attention that shares an earlier layer's choice of keys must see that choice again, not
the last one of the model.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import nn
from torch._functorch import config as compiler
from torch.utils.checkpoint import (
    SAC_IGNORED_OPS,
    CheckpointPolicy,
    checkpoint,
    create_selective_checkpoint_contexts,
)

from ingot.model.context import Context
from ingot.model.transformer import Transformer
from ingot.train.config import ActivationsConfig
from ingot.workspace.errors import RecipeError

PRODUCTS = (
    "mm",
    "addmm",
    "bmm",
    "_scaled_mm",
    "_grouped_mm",
    "grouped_product",
    "packed_product",
    "_scaled_dot_product_",
    "_varlen_attn",
    "_flash_attention",
    "delta_rule",
    "decayed_attention",
    "sparse_attention",
    "select_keys",
    "mean_probabilities",
    "chosen_divergence",
    "sum_of_divergences",
)
"""Beginnings of the names of operators whose results are worth keeping."""
# FSDP notes for the profiler when it gathers a group of weights within a block (experts that are divided): not the same number of
# times when the block runs again
SAC_IGNORED_OPS.update(
    (torch.ops.profiler._record_function_enter_new.default, torch.ops.profiler._record_function_exit._RecordFunction)
)
EVERYTHING = 1.0  # the budget that recomputes nothing


def recompute(model: Transformer, config: ActivationsConfig, compiled: bool) -> None:
    """Make the blocks keep what the configuration says."""
    if config.keep == "budget" and not compiled:
        raise RecipeError(
            "activations.keep: budget needs compiled blocks",
            place="activations",
            fix="set compile: blocks, or choose products or blocks",
        )
    if compiled:  # counts for all that is compiled from now on: the budget of one stage must not be that of the next
        compiler.activation_memory_budget = config.budget if config.keep == "budget" else EVERYTHING
    if config.keep in ("blocks", "products"):
        random = model.lora is not None and model.lora.dropout > 0
        # a router notes what it chose (mixture.py): without this the compiler would give such blocks up
        if hasattr(torch._dynamo.config, "skip_fwd_side_effects_in_bwd_under_checkpoint"):  # not in every version
            torch._dynamo.config.skip_fwd_side_effects_in_bwd_under_checkpoint = True
        contexts = None if config.keep == "blocks" else partial(create_selective_checkpoint_contexts, _policy)
        for block in model.blocks:
            block.forward = _recomputing(block, contexts, random=random)


def _recomputing(block: nn.Module, contexts: Callable[[], Any] | None, *, random: bool) -> Callable[..., Any]:
    """`random`: the block draws numbers (dropout of adapters), which must be the same the second time."""
    forward = block.forward
    options: dict[str, Any] = {} if contexts is None else {"context_fn": contexts}

    def run(stream: Any, context: Context, *others: Any) -> Any:
        if not torch.is_grad_enabled():
            return forward(stream, context, *others)
        selected = context.selected

        def with_choice(stream: Any, context: Context, *others: Any) -> Any:
            if context.selected is not selected:  # only the second time: by then a later layer has chosen
                context.selected = selected
            return forward(stream, context, *others)

        return checkpoint(
            with_choice, stream, context, *others, use_reentrant=False, preserve_rng_state=random, **options
        )

    return run


def _policy(context: Any, operator: Any, *arguments: Any, **options: Any) -> CheckpointPolicy:
    name = operator.name().split("::")[-1]
    return CheckpointPolicy.MUST_SAVE if name.startswith(PRODUCTS) else CheckpointPolicy.PREFER_RECOMPUTE
