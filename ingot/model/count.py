"""Counts parameters, FLOPs and cache bytes of a model, on its own modules built on the meta device (without memory).

Parameters. `total` is everything except the multi-token modules; `active` is what one token uses: K of N routed experts, all else
once. Reports differ in whether they count the input embedding, the head and the multi-token modules, so the four shares
(`body` is the blocks and the last norm) can be added up as each report did.

Training FLOPs per token at length T, forward and backward (three times the forward pass, two per multiply-add):

    6 · active matrix parameters (the head counts; an embedding lookup does not)
    + 6 · heads · (key width + value width) · mean number of visible keys           softmax attention
    + 6 · products · state values                                                   linear-time mixers, recurrent form

A query sees T/2 keys on average; with a window w of a span S (the chunk, or T) w − w²/2S; with DSA min(keep, ·) of them, while
its indexer scores all of them. A recurrent mixer needs two products with its state per token (write, read), or three where it
reads the state before it corrects it (delta rule). Each mixer computes its own line (`MixerConfig.mixing_flops`).
Multi-token modules count with their head, once per step.

Cache at two bytes per value: what one token adds in layers that keep something per token; layers with a window or chunk stop
growing there; recurrent layers keep a float32 state per sequence, whatever its length.

Mixtures (N routed experts, K active):

    sparsity N/K (Kimi K2)      activation ratio K/N      granularity 2·width / expert width (arXiv 2507.17702)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import nn

from ingot.model.block import Block
from ingot.model.config import BlockConfig, ModelConfig
from ingot.model.feed_forward.channel import RoutedExperts
from ingot.model.mixers.cache import Cache, CacheShape, JointCache, StateCache, TokenCache
from ingot.model.mixers.mixer import MixerConfig, Site
from ingot.model.multi_token import MultiTokenModule

VALUE = torch.bfloat16  # two bytes per cached value
META = torch.device("meta")


@dataclass(frozen=True)
class Size:
    """Parameters, those that a token uses, and those of them in matrices."""

    total: int = 0
    active: int = 0
    matrices: int = 0

    def __add__(self, other: Size) -> Size:
        return Size(self.total + other.total, self.active + other.active, self.matrices + other.matrices)

    def __mul__(self, count: int) -> Size:
        return Size(self.total * count, self.active * count, self.matrices * count)


@dataclass(frozen=True)
class CacheSize:
    """Bytes of one layer: per token, up to `limit` tokens (None: no limit), and per sequence."""

    token: int = 0
    limit: int | None = None
    state: int = 0

    def at(self, length: int) -> int:
        """Bytes of a sequence of this length."""
        return self.token * min(length, self.limit or length) + self.state


@dataclass(frozen=True)
class Mixture:
    """The numbers of one kind of mixture-of-experts layer."""

    experts: int
    active: int
    expert_width: int
    shared_width: int
    granularity: float
    sparsity: float
    activation_ratio: float


@dataclass(frozen=True)
class ModelCount:
    """The counts of a model. Without a vocabulary size, embedding and head count nothing."""

    config: ModelConfig
    parts: Mapping[str, Size]  # of the body, by kind of part
    embedding: int
    head: int  # without one that is the embedding; with further heads
    multi_token: Size
    caches: tuple[CacheSize, ...]  # by layer

    @property
    def body(self) -> Size:
        """The blocks and the last norm."""
        return sum(self.parts.values(), Size())

    @property
    def total(self) -> int:
        """All parameters but those of the multi-token modules; a tied embedding once."""
        return self.counted(("body", "embedding", "head"))

    @property
    def active(self) -> int:
        """Those of them that one token uses."""
        return self.counted(("body", "embedding", "head"), active=True)

    def counted(self, shares: Iterable[str], *, active: bool = False) -> int:
        """The sum of some shares: body, embedding, head, multi_token. A tied head is the embedding: counted if either is."""
        shares = set(shares)
        body, further = (
            (self.body.active, self.multi_token.active) if active else (self.body.total, self.multi_token.total)
        )
        tied_head = self.embedding if self.config.tied_embeddings and shares & {"head", "embedding"} == {"head"} else 0
        sizes = {"body": body, "embedding": self.embedding, "head": self.head + tied_head, "multi_token": further}
        return sum(sizes[share] for share in shares)

    @property
    def cache_bytes_per_token(self) -> int:
        """The bytes that a token adds to the cache while no window is full."""
        return sum(cache.token for cache in self.caches)

    @property
    def state_bytes(self) -> int:
        """The bytes that recurrent layers keep for a sequence of any length."""
        return sum(cache.state for cache in self.caches)

    def cache_bytes(self, length: int) -> int:
        """The cache of one sequence of this length."""
        return sum(cache.at(length) for cache in self.caches)

    def training_flops_per_token(self, length: int) -> int:
        """By the formula above."""
        config = self.config
        counts = Counter(config.layer_names)
        head = (config.vocabulary_size or 0) * config.width
        matrices = self.body.matrices + head
        if config.multi_token is not None:
            counts[config.multi_token.block] += config.multi_token.steps
            repeats = config.multi_token.steps if config.multi_token.shared else 1
            matrices += self.multi_token.matrices * repeats + head * config.multi_token.steps
        mixing = sum(mixing_flops(config.blocks[name].mixer, length) * count for name, count in counts.items())
        return 6 * matrices + round(3 * mixing)

    @property
    def mixtures(self) -> Mapping[str, Mixture]:
        """The mixtures of experts by block."""
        parts = {name: self.config.blocks[name].feed_forward for name in dict.fromkeys(self.config.layer_names)}
        routed = {name: part.routed for name, part in parts.items() if part is not None}
        return {name: _mixture(one, self.config.width) for name, one in routed.items() if one is not None}


def count(config: ModelConfig) -> ModelCount:
    """Count a model; each kind of block is built once."""
    site = Site(config.width, 0, config.depth, config.norm)
    parts: dict[str, Size] = {}
    caches: dict[str, CacheSize] = {}
    for name, layers in Counter(config.layer_names).items():
        block = _build(config.blocks[name], site)
        caches[name] = _cache_size(block)
        for part, size in _parts(block, block.config).items():
            parts[part] = parts.get(part, Size()) + size * layers
    parts["norms"] = parts.get("norms", Size()) + Size(config.width, config.width)
    multi_token = Size()
    if config.multi_token is not None:
        with META:
            module = MultiTokenModule(config, 0)
        further = sum(_parts(module, module.block.config).values(), Size())
        multi_token = further * (1 if config.multi_token.shared else config.multi_token.steps)
    embedding = (config.vocabulary_size or 0) * config.width
    return ModelCount(
        config=config,
        parts=parts,
        embedding=embedding,
        head=(0 if config.tied_embeddings else embedding) + len(config.heads) * config.width,
        multi_token=multi_token,
        caches=tuple(caches[name] for name in config.layer_names),
    )


@lru_cache(maxsize=1024)
def _build(config: BlockConfig, site: Site) -> Block:
    with META:
        return Block(config, site)


def _parts(module: nn.Module, config: BlockConfig) -> dict[str, Size]:
    """The sizes of the parts of a block, or of a module around one."""
    found: dict[str, Size] = {}
    routed = None if config.feed_forward is None else config.feed_forward.routed
    for name, parameter in module.named_parameters():
        name = name.removeprefix("block.")
        part, size = _part(name, config), parameter.numel()
        active = size
        if routed is not None and name.startswith("feed_forward.experts."):
            active = size // routed.experts * routed.active
        matrix = parameter.dim() >= 2 and not name.endswith("bias")
        found[part] = found.get(part, Size()) + Size(size, active, active if matrix else 0)
    return found


def _part(name: str, config: BlockConfig) -> str:
    """The name of the part that a parameter of a block belongs to."""
    if name.startswith("mixer.") and config.mixer is not None:
        return "indexer" if name.startswith("mixer.indexer.") else config.mixer.kind.replace("_", " ")
    if name.startswith("feed_forward.") and config.feed_forward is not None:
        return config.feed_forward.group(name.removeprefix("feed_forward."))
    return "norms" if "norm" in name else "input projection"


def _cache_size(block: Block) -> CacheSize:
    """The cache of a layer, by asking its mixer for one of a single token."""
    if block.mixer is None or block.config.mixer is None:
        return CacheSize()
    tokens, state = _bytes(block.mixer.make_cache(CacheShape(slots=1, length=1), VALUE, META))
    return CacheSize(tokens, block.config.mixer.reach, state)


def _bytes(cache: Cache) -> tuple[int, int]:
    """Bytes per token and per sequence."""
    if isinstance(cache, TokenCache):
        return sum(stream[0, :, 0].numel() * stream.element_size() for stream in cache.streams.values()), 0
    if isinstance(cache, StateCache):
        return 0, sum(state.numel() * state.element_size() for state in cache.states.values())
    assert isinstance(cache, JointCache)
    sizes = [_bytes(part) for part in cache.parts.values()]
    return sum(tokens for tokens, _ in sizes), sum(state for _, state in sizes)


def mixing_flops(mixer: MixerConfig | None, length: int) -> float:
    """Forward FLOPs per token of a mixer besides its matrix products; 0 where a block has no mixer."""
    return 0.0 if mixer is None else mixer.mixing_flops(length)


def _mixture(routed: RoutedExperts, width: int) -> Mixture:
    return Mixture(
        experts=routed.experts,
        active=routed.active,
        expert_width=routed.expert_width,
        shared_width=routed.shared_width,
        granularity=2 * width / routed.expert_width,
        sparsity=routed.experts / routed.active,
        activation_ratio=routed.active / routed.experts,
    )
