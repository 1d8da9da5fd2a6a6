"""The coordinate check of muP: measures the size of activations at several widths over the first steps (arXiv 2203.03466, D.1).

A parametrisation transfers learning rates over widths if every activation keeps its size when the model gets wider, at the start
and after each step. The check trains the same model at several widths on the same few tokens with the same options and records
the mean |activation| of every part. What matters is the slope of log(size) against log(width):

    size ∝ width^slope        muP: no slope stays above 0        standard: slopes near ½ to 1 after a few steps

A slope below 0 is no fault where the part at the start is noise that averages out (the logits of muP begin at width^-½).

Shapes: B rows, T tokens, D width, V vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from ingot.model.block import Block
from ingot.model.config import ModelConfig
from ingot.model.initialise import initialise
from ingot.model.transformer import Transformer
from ingot.optim.build import make_optimizer
from ingot.optim.config import AdamWConfig, MuonConfig

LOGITS = "logits"


@dataclass(frozen=True)
class Coordinate:
    """The mean |activation| of one part, before step `step` is taken (0: as initialised)."""

    width: int
    step: int
    part: str
    size: float


def coordinate_check(
    shape: Callable[[int], ModelConfig],
    widths: Sequence[int],
    *,
    steps: int = 4,
    optimizer: AdamWConfig | MuonConfig | None = None,
    seeds: int = 1,
    rows: int = 8,
    length: int = 16,
) -> list[Coordinate]:
    """Sizes of the embedding, of every block and its halves, and of the logits; `shape(width)` is the model of a width.

    Sizes are means over `seeds` initialisations. The tokens are random ones, the same for all widths, and of every step.
    """
    optimizer = optimizer or AdamWConfig(lr=1e-2, weight_decay=0.0)
    found = []
    for width in widths:
        runs = [_sizes(shape(width), steps, optimizer, seed, rows, length) for seed in range(seeds)]
        for step in range(steps + 1):
            for part in runs[0][step]:
                size = sum(run[step][part] for run in runs) / seeds
                found.append(Coordinate(width, step, part, size))
    return found


def slopes(coordinates: Sequence[Coordinate], step: int) -> dict[str, float]:
    """For each part the slope of log(size) against log(width) after `step` steps, by least squares."""
    result = {}
    for part in dict.fromkeys(one.part for one in coordinates):
        points = [
            (math.log(one.width), math.log(one.size)) for one in coordinates if (one.part, one.step) == (part, step)
        ]
        x, y = torch.tensor(points, dtype=torch.float64).unbind(1)
        x, y = x - x.mean(), y - y.mean()
        result[part] = float((x * y).sum() / (x * x).sum())
    return result


def _sizes(
    config: ModelConfig, steps: int, options: AdamWConfig | MuonConfig, seed: int, rows: int, length: int
) -> list[dict[str, float]]:
    """The sizes in one model before each step and after the last."""
    model = Transformer(config)
    initialise(model, seed)
    optimizer = make_optimizer(model, options)
    assert config.vocabulary_size is not None
    generator = torch.Generator().manual_seed(seed)
    tokens_BT = torch.randint(config.vocabulary_size, (rows, length + 1), generator=generator)
    found = []
    for step in range(steps + 1):
        seen: dict[str, float] = {}
        hooks = [module.register_forward_hook(_record(seen, name)) for name, module in _parts(model)]
        logits_BTV = model(tokens_BT[:, :-1])
        for hook in hooks:
            hook.remove()
        found.append({**seen, LOGITS: float(logits_BTV.detach().abs().mean())})
        if step < steps:
            cross_entropy(logits_BTV.flatten(0, 1), tokens_BT[:, 1:].flatten()).backward()
            for group in optimizer.param_groups:
                group["lr"] = group["peak_lr"]
            optimizer.step()
            optimizer.zero_grad()
    return found


def _parts(model: Transformer) -> list[tuple[str, nn.Module]]:
    """The modules whose outputs are watched, by name."""
    parts: list[tuple[str, nn.Module]] = [("embedding", model.embedding)]
    for number, block in enumerate(model.blocks):
        assert isinstance(block, Block)
        parts.append((f"blocks.{number}", block))
        halves = (("mixer", block.mixer), ("feed_forward", block.feed_forward))
        parts += [(f"blocks.{number}.{name}", half) for name, half in halves if half is not None]
    return parts


def _record(seen: dict[str, float], name: str) -> Callable[[nn.Module, object, Tensor], None]:
    def hook(module: nn.Module, inputs: object, output: Tensor) -> None:
        seen[name] = float(output.detach().abs().mean())

    return hook
