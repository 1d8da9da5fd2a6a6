"""The model and the caches of a divided engine as its leading rank has them: every call is done by all ranks at once.

The engine is the one of a single device. It schedules, draws and delivers on rank 0 alone, and calls its model as ever; the call
is told to the other ranks (group.py), which run the same with their heads and channels. They decide nothing, so they cannot
disagree: commands are a sequence, and new weights come between the same two steps on all ranks.

Shapes: B rows, T tokens, D width, R pages of a row.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

import torch
from torch import Tensor, distributed

from ingot.inference.divided.commands import (
    CacheBudget,
    ClearCaches,
    Command,
    CopyCaches,
    Hidden,
    Load,
    MakeCaches,
    Project,
    Read,
)
from ingot.inference.divided.rank import Cut, load_part, smallest_cache_budget
from ingot.inference.memory import Copies, CopyKind, Memory
from ingot.inference.weights import EngineWeights, check_shapes
from ingot.model.mixers.cache import Cache, CacheShape
from ingot.model.transformer import Transformer
from ingot.workspace.errors import IngotError

log = logging.getLogger(__name__)


class DividedRanks(Protocol):
    """What the leader needs of the processes that follow it (group.py)."""

    size: int

    def together(self, command: Command) -> AbstractContextManager[None]:
        """All ranks do this: the others by the command, this one by the body."""

    def close(self) -> None:
        """End the followers."""


class LeadingModel(Transformer):
    """Rank 0's part of the model; what it computes is what the whole model would."""

    group: DividedRanks  # both are set by the group that makes it
    cuts: Mapping[str, Cut]

    def hidden(
        self,
        tokens_BT: Tensor,
        positions_BT: Tensor | None = None,
        documents_BT: Tensor | None = None,
        *,
        caches: Sequence[Cache | None] | None = None,
        slots: Tensor | None = None,
        pages: Tensor | None = None,
        lengths: Tensor | None = None,
        reach: int | None = None,
        **training: Any,
    ) -> Tensor:
        """States [B, T, D] of a pass over caches, or of whole texts; a divided engine makes no others."""
        if caches is None:
            assert positions_BT is None and documents_BT is None
            with self.group.together(Read(tuple(tokens_BT.shape))):
                distributed.broadcast(tokens_BT.contiguous(), 0)
                return super().hidden(tokens_BT)
        assert positions_BT is not None and slots is not None and pages is not None and reach is not None
        rows, tokens = tokens_BT.shape
        command = Hidden(rows, tokens, pages.shape[1], lengths is not None, reach)
        parts = [tokens_BT, positions_BT, slots, *([] if lengths is None else [lengths]), pages]
        with self.group.together(command):
            distributed.broadcast(torch.cat([part.reshape(-1).long() for part in parts]), 0)
            states = super().hidden(
                tokens_BT, positions_BT, caches=caches, slots=slots, pages=pages, lengths=lengths, reach=reach
            )
        return states

    def head(self, states_BTD: Tensor) -> Tensor:
        """Logits of the whole vocabulary."""
        if self.cuts[self.head_name].axis is None:
            return super().head(states_BTD)
        with self.group.together(Project(tuple(states_BTD.shape), states_BTD.dtype)):
            distributed.broadcast(states_BTD.contiguous(), 0)
            return super().head(states_BTD)

    @property
    def head_name(self) -> str:
        """The name of the matrix from states to logits."""
        return "embedding.weight" if self.config.tied_embeddings else "output.weight"

    def make_caches(self, cache_shape: CacheShape) -> list[Cache | None]:
        """This rank's caches: those of its heads."""
        with self.group.together(MakeCaches(cache_shape)):
            return super().make_caches(cache_shape)

    def check_options(self, dtype: torch.dtype | None, *, speculates: bool) -> None:
        """An error for what a divided engine cannot do; a word about what it leaves out."""
        own = self.embedding.weight
        if dtype not in (None, own.dtype):
            raise IngotError(f"the parts of a divided model are {own.dtype}, not {dtype}", place="engine")
        if speculates:
            raise IngotError("a divided engine does not speculate", place="speculate", fix="leave speculation out")
        if own.is_cuda:
            log.warning("an engine over %d devices decodes without CUDA graphs", self.group.size)

    def smallest_cache_budget(self) -> int:
        """Bytes that every rank has for caches."""
        with self.group.together(CacheBudget()):
            return smallest_cache_budget(self.embedding.weight.device)


class LeadingMemory(Memory):
    """Pages and slots have the same numbers on all ranks."""

    def __init__(self, model: LeadingModel, count: int, cache_shape: CacheShape) -> None:
        super().__init__(model, count, cache_shape)
        self._group = model.group

    def clean(self) -> None:
        with self._group.together(ClearCaches()):
            super().clean()

    def _copy(self, kind: CopyKind, copies: Copies) -> None:
        with self._group.together(CopyCaches(kind, copies)):
            super()._copy(kind, copies)


class LeadingWeights(EngineWeights):
    """The checksum is that of the whole model. Nobody else has this model, so that writes need only be counted."""

    def __init__(self, model: LeadingModel) -> None:
        self.model: LeadingModel = model
        self._learner, self.checksum, self._source = None, 0, 0  # there are none before the first `load`
        self._counters = self._count_writes()

    def refresh(self) -> None:
        problem = "an engine over several devices has its own copy of the model, so `update` needs the new weights"
        raise IngotError(problem, place="engine.update", fix="give it a state")

    def load(self, state: Mapping[str, Tensor]) -> None:
        cuts, group = self.model.cuts, self.model.group
        own = self.model.state_dict()
        check_shapes(state, {name: cuts[name].whole_shape(part, group.size) for name, part in own.items()})
        with group.together(Load()):
            self.checksum = self._source = load_part(self.model, cuts, state)
        self._counters = self._count_writes()
