"""Low-rank adapters (LoRA, arXiv 2106.09685): small trained matrices beside frozen ones.

    y = W x + b + s·B A drop(x)         A [r, inputs] starts as U(±1/√inputs), B [outputs, r] as zero

A fused weight holds several projections one above the other ([queries | keys | values]): each has an A and a B of its own, as it
has where the projections are matrices by themselves (Hugging Face, PEFT). `LoraLinear` is a `Linear`, so blocks run as they did;
the weights that a plain model would need, W + s·B A, are those of `merged_state`. Routed experts are stacked in one tensor, not
linear layers, and have no adapters; neither have routers, convolutions and the modules of multi-token prediction.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import dropout, linear

from ingot.model.frozen import FrozenMatrix, freeze_matrix
from ingot.model.initialise import copy_shard
from ingot.model.linear import Linear
from ingot.model.lora_config import LoraConfig
from ingot.model.order import ORDERS, ShardOrder, whole
from ingot.model.transformer import Transformer
from ingot.workspace.config import content_hash


class Span(NamedTuple):
    """The rows of one projection in a weight."""

    start: int
    end: int


class LowRank(nn.Module):
    """s·B A drop(x) for one projection."""

    def __init__(self, inputs: int, span: Span, config: LoraConfig) -> None:
        super().__init__()
        self.span, self.scale, self.dropout = span, config.scale, config.dropout
        self.lora_A = nn.Parameter(torch.zeros(config.rank, inputs))
        self.lora_B = nn.Parameter(torch.zeros(span.end - span.start, config.rank))

    def factors(self) -> tuple[Tensor, Tensor]:
        """A and B, or what this rank uses of them (train/parallel/divided.py)."""
        return self.lora_A, self.lora_B

    @torch.no_grad()
    def whole_factors(self) -> tuple[Tensor, Tensor]:
        """All of A and B, gathered from the ranks that divide them; called by all of these."""
        known: dict[str, ShardOrder] = getattr(self, ORDERS, {})
        return whole(self.lora_A), whole(self.lora_B, known.get("lora_B"))

    def forward(self, x: Tensor) -> Tensor:
        if self.dropout and torch.is_grad_enabled():  # sampling and scoring take no gradient
            x = dropout(x, self.dropout)
        down, up = self.factors()
        return linear(linear(x, down), up) * self.scale

    def delta(self) -> Tensor:
        """s·B A."""
        down, up = self.factors()
        return up @ down * self.scale


class LoraLinear(Linear):
    """A linear layer whose weight is frozen, with an adapter for some or all of the projections that it holds."""

    adapting: bool = True  # off: the frozen layer alone
    ranks: int = 1  # over which the rows of each projection are divided (train/parallel/divided.py)

    def __init__(self, layer: Linear, spans: Sequence[Span], config: LoraConfig) -> None:
        nn.Module.__init__(self)  # the weight is the given layer's, not a new one
        self.in_features, self.out_features = layer.in_features, layer.out_features
        self.weight, self.bias = layer.weight, layer.bias
        self.frozen: FrozenMatrix | None = None
        if config.base != "float32":
            self.frozen = freeze_matrix(layer.weight.detach(), config.base)
            self.register_parameter("weight", None)
        with torch.device(layer.weight.device):
            self.adapters = nn.ModuleList(LowRank(layer.in_features, span, config) for span in spans)

    def base_matrix(self) -> Tensor:
        """W."""
        return super().matrix() if self.frozen is None else self.frozen.own()

    def matrix(self) -> Tensor:
        """W + s·B A, for a caller that uses the matrix itself and not its product (latent attention while it decodes)."""
        base = self.base_matrix()
        if not self.adapting:
            return base
        rows = self._joined(list(base.split(self._sizes(), dim=0)), [part.delta() for part in self.low_ranks])
        return torch.cat(rows) if len(rows) > 1 else rows[0]

    def forward(self, x: Tensor) -> Tensor:
        if self.frozen is not None:
            y = self.frozen.product(x, self.bias_shard())
        else:
            y = self.multiply(x, self.base_matrix(), self.bias_shard())
        if not self.adapting:
            return y
        parts = self._joined(list(y.split(self._sizes(), dim=-1)), [part(x) for part in self.low_ranks])
        return torch.cat(parts, dim=-1) if len(parts) > 1 else parts[0]

    @property
    def low_ranks(self) -> list[LowRank]:
        """The adapters in the order of their rows."""
        return [part for part in self.adapters if isinstance(part, LowRank)]

    def _sizes(self) -> list[int]:
        """The rows of every projection, and of what lies between those that have an adapter."""
        ends = [0, *(edge for part in self.low_ranks for edge in part.span), self.out_features]
        return [(end - start) // self.ranks for start, end in pairwise(ends)]

    @staticmethod
    def _joined(pieces: list[Tensor], updates: Sequence[Tensor]) -> list[Tensor]:
        """`pieces` takes turns: rows without an adapter (often none), rows with one; empty ones are left out."""
        for number, update in enumerate(updates):
            pieces[2 * number + 1] = pieces[2 * number + 1] + update
        return [piece for piece in pieces if piece.numel()]


def add_adapters(model: Transformer, config: LoraConfig, spans: Mapping[str, Sequence[Span]]) -> None:
    """Replace the named layers, one after the other, so that at most one weight is there both frozen and not; freeze the rest."""
    for name, of_layer in spans.items():
        layer = model.get_submodule(name)
        assert type(layer) is Linear, f"{name} is not a plain linear layer"
        parent, _, last = name.rpartition(".")
        setattr(model.get_submodule(parent), last, LoraLinear(layer, sorted(of_layer), config))
    model.lora = config
    frozen = frozen_names(model)
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(name not in frozen)


def is_adapter(name: str) -> bool:
    """Whether a parameter of this name is an A or a B."""
    return name.endswith((".lora_A", ".lora_B"))


def is_head(name: str) -> bool:
    """Whether a parameter of this name is a reward or value head: one row, often a new one, which trains as it is."""
    return name.startswith("heads.")


def trained_rows(model: Transformer) -> list[str]:
    """The weights of which some rows train, as far as this rank has them: the embedding, and the head where it is another one."""
    if model.lora is None or not model.lora.train_rows:
        return []
    names = ["embedding.weight"] + ([] if model.config.tied_embeddings else ["output.weight"])
    return [name for name in names if name not in model.elsewhere]


def frozen_names(model: Transformer) -> set[str]:
    """The weights of a model with adapters that training leaves as they are; none without adapters."""
    if model.lora is None:
        return set()
    rows = trained_rows(model)
    return {
        name for name, _ in model.named_parameters() if not is_adapter(name) and not is_head(name) and name not in rows
    }


def lora_layers(model: nn.Module) -> dict[str, LoraLinear]:
    """The layers with adapters by name."""
    return {name: module for name, module in model.named_modules() if isinstance(module, LoraLinear)}


@torch.no_grad()
def initialise_adapters(model: Transformer, seed: int) -> None:
    """Fill every A and B, the same in every layout of ranks: each rank keeps its shard of what is drawn whole.

    A matrix is drawn from its own name, because the ranks of a pipeline have different ones.
    """
    for name, parameter in model.named_parameters():
        if name.endswith(".lora_A"):  # it has no sections, and B is 0: the ranks' order (order.py) makes no difference
            generator = torch.Generator().manual_seed(int(content_hash([seed, name], digits=15), 16))
            bound = parameter.shape[1] ** -0.5  # Kaiming-uniform with a = √5
            copy_shard(parameter, torch.empty(parameter.shape).uniform_(-bound, bound, generator=generator))
        elif name.endswith(".lora_B"):
            copy_shard(parameter, torch.zeros(parameter.shape))


@contextmanager
def adapters_off(model: nn.Module) -> Iterator[None]:
    """A context in which the model is the frozen one: the reference of what is trained, without a second copy."""
    layers = list(lora_layers(model).values())
    for layer in layers:
        layer.adapting = False
    try:
        yield
    finally:
        for layer in layers:
            layer.adapting = True


@torch.no_grad()
def round_base(plain: Transformer, adapted: Transformer) -> None:
    """Give a plain model the frozen weights of one with adapters: rounded, where that holds them in fewer bits."""
    for name, layer in lora_layers(adapted).items():
        if layer.frozen is not None:
            weight = plain.get_parameter(f"{name}.weight")
            weight.copy_(type(layer.frozen)(weight.detach()).matrix())


@torch.no_grad()
def merged_state(model: Transformer) -> dict[str, Tensor]:
    """The state of the plain model that computes the same: W + s·B A under W's name, in W's dtype. Without adapters, its own."""
    layers = lora_layers(model)
    state = {name: value for name, value in model.state_dict().items() if not is_adapter(name)}
    return state | {f"{name}.weight": layer.matrix() for name, layer in layers.items()}
