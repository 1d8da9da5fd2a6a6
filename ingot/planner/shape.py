"""The sizes of a model that memory and speed depend on, read from its modules (built on the meta device, without memory).

Per kind of block: its matrices with their shapes, how many parameters are routed experts', and how many numbers per token it
keeps for the backward pass.

What a compiled block keeps per token, D being the width of the stream and F the inner width that the token passes:

    all        4·D (inputs of both sublayers, raw and normed) + what enters the mixing (q, k, v) + what leaves it + 3·F
    products   3·D + what enters the mixing + what leaves it + 2·F: what matrix products and attention make
    blocks     D: what enters the block

A mixture of experts passes F = K·(expert width) + shared width, and keeps its K rows of the stream DISPATCH_COPIES times.

With products in float8 (train/float8.py) `all` keeps less. What enters such a product is rounded anew in the backward pass from
what made it (`row`), or kept as the rounded copy, a byte each (`tensor`). What left the mixing stays: its backward pass needs it.
Which products are large enough is asked of what one device has of their matrices.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

import torch

from ingot.kernels.quantised.float8 import Scaling
from ingot.model.block import Block
from ingot.model.config import BlockConfig, ModelConfig
from ingot.model.count import mixing_flops
from ingot.model.linear import Linear
from ingot.model.mixers.mixer import Site
from ingot.train.float8 import is_large
from ingot.train.parallel.stages import divide_layers
from ingot.train.parallel.tensor import cut_layers

DISPATCH_COPIES = 2
"""Times that a mixture keeps its chosen rows at the stream's width: gathered, and as they leave the experts."""


@dataclass(frozen=True)
class Matrix:
    """A matrix that tokens pass: `tokens` is how many of them each pass, on average, per token of the batch.

    That of a linear layer has its `name`, and the `axis` along which tensor parallelism cuts it, if it does.
    """

    out: int
    into: int
    experts: int = 1
    tokens: float = 1.0
    name: str = ""
    axis: int | None = None

    @property
    def parameters(self) -> int:
        return self.out * self.into * self.experts

    def on(self, tensor: int) -> tuple[int, int]:
        """The rows and columns that one of so many tensor ranks has."""
        return self.out // (tensor if self.axis == 0 else 1), self.into // (tensor if self.axis == 1 else 1)

    def in_float8(self, tensor: int = 1) -> bool:
        """Whether `precision: float8` rounds its products there."""
        return bool(self.name) and is_large(*self.on(tensor))


@dataclass(frozen=True)
class Float8:
    """What `precision: float8` rounds of a block on one device: weights, and the numbers per token that enter their products."""

    parameters: int
    stream: int  # from the stream, once for each sublayer
    left: int  # from the mixing
    inner: int  # from the inner channels


@dataclass(frozen=True)
class BlockShape:
    """One kind of block and how often it occurs."""

    config: BlockConfig
    count: int
    parameters: int
    expert_parameters: int
    matrices: tuple[Matrix, ...]
    width: int  # of the stream
    sublayers: int  # mixer and feed-forward, or one of them
    mixed: int  # numbers per token that enter the mixing
    left: int  # and that leave it
    inner: int  # inner channels that a token passes
    gated: bool
    routed: int  # experts per token, 0 without a mixture
    rows: int  # numbers per token in rows that are on their way to experts and back
    key_value_width: int  # what context parallelism gathers per token

    def kept(self, keep: str, budget: float = 0.5, tensor: int = 1) -> float:
        """Numbers per token that wait for the backward pass; `tensor` divides what is inside the sublayers, not the stream."""
        match keep:
            case "all":
                inside = self.mixed + self.left + (2 + self.gated) * self.inner
                return 2 * self.sublayers * self.width + self.rows + inside / tensor
            case "products":
                inside = self.mixed + self.left + (1 + self.gated) * self.inner
                return (1 + self.sublayers) * self.width + self.rows + inside / tensor
            case "blocks":
                return self.width
            case _:
                return budget * self.kept("all", tensor=tensor) + (1 - budget) * self.width

    def saved_by_float8(self, scaling: Scaling, tensor: int = 1) -> float:
        """How many bytes per token `all` keeps less when the block's large products are in float8 instead of bfloat16."""
        rounded = self.float8(tensor)
        made_again = rounded.stream + rounded.inner
        copies = made_again + rounded.left if scaling == "tensor" else 0
        return 2 * made_again - copies

    def float8(self, tensor: int = 1) -> Float8:
        """What is rounded on one of so many tensor ranks: a part of a matrix may be too small, where the whole is not."""
        large = {matrix.name: matrix.on(tensor) for matrix in self.matrices if matrix.in_float8(tensor)}
        stream = {
            name.split(".")[0]: into for name, (_, into) in large.items() if not name.endswith((".output", ".down"))
        }
        left, inner = (
            sum(into for name, (_, into) in large.items() if name.endswith(end)) for end in (".output", ".down")
        )
        return Float8(sum(out * into for out, into in large.values()), sum(stream.values()), left, inner)

    def mixing_flops(self, length: int) -> float:
        """Forward FLOPs per token in addition to the matrices."""
        return mixing_flops(self.config.mixer, length)


@dataclass(frozen=True)
class Shape:
    """A whole model: its kinds of block, and what is outside of the blocks."""

    width: int
    depth: int
    vocabulary: int
    blocks: tuple[BlockShape, ...]
    embedding: int
    head: int  # 0 if the head is the embedding
    layers: tuple[int, ...]  # which of the blocks each layer is, in order
    ahead: tuple[int, ...]  # and each module of multi-token prediction; the head follows each of them
    model: ModelConfig
    _stages: dict[tuple[int, int], tuple[range, ...]] = field(default_factory=dict, compare=False, repr=False)

    def stages(self, count: int, length: int) -> tuple[range, ...]:
        """The layers of so many pipeline stages, as the trainer cuts a fresh model, whose context is the length of its rows."""
        if (count, length) not in self._stages:
            self._stages[count, length] = divide_layers(self.model.model_copy(update={"context": length}), count)
        return self._stages[count, length]

    @property
    def expert_parameters(self) -> int:
        return sum(block.expert_parameters * block.count for block in self.blocks)

    @property
    def block_parameters(self) -> int:
        """All parameters of all blocks."""
        return sum(block.parameters * block.count for block in self.blocks)

    @property
    def block_matrices(self) -> int:
        """Those of them in matrices: what Muon updates."""
        return sum(matrix.parameters * block.count for block in self.blocks for matrix in block.matrices)

    @property
    def parameters(self) -> int:
        return self.block_parameters + self.embedding + self.head + self.width


def shape_of(model: ModelConfig) -> Shape:
    """The shape of a model; multi-token modules count as further blocks, their input projection and head are left out."""
    counts, further = Counter(model.layer_names), model.multi_token
    if further is not None:
        counts[further.block] += 1 if further.shared else further.steps
    site = Site(model.width, 0, model.depth, model.norm)
    blocks = tuple(_block_shape(model.blocks[name], count, site) for name, count in counts.items())
    vocabulary = model.vocabulary_size or 0
    embedding = vocabulary * model.width
    numbers = {name: number for number, name in enumerate(counts)}
    return Shape(
        model.width,
        sum(counts.values()),
        vocabulary,
        blocks,
        embedding,
        0 if model.tied_embeddings else embedding,
        tuple(numbers[name] for name in model.layer_names),
        () if further is None else (numbers[further.block],) * further.steps,
        model,
    )


def _block_shape(config: BlockConfig, count: int, site: Site) -> BlockShape:
    with torch.device("meta"):
        block = Block(config, site)
    mixer, feed_forward = config.mixer, config.feed_forward
    routed = None if feed_forward is None else feed_forward.routed
    linear, cut = {name for name, part in block.named_modules() if isinstance(part, Linear)}, cut_layers(block)
    matrices, experts = [], 0
    for name, parameter in block.named_parameters():
        if parameter.dim() == 3 and routed is not None and name.startswith("feed_forward.experts."):
            number, out, into = parameter.shape
            matrices.append(Matrix(out, into, number, routed.active / number))
            experts += parameter.numel()
        elif parameter.dim() == 2:
            layer = name.removesuffix(".weight")
            out, into = parameter.shape
            matrices.append(Matrix(out, into, name=layer if layer in linear else "", axis=cut.get(layer)))
    return BlockShape(
        config=config,
        count=count,
        parameters=sum(parameter.numel() for parameter in block.parameters()),
        expert_parameters=experts,
        matrices=tuple(matrices),
        width=site.width,
        sublayers=(mixer is not None) + (feed_forward is not None),
        mixed=0 if mixer is None else mixer.input_width,
        left=0 if mixer is None else mixer.output_width,
        inner=0 if feed_forward is None else feed_forward.inner_width,
        gated=feed_forward is None or feed_forward.has_gate,
        routed=0 if routed is None else routed.active,
        rows=0 if routed is None else routed.active * DISPATCH_COPIES * (routed.latent or site.width),
        key_value_width=0 if mixer is None else mixer.key_value_width,
    )
