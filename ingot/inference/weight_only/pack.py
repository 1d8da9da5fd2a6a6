"""Quantises a whole model for sampling: its linear layers hold packed integers instead of matrices.

    quantise_for_sampling(model, bits=8)              # or bits=4; in place: the matrices are gone afterwards
    engine.update(pack_state(model, state), version)  # new weights in full precision, packed on the way in

What is packed: the linear layers of the blocks and of the multi-token modules, if their inputs are a multiple of 32 and their
outputs at least 16; and with `head` the head, always in 8 bits. What stays: embeddings, norms, routers, convolutions; routed
experts, which are stacked in one tensor each; and the latent's up-projection of MLA, whose matrix decoding folds into the
queries. The returned `Packing` lists it all.

A packed model cannot be trained: its integers have no gradients. The engine shares the learner's module as a rule; give it a
copy to quantise (`copy.deepcopy(model)`).

Its state dict and its checksum are those of the integers and scales, which depend on the weights alone: learner and sampler
that pack the same weights have the same checksum.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Literal

import torch
from torch import Tensor, nn

from ingot.kernels.pack_weights import group_for, pack_4, pack_8, pack_symmetric
from ingot.kernels.packed_linear import Packed, packed_linear, unpack
from ingot.model.config import QuantisationConfig
from ingot.model.feed_forward.experts import Experts
from ingot.model.linear import Linear
from ingot.model.quantise import quantise
from ingot.model.transformer import Transformer
from ingot.workspace.errors import IngotError

Bits = Literal[8, 4]
FOLDED = "key_value_up"  # the layer of MLA whose matrix is used itself, not only its product
FEWEST_OUTPUTS = 16


@dataclass(frozen=True)
class Packing:
    """The result of packing: which layers were packed, which large matrices were not, and the bytes before and after."""

    packed: tuple[str, ...]
    kept: tuple[str, ...]
    bytes_before: int
    bytes_after: int


class PackedLinear(nn.Module):
    """y = x ŵᵀ + b. The buffers are those of kernels.packed_linear.Packed."""

    integers: Tensor
    scales: Tensor
    minimums: Tensor | None

    def __init__(self, weight: Tensor, bias: Tensor | None, pack: Callable[[Tensor], Packed]) -> None:
        super().__init__()
        self.pack, self.dtype = pack, weight.dtype  # `pack` makes the integers of a weight in full precision
        self.bias = None if bias is None else nn.Parameter(bias.detach(), requires_grad=False)
        for name, tensor in pack(weight.detach())._asdict().items():
            self.register_buffer(name, tensor)

    @property
    def weight(self) -> Tensor:
        """ŵ, written out at every call."""
        return unpack(Packed(self.integers, self.scales, self.minimums), self.dtype)

    def forward(self, x: Tensor) -> Tensor:
        return packed_linear(x, Packed(self.integers, self.scales, self.minimums), self.bias)


def quantise_for_sampling(model: Transformer, bits: Bits, group: int = 128, *, head: bool = False) -> Packing:
    """Pack the linear layers of a model that is only sampled from, in place; groups are a power of two up to `group`.

    `head` packs the head in 8 bits too. If it is tied to the embedding, this makes a separate copy: less to read in a step,
    for more memory.
    """
    if bits not in (8, 4):
        raise IngotError(f"weights of {bits} bits", place="quantise_for_sampling", fix="choose 8 or 4 bits")
    if group < 32 or group & (group - 1):
        raise IngotError(f"groups of {group} inputs", place="quantise_for_sampling", fix="choose 32, 64, 128, 256 …")
    if model.training and any(parameter.requires_grad for parameter in model.parameters()):
        raise IngotError(
            "the model is in training, and packed weights cannot be trained",
            place="quantise_for_sampling",
            fix="quantise a copy for sampling: copy.deepcopy(model).eval()",
        )
    before, packed, kept = stored_bytes(model), [], []
    names = [
        name for name, module in model.named_modules() if isinstance(module, Linear | Experts) and name != "output"
    ]
    for name in names:  # one after another, so that at most one matrix is there twice
        module = model.get_submodule(name)
        pack = None if name.endswith(FOLDED) else choose_packing(module, bits, group, model.config.quantisation)
        if pack is None:
            kept.append(name)
            continue
        assert isinstance(module, Linear)
        parent, _, last = name.rpartition(".")
        setattr(model.get_submodule(parent), last, PackedLinear(module.weight, module.bias, pack))
        packed.append(name)
    if head:
        layer = PackedLinear(model.head_weight_VD, None, pack_8)
        model.add_module("output", layer)
        model.project = layer.forward  # type: ignore[method-assign, assignment]
        packed.append("output")
    model.requires_grad_(False)
    return Packing(tuple(packed), tuple(kept), before, stored_bytes(model))


def choose_packing(
    module: nn.Module, bits: Bits, group: int, training: QuantisationConfig | None
) -> Callable[[Tensor], Packed] | None:
    """How to pack the weight of a layer; None if it is not packed."""
    if not isinstance(module, Linear) or module.out_features < FEWEST_OUTPUTS:
        return None
    size, rounding = group_for(module.in_features, group), module.rounding
    if size is None:
        return None
    pack = pack_8 if bits == 8 else partial(pack_4, group=size)
    if rounding is None:
        return pack
    assert training is not None, "only training makes layers round"
    if (
        bits == training.bits == 4
        and training.group
        and group_for(module.in_features, training.group) == training.group
    ):
        return partial(pack_trained, group=training.group)
    return lambda weight: pack(rounding(weight))


def pack_trained(weight_OI: Tensor, group: int) -> Packed:
    """The integers of 4 bits that quantisation-aware training rounded to."""
    integers_OJG, scales_OJ1 = quantise(weight_OI, 4, group)
    return pack_symmetric(integers_OJG, scales_OJ1[..., 0])


@torch.no_grad()
def pack_state(model: Transformer, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """A full-precision state as the state of `model`: where it holds packed layers their weights are packed.

    Layers that are packed in `state` already, and models without packed layers, are not changed.
    """
    out = dict(state)
    for name, module in model.named_modules():
        if not isinstance(module, PackedLinear) or f"{name}.integers" in state:
            continue
        tied = name == "output" and model.config.tied_embeddings
        source = "embedding.weight" if tied else f"{name}.weight"
        if source not in state:
            raise IngotError(f"the new weights have no {source!r}", place="pack_state")
        weight = out[source] if tied else out.pop(source)
        packed = module.pack(weight.to(module.integers.device, module.dtype))
        out |= {f"{name}.{part}": tensor for part, tensor in packed._asdict().items() if tensor is not None}
    return out


def stored_bytes(model: nn.Module) -> int:
    """The memory of all parameters and buffers."""
    return sum(tensor.numel() * tensor.element_size() for tensor in (*model.parameters(), *model.buffers()))
