"""Trains a tiny model for two steps in any layout, and keeps every number: what one process is compared with.

These are the parts of the real loop (source, feed, passes, optimizer, routers' biases) without its files and guards. A step has
8 rows of uneven documents of two sources; micro-batches of 3 rows make ranks' shares uneven too.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from ingot.model.config import ModelConfig
from ingot.model.feed_forward.mixture import update_biases
from ingot.model.initialise import initialise
from ingot.model.lora import add_adapters, is_adapter
from ingot.model.order import orders, whole
from ingot.model.transformer import Transformer
from ingot.optim.adamw import take_step
from ingot.optim.build import make_optimizer
from ingot.tokens.batch import Batch, TokenSequence
from ingot.tokens.packing import make_batch
from ingot.train import float8, prepare
from ingot.train.batches import deal, split_rows
from ingot.train.config import TrainingConfig
from ingot.train.feed import Feed
from ingot.train.freeze import freeze_others
from ingot.train.gradients import clip_factor, gradient_norms, total_norm
from ingot.train.layouts.cases import LENGTH, ROWS, VOCABULARY
from ingot.train.layouts.float8_shards import multiply_by_shards
from ingot.train.lora import choose_spans, keep_rows, rows_optimizer, seed_dropout
from ingot.train.losses.terms import CrossEntropy, LossTerm, MultiTokenPrediction, ZLoss
from ingot.train.parallel.config import MeshConfig
from ingot.train.parallel.layout import make_layout
from ingot.train.parallel.pipeline import make_passes
from ingot.train.passes import Objective
from ingot.train.source import Source

SMALLEST = 16  # a matrix that is multiplied in float8 here
CLIP = 0.5
Numbers = dict[str, Any]
"""values and gradients of every step, weights and buffers at the end, by name."""


class UnevenSource(Source):
    """Steps of 8 rows of uneven documents of two sources, in micro-batches of `rows` rows: 3 makes them uneven too."""

    names = ("even", "odd")

    def __init__(self, rows: int = 3) -> None:
        self.rows = rows

    def batches(self, step: int, rank: int = 0, world: int = 1) -> tuple[Sequence[Batch], dict[str, float]]:
        batch = _step_rows(step)
        sources = torch.arange(len(batch.tokens)) % 2
        batch = Batch(batch.tokens, batch.targets, batch.positions, batch.documents, batch.streams, sources)
        return deal(split_rows(batch, self.rows), rank, world), {}


def uneven(step: int, rows: int = ROWS, length: int = LENGTH) -> Batch:
    """Rows of documents of very different lengths; some tokens have no weight."""
    rng = random.Random(step)
    texts: list[TokenSequence] = []
    batch = None
    while batch is None or len(batch.tokens) < rows:
        for _ in range(10):
            tokens = [rng.randrange(VOCABULARY) for _ in range(rng.choice([2, 3, 7, 19, 33]))]
            texts.append(TokenSequence(tokens, {"weight": [float(rng.random() < 0.8) for _ in tokens]}))
        batch = make_batch(texts, length)
    return Batch(
        batch.tokens[:rows],
        batch.targets[:rows],
        batch.positions[:rows],
        batch.documents[:rows],
        {name: stream[:rows] for name, stream in batch.streams.items()},
    )


_step_rows = lru_cache(uneven)


def fresh(config: ModelConfig, seed: int = 3) -> Transformer:
    """The same weights in every process."""
    model = Transformer(config)
    initialise(model, seed)
    return model


def train_steps(
    config: ModelConfig,
    options: TrainingConfig,
    dtype: torch.dtype,
    *,
    rows: int = 3,
    avoid: Sequence[int] = (),
    scales_of: MeshConfig | None = None,
) -> Numbers:
    """The steps of `options`, on its device and mesh; `dtype` is that of the products. With `lora` every A and B is drawn.

    `avoid` lists experts that no token shall choose. One process multiplies in float8 with the scales that the ranks of the mesh
    `scales_of` have.
    """
    device = torch.device(options.device)
    layout = make_layout(options.mesh, device)
    model = fresh(config).to(dtype if dtype == torch.float64 else torch.float32)
    for name, buffer in model.named_buffers():
        if name.endswith("selection_bias"):
            buffer[list(avoid)] = -100.0
    if options.lora is None:
        freeze_others(model, options.train_only)
    else:
        add_adapters(model, options.lora, choose_spans(model, options.lora))
        draw_adapters(model)
    with small_products(), traced_only(device):
        model = prepare.prepare_model(model, options, layout, device, dtype)
    in_float8 = float8.float8_layers(model)
    if scales_of is not None:
        multiply_by_shards(model, scales_of)
    optimizer, row_orders = make_optimizer(model, rows_optimizer(options.optimizer, model)), orders(model)
    terms: list[LossTerm] = [CrossEntropy(), ZLoss(1e-3)]
    terms += [MultiTokenPrediction()] if config.multi_token is not None else []
    source = UnevenSource(rows)
    objective = Objective(terms, len(source.names), measure_noise=options.measure_noise)
    passes = make_passes(model, objective, device, dtype, layout)
    feed = Feed(source, terms, layout, 0, device)
    values, gradients = [], []
    for step in range(options.steps):
        prepared = feed.get(step)
        seed_dropout(model, 0, step, layout)
        sums = passes.run(prepared.batches, *prepared.totals(layout, device)[:2])
        passes.add_ranks(sums)
        keep_rows(model)
        found = {name: each.grad for name, each in model.named_parameters() if each.grad is not None}
        counted = [name not in passes.counted_elsewhere for name in found]
        norm = total_norm(gradient_norms(list(found.values())), layout, counted)
        gradients.append({name: whole(each, row_orders.get(name)).clone() for name, each in found.items()})
        take_step(optimizer, (1.0 / clip_factor(norm, CLIP)).float(), torch.zeros((), device=device))
        optimizer.zero_grad()
        update_biases(model, sums.record.loads)
        assert sums.source_loss is not None and sums.source_weight is not None
        numbers = {**sums.parts, "norm": norm}
        numbers |= {f"source {number}": each for number, each in enumerate(sums.source_loss / sums.source_weight)}
        numbers |= {f"load {layer}": load.choices_E for layer, load in sums.record.loads.items()}
        values.append({name: value.double() for name, value in numbers.items()})
    weights = {name: whole(each.detach(), row_orders.get(name)) for name, each in model.named_parameters()}
    buffers = {name: each.clone() for name, each in model.named_buffers()}
    buffers |= {f"{name} is in float8": torch.ones(()) for name in in_float8}
    found_numbers = {"values": values, "gradients": gradients, "weights": weights, "buffers": buffers}
    return {kind: to_arrays(each) for kind, each in found_numbers.items()}


@contextmanager
def small_products() -> Iterator[None]:
    """Products in float8 also of matrices as small as the ones here."""
    usual, float8.SMALLEST = float8.SMALLEST, SMALLEST
    try:
        yield
    finally:
        float8.SMALLEST = usual


@contextmanager
def traced_only(device: torch.device) -> Iterator[None]:
    """On a CPU the compiler traces and differentiates blocks, but runs torch's own kernels: seconds instead of minutes."""
    usual, prepare.COMPILER = prepare.COMPILER, "aot_eager" if device.type == "cpu" else prepare.COMPILER
    try:
        yield
    finally:
        prepare.COMPILER = usual


def draw_adapters(model: Transformer) -> None:
    """Fill every A and B, the same in every process: as they start, B is 0, and no gradient reaches A."""
    with torch.no_grad():
        for number, (_, each) in enumerate(named for named in model.named_parameters() if is_adapter(named[0])):
            each.normal_(0, 0.05, generator=torch.Generator().manual_seed(number))


def to_arrays(value: Any) -> Any:
    """With tensors as numpy arrays: what is sent to another process is a copy, not memory that ends with this one."""
    if isinstance(value, Tensor):
        value = value.detach().cpu()
        return (value.float() if value.dtype == torch.bfloat16 else value).numpy()
    if isinstance(value, Mapping):
        return {key: to_arrays(each) for key, each in value.items()}
    return type(value)(to_arrays(each) for each in value) if isinstance(value, list | tuple) else value
