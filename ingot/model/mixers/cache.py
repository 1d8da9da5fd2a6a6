"""Caches of the sequences being sampled: keys and values in pages, or recurrent states. Every mixer makes its own kind.

* `TokenCache` keeps something for every token (keys and values, a latent, indexer keys) in pages of P tokens, as in
  PagedAttention (Kwon et al., arXiv 2309.06180). Row b of a pass has a table of R pages, and the token at position p lies in

      page table[b, ⌊p/P⌋ mod R]   at offset p mod P.

  Where the pages come from is the one difference. *Handed out*: the table comes with the pass (`context.pages_BR`), so
  sequences can have pages in common. *Owned*: every slot has R pages of its own. A layer that sees only a window or a chunk
  owns a ring: R·P holds what a query can see and the new tokens of a pass, and older tokens are written over.
* `StateCache` keeps a state that stands for the whole past (recurrent state, the convolution's last inputs), one per slot. A
  row that starts at position 0 starts from zeros.
* `JointCache` holds several caches, for mixers made of two.

A slot's content (a state, a ring) is valid after exactly the tokens that were read, and can only be copied as a whole; of
pages that were handed out, any beginning is a valid cache (`in_pages`).

Padding at the end of a row is written to page 0, which no sequence has.

Shapes: B rows, T new tokens, H heads, W width, S keys, N pages, P tokens of a page, R pages of a row.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ingot.kernels.attention.attend_paged import read_pages
from ingot.kernels.attention.write_kv import write_entries

if TYPE_CHECKING:
    from ingot.model.context import Context

PAGE = 16  # tokens
PADDING_PAGE = 0  # padding is written here; no sequence reads it


@dataclass(frozen=True)
class CacheShape:
    """The size of caches: `slots` sequences of at most `length` tokens."""

    slots: int
    length: int
    pages: int | None = None  # that are handed out, page 0 included; None: every slot owns pages for its whole length
    page: int = PAGE
    piece: int | None = None  # the most new tokens of a sequence in one pass; None: `length`

    def pages_for(self, tokens: int) -> int:
        """How many pages hold this many tokens."""
        return -(-tokens // self.page)

    @property
    def table_width(self) -> int:
        """Pages of the longest sequence."""
        return self.pages_for(self.length)


class Cache(ABC):
    """The cache of one layer."""

    in_pages: bool  # whether all of it lies in pages that were handed out, so that sequences can share it

    @abstractmethod
    def copy_slots(self, sources: Tensor, targets: Tensor) -> None:
        """Copy all that slots own from slots to slots, all at once: a slot may be both."""

    @abstractmethod
    def copy_pages(self, sources: Tensor, targets: Tensor) -> None:
        """Copy pages that were handed out."""

    @abstractmethod
    def tensors(self) -> list[Tensor]:
        """All memory."""


class TokenCache(Cache):
    """Named streams [N, H, P, W], one entry per token; `reach` is how far back a query sees (None: all the way)."""

    def __init__(
        self,
        streams: Mapping[str, tuple[int, int]],
        cache_shape: CacheShape,
        dtype: torch.dtype,
        device: torch.device,
        reach: int | None = None,
    ) -> None:
        self.page = cache_shape.page
        ring = None if reach is None else cache_shape.pages_for(reach + (cache_shape.piece or cache_shape.length)) + 1
        if ring is not None and ring >= cache_shape.table_width:
            ring = None
        self.own_pages: int | None = ring  # pages of a slot; None: handed out
        if cache_shape.pages is None and ring is None:
            self.own_pages = cache_shape.table_width
        pages = cache_shape.pages or 0
        if self.own_pages is not None:
            pages = 1 + cache_shape.slots * self.own_pages
        self.streams = {
            name: torch.zeros(pages, heads, cache_shape.page, width, dtype=dtype, device=device)
            for name, (heads, width) in streams.items()
        }
        self.in_pages = self.own_pages is None

    def table(self, context: Context) -> Tensor:
        """The rows' pages [B, R], int32."""
        count, slots_B = self.own_pages, context.slots_B
        if count is None:
            assert context.pages_BR is not None, "a pass over pages that are handed out needs a table"
            return context.pages_BR
        assert slots_B is not None
        return context.once(
            ("own pages", count),
            lambda: (1 + slots_B[:, None] * count + torch.arange(count, device=slots_B.device)).int(),
        )

    def write(self, context: Context, **values_BHTW: Tensor) -> None:
        """Write the new tokens' entries of the named streams at the rows' positions."""
        page_BT, offset_BT = self.pages_and_offsets(context)
        for name, value in values_BHTW.items():
            write_entries(self.streams[name], value, page_BT, offset_BT)

    def pages_and_offsets(self, context: Context) -> tuple[Tensor, Tensor]:
        """The page of every new token [B, T], and its offset there."""
        return context.once(("pages", self.own_pages, self.page), lambda: self._pages_and_offsets(context))

    def _pages_and_offsets(self, context: Context) -> tuple[Tensor, Tensor]:
        table_BR, positions_BT = self.table(context), context.positions_BT
        page_BT = table_BR.gather(1, positions_BT // self.page % table_BR.shape[1]).long()
        if context.lengths_B is not None:
            index_T = torch.arange(positions_BT.shape[1], device=positions_BT.device)
            page_BT = page_BT.masked_fill(index_T >= context.lengths_B[:, None], PADDING_PAGE)
        return page_BT, positions_BT % self.page

    def read(self, name: str, context: Context) -> Tensor:
        """A copy of the rows' entries [B, H, S, W]: S is the pass's reach, and index = position; or a whole ring."""
        assert context.reach is not None
        return read_pages(self.streams[name], self.table(context), context.reach)

    def copy_slots(self, sources: Tensor, targets: Tensor) -> None:
        count = self.own_pages
        if count is not None:
            pages = torch.arange(count, device=sources.device)
            self._copy(*((1 + slots[:, None] * count + pages).flatten() for slots in (sources, targets)))

    def copy_pages(self, sources: Tensor, targets: Tensor) -> None:
        if self.own_pages is None:
            self._copy(sources, targets)

    def _copy(self, sources: Tensor, targets: Tensor) -> None:
        for stream in self.streams.values():
            stream[targets] = stream[sources]

    def tensors(self) -> list[Tensor]:
        return list(self.streams.values())


class StateCache(Cache):
    """Named states [slots, …], each the whole past of its slot."""

    in_pages = False

    def __init__(
        self,
        states: Mapping[str, tuple[int, ...]],
        slots: int,
        dtypes: Mapping[str, torch.dtype],
        device: torch.device,
    ) -> None:
        self.states = {
            name: torch.zeros(slots, *shape, dtype=dtypes[name], device=device) for name, shape in states.items()
        }

    def read(self, name: str, slots_B: Tensor, positions_BT: Tensor) -> Tensor:
        """The slots' states; zeros for rows that start at position 0."""
        state = self.states[name][slots_B]
        fresh = (positions_BT[:, 0] == 0).view(-1, *[1] * (state.dim() - 1))
        return state.masked_fill(fresh, 0)

    def write(self, slots_B: Tensor, **states: Tensor) -> None:
        """The states after this pass's tokens."""
        for name, state in states.items():
            self.states[name][slots_B] = state.to(self.states[name].dtype)

    def copy_slots(self, sources: Tensor, targets: Tensor) -> None:
        for state in self.states.values():
            state[targets] = state[sources]

    def copy_pages(self, sources: Tensor, targets: Tensor) -> None:
        """A state has no pages."""

    def tensors(self) -> list[Tensor]:
        return list(self.states.values())


class JointCache(Cache):
    """Several caches that move together."""

    def __init__(self, **parts: Cache) -> None:
        self.parts = parts
        self.in_pages = all(part.in_pages for part in parts.values())

    def copy_slots(self, sources: Tensor, targets: Tensor) -> None:
        for part in self.parts.values():
            part.copy_slots(sources, targets)

    def copy_pages(self, sources: Tensor, targets: Tensor) -> None:
        for part in self.parts.values():
            part.copy_pages(sources, targets)

    def tensors(self) -> list[Tensor]:
        return [tensor for part in self.parts.values() for tensor in part.tensors()]
