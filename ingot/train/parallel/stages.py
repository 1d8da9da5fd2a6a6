"""Cuts a model into the stages of a pipeline: which layers a rank holds, and how it runs them.

    stages of P ranks with V stages each      0 1 … P−1 | P … 2P−1 | …          rank r holds r, r + P, r + 2P, …

Layers are cut where the costliest stage is cheapest. A layer costs its training FLOPs per token (model/count.py), the last stage
those of the head and of multi-token prediction on top; looking up an embedding multiplies nothing and costs nothing. A layer
that reads the choice of an earlier one (shared indexers of sparse attention) stays with it.

The first stage has the embedding, the last one norm, head and multi-token modules. Where the head *is* the embedding, or
multi-token prediction reads it, both ends hold it: their gradients are added (pipeline.py), so that it stays the same on both.

Every rank's model keeps its blocks under their numbers in the whole model: names in optimizers and checkpoints are the same in
all layouts, and a rank reads and writes its own (`elsewhere` are the others).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from torch import Tensor

from ingot.model.config import ModelConfig
from ingot.model.context import Context
from ingot.model.context_parallel import ContextParallel
from ingot.model.count import count
from ingot.model.record import Record
from ingot.model.transformer import Transformer
from ingot.train.parallel.layout import Layout
from ingot.workspace.errors import RecipeError


class StagedTransformer(Transformer):
    """This rank's stages of a model."""

    layers: dict[int, range]  # by stage: those of this rank
    stages: int  # of the whole pipeline
    ends_share: bool  # first and last stage hold the embedding

    def hidden(  # type: ignore[override]
        self,
        tokens_BT: Tensor,
        positions_BT: Tensor,
        documents_BT: Tensor | None,
        *,
        stage: int,
        entering_BTD: Tensor | None,
        record: Record | None = None,
        metadata: Any = None,
        context_parallel: ContextParallel | None = None,
    ) -> Tensor:
        """States [B, T, D] after one stage (of the last one: after the norm); `entering_BTD` left the stage before.

        The rows are those of the whole pass: positions and documents are not sent, because every rank reads them.
        """
        context = Context(positions_BT, documents_BT, record=record, metadata=metadata).part(context_parallel)
        x_BTD = self.embed(context.own(tokens_BT)) if entering_BTD is None else entering_BTD
        blocks = (self.blocks.get_submodule(str(layer)) for layer in self.layers[stage])
        return self.run_blocks(x_BTD, context, blocks, norm=self.norm if stage == self.stages - 1 else None)


def cut_into_stages(model: Transformer, layout: Layout) -> None:
    """Leave this rank's stages in `model`, which becomes a StagedTransformer; done in place."""
    ranks, rank = layout.size("pipeline"), layout.rank("pipeline")
    stages = ranks * layout.config.pipeline_stages
    ranges = divide_layers(model.config, stages)
    first, last, whole = rank == 0, rank == ranks - 1, set(model.state_dict())
    ends_share = model.config.tied_embeddings or model.multi_token is not None
    own = {stage: ranges[stage] for stage in range(rank, stages, ranks)}
    for layer in range(model.config.depth):
        if not any(layer in layers for layers in own.values()):
            delattr(model.blocks, str(layer))  # the others keep their numbers
    if not first and not (last and ends_share):
        del model.embedding
    if not last:
        del model.norm
        if not model.config.tied_embeddings:
            del model.output
        model.multi_token = None
        model.heads.clear()
    if not any(parameter.requires_grad for parameter in model.parameters()):
        raise RecipeError(
            f"no parameter of pipeline rank {rank} (layers {', '.join(map(str, own.values()))}) is trained",
            place="train_only",
            fix="train a part that every stage has, or set mesh.pipeline to 1",
        )
    model.__class__ = StagedTransformer
    assert isinstance(model, StagedTransformer)
    model.layers, model.stages, model.ends_share = own, stages, ends_share
    model.elsewhere = frozenset(whole - set(model.state_dict()))


def divide_layers(config: ModelConfig, stages: int) -> tuple[range, ...]:
    """The layers of every stage."""
    costs, last = layer_costs(config)
    pieces = _inseparable(config)
    if len(pieces) < stages:
        raise RecipeError(
            f"the {config.depth} layers make at most {len(pieces)} stages, the pipeline has {stages}",
            place="mesh.pipeline",
            fix=f"choose pipeline · pipeline_stages of at most {len(pieces)}",
        )
    piece_costs = [sum(costs[layer] for layer in piece) for piece in pieces]
    piece_costs[-1] += last
    cuts = balanced_cuts(piece_costs, stages)
    return tuple(range(pieces[start][0], pieces[end - 1][-1] + 1) for start, end in pairwise(cuts))


def layer_costs(config: ModelConfig) -> tuple[list[int], int]:
    """Training FLOPs per token of each layer at the model's context, and of what follows the last one."""
    head, kinds = 6 * (config.vocabulary_size or 0) * config.width, dict[str, int]()
    for name in dict.fromkeys(config.layer_names):
        alone = ModelConfig.model_validate({**config.model_dump(), "layers": name, "multi_token": None})
        kinds[name] = count(alone).training_flops_per_token(config.context) - head
    costs = [kinds[name] for name in config.layer_names]
    return costs, count(config).training_flops_per_token(config.context) - sum(costs)


def balanced_cuts(costs: Sequence[int], parts: int) -> list[int]:
    """0 = c₀ < c₁ < … = len(costs): the cuts into consecutive parts of which the costliest is as cheap as possible.

    Among several such the one is taken whose parts are more even (by squares), as far as that is decided part by part.
    """
    total = [0]
    for cost in costs:
        total.append(total[-1] + cost)
    best: list[tuple[int, int, list[int]]] = [
        (total[end], total[end] ** 2, [0, end]) if end else (0, 0, [0]) for end in range(len(total))
    ]
    for part in range(2, parts + 1):
        following = list(best)
        for end in range(part, len(total)):
            options = []
            for start in range(part - 1, end):
                largest, squares, cuts = best[start]
                cost = total[end] - total[start]
                options.append((max(largest, cost), squares + cost**2, [*cuts, end]))
            following[end] = min(options)
        best = following
    return best[-1][2]


def _inseparable(config: ModelConfig) -> list[list[int]]:
    """Runs of layers that must be in one stage."""
    pieces: list[list[int]] = []
    for layer in range(config.depth):
        mixer = config.block(layer).mixer
        if pieces and mixer is not None and mixer.needs_layer_before:
            pieces[-1].append(layer)
        else:
            pieces.append([layer])
    return pieces
