"""Prepares a model for training: moves it to its device, divides it over ranks, sets up recomputation, compiles it.

The order matters: parts are divided over ranks first (tensor, expert, context), then recomputation is set up by block, then
each block is compiled, and last its weights are sharded (FSDP2), so that the gathers lie outside of the compiled code.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import nn

from ingot.model.transformer import Transformer
from ingot.train.config import TrainingConfig
from ingot.train.float8 import use_float8
from ingot.train.parallel.apply import divide_parts, materialise, shard_weights
from ingot.train.parallel.layout import Layout
from ingot.train.recompute import recompute

COMPILER = "inductor"  # torch's name of what makes code of a block
VARIANTS = 64  # of a block's compiled code: kinds of blocks × with and without gradients × shapes


def compile_blocks(model: Transformer) -> None:
    """Compile every block by itself: equal blocks share their code, and the compiler is done in seconds, not minutes."""
    torch._dynamo.config.recompile_limit = VARIANTS
    for block in model.blocks:
        block.compile(backend=COMPILER, dynamic=False)


@contextmanager
def uncompiled(model: nn.Module) -> Iterator[None]:
    """Runs blocks as they are, for passes whose shapes hardly come again: each would be compiled, seconds for milliseconds."""
    compiled = [(part, part._compiled_call_impl) for part in model.modules() if part._compiled_call_impl is not None]
    for part, _ in compiled:
        part._compiled_call_impl = None
    try:
        yield
    finally:
        for part, call in compiled:
            part._compiled_call_impl = call


def is_compiled(config: TrainingConfig, device: torch.device, dtype: torch.dtype) -> bool:
    """Whether blocks are compiled. `auto` leaves float32 alone: its attention is flex (mixers/attend.py), whose kernel inside of
    a block takes a minute to compile, for every shape of a packed batch anew, and float32 is for small models and comparisons."""
    return config.compile == "blocks" or (config.compile == "auto" and device.type == "cuda" and dtype != torch.float32)


def prepare_model(
    model: Transformer,
    config: TrainingConfig,
    layout: Layout | None,
    device: torch.device,
    dtype: torch.dtype,
    fill: Callable[[Transformer], None] | None = None,
) -> Transformer:
    """The model ready for the passes of a step. One that was built on the meta device gets its weights from `fill`."""
    empty = next(model.parameters()).is_meta
    if not empty:
        model = model.to(device)
    if layout is not None:
        divide_parts(model, layout)
    if config.precision == "float8":
        use_float8(model, config.float8_scaling)
    compiled = is_compiled(config, device, dtype)
    recompute(model, config.activations, compiled)
    if compiled:
        compile_blocks(model)
    if layout is not None:
        shard_weights(model, layout, dtype)
    if empty:
        assert fill is not None, "a model without weights needs something that fills them"
        materialise(model, device, fill)
    return model
