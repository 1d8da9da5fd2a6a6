"""Gives requests their cache memory: a slot, pages, and prefixes that other requests have computed before.

A request enters with pages for its whole context. The first of them may be those of others that begin with the same tokens
(pages.py); where the model has states or rings besides its pages, they must come with a snapshot of these (snapshots.py). It
gives everything back when it leaves; what it has computed can be found until its pages are needed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

import torch

from ingot.inference.pages import Match, PagePool
from ingot.inference.request import Request
from ingot.inference.snapshots import Snapshot, Snapshots
from ingot.model.block import Block
from ingot.model.mixers.cache import PAGE, Cache, CacheShape, JointCache
from ingot.model.transformer import Transformer
from ingot.workspace.errors import IngotError

Entry = Literal["in", "coming", "full"]
CopyKind = Literal["slots", "pages"]
Copies = Sequence[tuple[int, int]]  # from … to …
CPU_BYTES = 4 * 2**30
GPU_SHARE = 0.6
CPU_CHUNK = 512  # tokens of prompts that are read between two steps of decoding
IDLE_CHUNK = 2048  # the same at least, where nothing is decoded: in larger passes less is padding
GPU_CHUNKS = (2048, 16384)  # the same, the more the smaller the model:
GPU_OPERATIONS = 8e12  # what a GPU does in about 20 ms, for which the others may wait


class Memory:
    """The caches of all layers. Slots: `count` for requests, as many for snapshots if the model needs them, one for dead rows."""

    def __init__(self, model: Transformer, count: int, cache_shape: CacheShape, *, drafts: bool = False) -> None:
        assert cache_shape.pages is not None
        self.cache_shape, self.device = cache_shape, model.embedding.weight.device
        self.caches: list[Cache | None] = model.make_caches(cache_shape)
        self.draft_cache: Cache | None = None  # of the multi-token module; its pages have the numbers of the layers'
        if drafts and model.multi_token is not None:
            self.draft_cache = model.multi_token.make_cache(cache_shape, model.embedding.weight.dtype, self.device)
        self._all_caches = [cache for cache in (*self.caches, self.draft_cache) if cache is not None]
        self.in_pages = all(cache.in_pages for cache in self._all_caches)
        self.pool = PagePool(cache_shape.pages, cache_shape.page)
        self.padding_slot = cache_shape.slots - 1
        self._slots = list(range(count - 1, -1, -1))
        self.snapshots = Snapshots([] if self.in_pages else range(count, self.padding_slot))
        self._slot_copies: list[tuple[int, int]] = []
        self._page_copies: list[tuple[int, int]] = []

    @property
    def free_slots(self) -> int:
        """How many requests may enter."""
        return len(self._slots)

    # ---- entering and leaving

    def enter(self, request: Request, spare: int) -> Entry:
        """Give the request a slot and its pages, and leave `spare` pages for others to grow.

        "coming": another request is about to compute its prefix, so waiting is cheaper; "full": there are not enough pages.
        """
        page, tokens = self.cache_shape.page, request.context
        beginning = tokens[: request.shareable]
        match = self.pool.match(self.pool.root, beginning)
        if match.coming:
            return "coming"
        found = None if self.in_pages else self.snapshots.find(self.pool.root, beginning, match.nodes, page)
        if not self.in_pages:
            whole = 0 if found is None else found.length // page
            match = Match(match.pages[:whole], match.nodes[:whole])
        self.pool.hold(match.pages)
        request.pages = match.pages  # from here on `leave` gives them back, whatever happens
        needed = len(tokens) - (request.scoring is not None)  # where nothing is decoded, the last token is not read
        pages = self._take(self.cache_shape.pages_for(needed) - len(match.pages), spare)
        if pages is None:
            self.leave(request)
            return "full"
        request.slot, request.pages = self._slots.pop(), match.pages + pages
        request.nodes, request.root = list(match.nodes), self.pool.root
        request.done = len(match.pages) * page
        if found is not None:
            self._restore(found, request)
        if not request.entered:  # later it finds what it has read itself
            request.shared_tokens = min(request.done, len(request.prompt))
        for index in range(len(request.nodes), (len(tokens) - 1) // page):
            self._name(request, index, ready=False)
        return "in"

    def leave(self, request: Request) -> None:
        """Take everything back."""
        if request.slot is not None:
            self._slots.append(request.slot)
        self.pool.let_go(request.pages)
        request.slot, request.pages, request.nodes, request.done = None, [], [], 0

    def grow(self, request: Request, spare: int = 0) -> int | None:
        """One more page for the request; None if there is none that leaves `spare` pages for others."""
        pages = self._take(1, spare)
        if pages is None:
            return None
        request.pages += pages
        return pages[0]

    def _take(self, count: int, spare: int) -> list[int] | None:
        short = self.pool.available < count + spare
        if short and self.pool.available + self.snapshots.pages < count + spare:
            return None  # giving up snapshots would not help
        while self.pool.available < count + spare:
            self.flush()  # pending copies from a snapshot must be made before it is dropped
            pages = self.snapshots.drop_oldest()
            if pages is None:
                return None
            self.pool.let_go(pages)
        return self.pool.take(count)

    # ---- what has been computed

    def filled(self, request: Request, done: int) -> None:
        """The first `done` tokens of the request have been computed: whole pages can be found from now on."""
        before, request.done = request.done // self.cache_shape.page, done
        if request.root is None:
            return
        for index in range(before, done // self.cache_shape.page):
            if index < len(request.nodes):
                self.pool.fill([request.pages[index]])
            else:
                self._name(request, index, ready=True)

    def _name(self, request: Request, index: int, *, ready: bool) -> None:
        assert request.root is not None and index == len(request.nodes)
        page = self.cache_shape.page
        parent = request.nodes[-1] if request.nodes else request.root
        tokens = request.span(index * page, (index + 1) * page)
        request.nodes.append(self.pool.name(parent, tokens, request.pages[index], ready=ready))

    def forget(self, active: Sequence[Request] = ()) -> None:
        """Nothing that was computed may be found again; what `active` requests hold and will compute is for them alone."""
        self.pool.let_go(self.snapshots.forget())
        self.pool.forget()
        for request in active:
            request.root, request.nodes = None, []

    def clean(self) -> None:
        """Zeros everywhere: a NaN in a cache spoils attention even where its weight is zero."""
        self.forget()
        clear_caches(self._all_caches)

    # ---- snapshots

    def snapshot(self, request: Request, length: int) -> None:
        """Keep the state after the request's first `length` tokens, which is what its slot holds."""
        if self.in_pages or request.root is None or request.slot is None:
            return
        page = self.cache_shape.page
        whole = length // page
        if whole > len(request.nodes):
            return
        parent = request.nodes[whole - 1] if whole else request.root
        name = (parent, tuple(request.span(whole * page, length)))
        if self.snapshots.known(name):
            return
        free = self.snapshots.free_slot()
        if free is None:
            return
        slot, gone = free
        self.pool.let_go(gone)
        own = self.pool.take(1) if length % page else []  # the request goes on writing into its last page
        if own is None:
            self.snapshots.give_back(slot)
            return
        pages = request.pages[:whole] + own
        self.pool.hold(request.pages[:whole])
        self._slot_copies.append((request.slot, slot))
        if own:
            self._page_copies.append((request.pages[whole], own[0]))
        try:
            self.flush()
        except BaseException:  # a state that was not copied must not be found, and its slot must not be lost
            self.pool.let_go(pages)
            self.snapshots.give_back(slot)
            raise
        self.snapshots.keep(name, Snapshot(slot, pages, request.nodes[:whole], length))

    def _restore(self, found: Snapshot, request: Request) -> None:
        assert request.slot is not None
        self._slot_copies.append((found.slot, request.slot))
        if found.length % self.cache_shape.page:
            self._page_copies.append((found.pages[-1], request.pages[found.length // self.cache_shape.page]))
        request.done = found.length

    def drop_copies(self) -> None:
        """Forget the copies that were asked for: the requests that needed them are gone."""
        self._slot_copies, self._page_copies = [], []

    def flush(self) -> None:
        """Do the copies that were asked for, all at once."""
        slot_copies, page_copies = self._slot_copies, self._page_copies
        self._slot_copies, self._page_copies = [], []  # before anything can fail: no copy may be done twice
        if slot_copies:
            self._copy("slots", slot_copies)
        if page_copies:
            self._copy("pages", page_copies)

    def _copy(self, kind: CopyKind, copies: Copies) -> None:
        copy_caches(self._all_caches, kind, copies, self.device)


def copy_caches(caches: Iterable[Cache], kind: CopyKind, copies: Copies, device: torch.device) -> None:
    """Copy slots or pages in all caches at once."""
    sources, targets = torch.tensor(copies, device=device).T
    for cache in caches:
        cache.copy_slots(sources, targets) if kind == "slots" else cache.copy_pages(sources, targets)


def clear_caches(caches: Iterable[Cache]) -> None:
    """Zeros everywhere."""
    for cache in caches:
        for tensor in cache.tensors():
            tensor.zero_()


def cache_budget_bytes(device: torch.device) -> int:
    """Bytes for caches: 4 GiB of a CPU's memory (taken when they are written), or 60 % of what is free on a GPU."""
    return int(GPU_SHARE * torch.cuda.mem_get_info(device)[0]) if device.type == "cuda" else CPU_BYTES


def size_caches(
    model: Transformer,
    slots: int,
    length: int,
    *,
    piece: int,
    page: int = PAGE,
    cache_bytes: int | None = None,
    drafts: bool = False,
) -> CacheShape:
    """The size of caches for `slots` requests of `length` tokens: pages for all, or as many as fit into `cache_bytes`
    (None: what there is room for)."""
    weight = model.embedding.weight
    probe = CacheShape(slots=1, length=length, pages=1, page=page, piece=piece)
    kinds = [part for cache in _empty_caches(model, probe, drafts) for part in simple_caches(cache)]
    page_bytes = sum(_size(cache) for cache in kinds if cache.in_pages)
    cache_bytes = cache_budget_bytes(weight.device) if cache_bytes is None else cache_bytes
    pages = 1 + slots * probe.table_width
    if page_bytes:
        pages = min(pages, cache_bytes // page_bytes)
    if pages <= probe.table_width:
        raise IngotError(
            f"a cache of {cache_bytes:,} bytes has {max(pages - 1, 0)} pages of {page} tokens, and one request of {length} "
            f"tokens needs {probe.table_width}",
            place="engine",
            fix="give it more memory, or a smaller length",
        )
    spare = 0 if all(cache.in_pages for cache in kinds) else slots // 2 + 1
    return CacheShape(slots=slots + spare + 1, length=length, pages=pages, page=page, piece=piece)


def check_sizes(slots: int, length: int, chunk: int | None) -> None:
    """An error for an engine that could hold nothing."""
    if slots < 1:
        raise IngotError(f"an engine with {slots} slots", place="engine", fix="give at least one slot")
    if length < 2:
        raise IngotError(f"an engine of length {length}", place="engine", fix="give a length of 2 or more")
    if chunk is not None and chunk < 1:
        raise IngotError(f"an engine that reads {chunk} tokens a step", place="engine", fix="give a chunk of 1 or more")


def size_chunk(model: Transformer, device: str | None = None) -> int:
    """How many tokens of prompts are read between two steps of decoding, on this type of device or where the model is."""
    if (device or model.embedding.weight.device.type) != "cuda":
        return CPU_CHUNK
    parameters = sum(parameter.numel() for parameter in model.parameters())
    return int(min(max(GPU_OPERATIONS / (2 * parameters), GPU_CHUNKS[0]), GPU_CHUNKS[1]))


def _empty_caches(model: Transformer, cache_shape: CacheShape, drafts: bool) -> list[Cache | None]:
    """The caches without memory, and that of the multi-token module if it drafts."""
    mixers = [block.mixer for block in model.blocks if isinstance(block, Block)]
    dtype, nowhere = model.embedding.weight.dtype, torch.device("meta")
    caches: list[Cache | None] = [
        mixer.make_cache(cache_shape, dtype, nowhere) for mixer in mixers if mixer is not None
    ]
    if drafts and model.multi_token is not None:
        caches.append(model.multi_token.make_cache(cache_shape, dtype, nowhere))
    return caches


def simple_caches(cache: Cache | None) -> list[Cache]:
    """The shapes and sizes of a cache."""
    if isinstance(cache, JointCache):
        return [each for part in cache.parts.values() for each in simple_caches(part)]
    return [] if cache is None else [cache]


def _size(cache: Cache) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in cache.tensors())
