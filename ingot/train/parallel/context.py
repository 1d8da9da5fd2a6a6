"""Context parallelism in a training step: each rank of the `context` axis computes some tokens of every row.

model/context_parallel.py says which tokens, and how activations are exchanged; attention sees the keys of whole rows (or passes
them around a ring, mixers/attend_ring.py), recurrent mixers get whole rows. This file has what else a step needs:

    make_context_parallel    the ranks that share rows, and whether the model's layers support it
    split                    this rank's share of a batch: what is scored here; the shares of all ranks add up to the loss

The ranks of a `context` group read the same rows, so a step's counts are counted from whole rows on each of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ingot.model.context_parallel import ContextParallel
from ingot.model.transformer import Transformer
from ingot.tokens.batch import Batch
from ingot.train.losses.terms import LossTerm
from ingot.train.parallel.layout import Layout
from ingot.workspace.errors import RecipeError


def make_context_parallel(
    model: Transformer, layout: Layout | None, terms: Sequence[LossTerm] = ()
) -> ContextParallel | None:
    """The ranks that share this one's rows; None where rows are not divided."""
    if layout is None or layout.size("context") == 1:
        return None
    for term in terms:
        if not term.by_token:
            raise RecipeError(
                f"the loss term {term.name!r} looks at whole sequences, which context parallelism divides",
                place="mesh.context",
                fix="set mesh.context to 1",
            )
    mesh = layout.mesh["context"]
    return ContextParallel(
        mesh.get_group(), mesh.get_local_rank(), mesh.size(), ring=layout.config.context_method == "ring"
    )


def split(batch: Batch, context_parallel: ContextParallel | None) -> Batch:
    """The tokens of a batch of whole rows that are scored on this rank."""
    if context_parallel is None:
        return batch
    return Batch(
        context_parallel.own(batch.tokens),
        context_parallel.own(batch.targets),
        context_parallel.own(batch.positions),
        context_parallel.own(batch.documents),
        {name: context_parallel.own(stream) for name, stream in batch.streams.items()},
        batch.sources,
        None if batch.metadata is None else replace(batch.metadata, scored=None),
        {name: context_parallel.own(vector) for name, vector in batch.vectors.items()},
    )
