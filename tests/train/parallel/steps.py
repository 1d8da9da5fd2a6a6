"""A few steps of the real trainer on any layout: what one process is compared with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy
import torch

from ingot.model.config import ModelConfig
from ingot.model.feed_forward.mixture import update_biases
from ingot.model.lora import add_adapters, is_adapter
from ingot.model.order import orders, whole
from ingot.model.transformer import Transformer
from ingot.optim.build import make_optimizer
from ingot.tokens.batch import Batch
from ingot.train.batches import deal, split_rows
from ingot.train.config import TrainingConfig
from ingot.train.feed import Feed
from ingot.train.freeze import freeze_others
from ingot.train.gradients import clip_factor, gradient_norms, total_norm
from ingot.train.lora import choose_spans, keep_rows, rows_optimizer, seed_dropout
from ingot.train.losses.terms import CrossEntropy, LossTerm, MultiTokenPrediction, ZLoss
from ingot.train.parallel.layout import make_layout
from ingot.train.parallel.pipeline import make_passes
from ingot.train.passes import Objective
from ingot.train.prepare import prepare_model
from ingot.train.source import Source
from tests.train.parallel.models import fresh, uneven
from tests.train.parallel.ranks import plain, run_ranks


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


_step_rows = lru_cache(uneven)


def training(**changes: Any) -> TrainingConfig:
    optimizer = {
        "lr": 0.01,
        "epsilon": 1e-4,
    }  # a larger ε than usual: it does not blow up the last bit of small gradients
    parts = {"steps": 2, "sequence_length": 32, "precision": "float32", "device": "cpu", "optimizer": optimizer}
    return TrainingConfig.model_validate({**parts, **changes})


def train(config: ModelConfig, mesh: dict[str, Any] | None = None, rows: int = 3, **changes: Any) -> dict[str, Any]:
    """Two optimizer steps: every step's sums, all gradients, weights after the last step, biases of routers.

    `avoid` lists experts that no token shall choose, `dtype` is that of the products. With `lora` every A and B is drawn.
    """
    avoid, dtype = changes.pop("avoid", ()), changes.pop("dtype", torch.float32)
    options, device = training(mesh=mesh or {}, **changes), torch.device("cpu")
    layout = make_layout(options.mesh, device)
    model = fresh(config)
    for name, buffer in model.named_buffers():
        if name.endswith("selection_bias"):
            buffer[list(avoid)] = -100.0
    if options.lora is None:
        freeze_others(model, options.train_only)
    else:
        add_adapters(model, options.lora, choose_spans(model, options.lora))
        draw_adapters(model)
    model = prepare_model(model, options, layout, device, dtype)
    optimizer, row_orders = make_optimizer(model, rows_optimizer(options.optimizer, model)), orders(model)
    terms: list[LossTerm] = [CrossEntropy(), ZLoss(1e-3)]
    terms += [MultiTokenPrediction()] if config.multi_token is not None else []
    source = UnevenSource(rows)
    objective = Objective(terms, len(source.names))
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
        optimizer.grad_scale = 1.0 / clip_factor(norm, 0.5)
        gradients.append({name: whole(each, row_orders.get(name)).clone() for name, each in found.items()})
        optimizer.step()
        optimizer.zero_grad()
        update_biases(model, sums.record.loads)
        assert sums.source_loss is not None and sums.source_weight is not None
        numbers = {**sums.parts, "norm": norm}
        numbers |= {f"source {number}": each for number, each in enumerate(sums.source_loss / sums.source_weight)}
        numbers |= {f"load {layer}": load.choices_E for layer, load in sums.record.loads.items()}
        values.append({name: value.double() for name, value in numbers.items()})
    return {
        "values": values,
        "gradients": gradients,
        "weights": {name: whole(each.detach(), row_orders.get(name)) for name, each in model.named_parameters()},
        "buffers": {name: each.clone() for name, each in model.named_buffers()},
    }


def draw_adapters(model: Transformer) -> None:
    """Fill every A and B, the same in every process: as they start, B is 0, and no gradient reaches A."""
    with torch.no_grad():
        for number, (_, each) in enumerate(named for named in model.named_parameters() if is_adapter(named[0])):
            each.normal_(0, 0.05, generator=torch.Generator().manual_seed(number))


def differences(found: Any, expected: Any) -> dict[str, float]:
    """The largest relative difference of each kind: ‖a − b‖ / ‖b‖ of every tensor, |a − b| / |b| of every number."""
    pairs: dict[str, list[tuple[Any, Any]]] = {"values": [], "gradients": [], "weights": [], "buffers": []}
    for one, other in zip(found["values"], expected["values"], strict=True):
        assert one.keys() == other.keys()
        pairs["values"] += [(one[name], other[name]) for name in other]
    for one, other in zip(found["gradients"], expected["gradients"], strict=True):
        assert one.keys() == other.keys()
        pairs["gradients"] += [(one[name], other[name]) for name in other]
    for kind in ("weights", "buffers"):
        assert found[kind].keys() == expected[kind].keys()
        pairs[kind] += [(found[kind][name], expected[kind][name]) for name in expected[kind]]
    return {kind: max((_relative(a, b) for a, b in each), default=0.0) for kind, each in pairs.items()}


def _relative(found: Any, expected: Any) -> float:
    a, b = numpy.asarray(found, numpy.float64), numpy.asarray(expected, numpy.float64)
    assert a.shape == b.shape and numpy.isfinite(a).all() and numpy.isfinite(b).all()
    size = float(numpy.linalg.norm(b))
    return float(numpy.linalg.norm(a - b)) / (size if size > 0 else 1.0)


@dataclass(frozen=True)
class Case:
    """A model and a layout of it; `changes` are those of `train`."""

    name: str
    model: ModelConfig
    mesh: dict[str, Any]
    changes: dict[str, Any] = field(default_factory=dict)

    def alone(self) -> dict[str, Any]:
        """What one process computes: the same for all cases that differ in their layout only."""
        key = f"{self.model.model_dump_json()} {sorted({'rows': 3, **self.changes}.items())}"
        if key not in _alone:
            _alone[key] = plain(train(self.model, **self.changes))
        return _alone[key]


_alone: dict[str, dict[str, Any]] = {}


def run_cases(cases: Sequence[Case]) -> dict[str, dict[str, Any]]:
    """Several cases one after the other in the same processes, which take longer to start than to train."""
    return {case.name: train(case.model, case.mesh, **case.changes) for case in cases}


def compare(cases: Sequence[Case], world: int, store: Path) -> dict[str, list[dict[str, float]]]:
    """The differences from one process of every rank, by case."""
    found = run_ranks(world, run_cases, store, cases)
    return {case.name: [differences(each[case.name], case.alone()) for each in found] for case in cases}
