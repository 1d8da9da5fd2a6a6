"""Quantises a whole model for sampling: its linear layers hold packed integers or float8 instead of matrices.

    quantise_for_sampling(model, bits=8)              # or 4, or "float8"; in place: the matrices are gone afterwards
    engine.update(pack_state(model, state), version)  # new weights in full precision, packed on the way in

Bits say how weights are held: 8 and 4 are integers, and activations stay as they are; "float8" casts activations too and
multiplies in float8 (layers.py).

What is packed: the linear layers of the blocks and of the multi-token modules. For 8 and 4 bits their inputs must be a multiple
of 32 and their outputs at least 16; for float8 both must be multiples of 16 and at least `SMALLEST`, since below that casting
the activations costs more than the product saves. With `head` the head is packed too, always in 8 bits. What stays: embeddings,
norms, routers, convolutions; routed experts, which are stacked in one tensor each; and the latent's up-projection of MLA, whose
matrix decoding folds into the queries. The returned `Packing` lists it all.

A packed model cannot be trained: what it holds has no gradients. The engine shares the learner's module as a rule; give it a
copy to quantise (`copy.deepcopy(model)`), or let it make one: `Engine(model, dtype=torch.float8_e4m3fn)`.

Its state dict and its checksum are those of the packed values and scales, which depend on the weights alone: learner and sampler
that pack the same weights have the same checksum.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Literal

import torch
from torch import Tensor, nn

from ingot.inference.quantised.layers import Float8Linear, Pack, PackedLinear, QuantisedLinear
from ingot.kernels.quantised.float8 import Float8Rows, cast_rows
from ingot.kernels.quantised.pack_weights import group_for, pack_4, pack_8, pack_symmetric
from ingot.kernels.quantised.packed_linear import Packed
from ingot.model.config import QuantisationConfig
from ingot.model.feed_forward.experts import Experts
from ingot.model.linear import Linear
from ingot.model.quantise import quantise
from ingot.model.transformer import Transformer
from ingot.train.device import FLOAT8
from ingot.train.float8 import OLDEST, fits
from ingot.workspace.errors import IngotError

Bits = Literal[8, 4, "float8"]
SMALLEST = 1024  # inputs and outputs of a layer in float8
FOLDED = "key_value_up"  # the layer of MLA whose matrix is used itself, not only its product
FEWEST_OUTPUTS = 16


@dataclass(frozen=True)
class Packing:
    """The result of packing: which layers were packed, which large matrices were not, and the bytes before and after."""

    packed: tuple[str, ...]
    kept: tuple[str, ...]
    bytes_before: int
    bytes_after: int


def quantise_for_sampling(model: Transformer, bits: Bits, group: int = 128, *, head: bool = False) -> Packing:
    """Pack the linear layers of a model that is only sampled from, in place; groups are a power of two up to `group`.

    `head` packs the head in 8 bits too. If it is tied to the embedding, this makes a separate copy: less to read in a step,
    for more memory.
    """
    if bits not in (8, 4, "float8"):
        raise IngotError(f"weights of {bits} bits", place="quantise_for_sampling", fix="choose 8 or 4 bits, or float8")
    if group < 32 or group & (group - 1):
        raise IngotError(f"groups of {group} inputs", place="quantise_for_sampling", fix="choose 32, 64, 128, 256 …")
    if model.training and any(parameter.requires_grad for parameter in model.parameters()):
        raise IngotError(
            "the model is in training, and packed weights cannot be trained",
            place="quantise_for_sampling",
            fix="quantise a copy for sampling: copy.deepcopy(model).eval()",
        )
    if bits == "float8":
        check_device(model.embedding.weight.device)
    kind = Float8Linear if bits == "float8" else PackedLinear
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
        setattr(model.get_submodule(parent), last, kind(module.weight, module.bias, pack))
        packed.append(name)
    if bits == "float8" and not packed:
        raise IngotError(
            f"no linear layer has {SMALLEST} inputs and outputs or more, in multiples of 16: float8 would change nothing",
            place="quantise_for_sampling",
            fix="sample in bfloat16, or pack into 8 bits",
        )
    if head:
        layer = PackedLinear(model.head_weight_VD, None, pack_8)
        model.add_module("output", layer)
        model.project = layer.forward  # type: ignore[method-assign, assignment]
        packed.append("output")
    model.requires_grad_(False)
    return Packing(tuple(packed), tuple(kept), before, stored_bytes(model))


def check_device(device: torch.device) -> None:
    """An error for a GPU without float8 products; a CPU computes the same rounding with ordinary ones."""
    if device.type == "cuda" and torch.cuda.get_device_capability(device) < OLDEST:
        raise IngotError(
            f"{torch.cuda.get_device_name(device)} has no float8 products",
            place="quantise_for_sampling",
            fix="sample in bfloat16, pack into 8 bits, or use a device of the Ada or Hopper generation or newer",
        )


def choose_packing(module: nn.Module, bits: Bits, group: int, training: QuantisationConfig | None) -> Pack | None:
    """How to pack the weight of a layer; None if it is not packed."""
    if not isinstance(module, Linear):
        return None
    rounding = module.rounding
    pack: Pack
    if bits == "float8":
        if not fits(module) or min(module.weight.shape) < SMALLEST:
            return None
        pack = pack_float8
    else:
        size = group_for(module.in_features, group)
        if size is None or module.out_features < FEWEST_OUTPUTS:
            return None
        if rounding is not None and bits == 4 and (trained := trained_group(module, training)):
            return partial(pack_trained, group=trained)
        pack = pack_8 if bits == 8 else partial(pack_4, group=size)
    return pack if rounding is None else lambda weight: pack(rounding(weight))


def trained_group(module: Linear, training: QuantisationConfig | None) -> int | None:
    """The groups of 4 bits that training rounded the layer in, if they can be packed as they are."""
    assert training is not None, "only training makes layers round"
    if training.bits != 4 or not training.group or group_for(module.in_features, training.group) != training.group:
        return None
    return training.group


def pack_float8(weight_OI: Tensor) -> Float8Rows:
    """e4m3 with a scale per output."""
    return cast_rows(weight_OI, FLOAT8)


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
        if not isinstance(module, QuantisedLinear) or all(
            f"{name}.{part}" in state for part, _ in module.named_buffers()
        ):
            continue
        tied = name == "output" and model.config.tied_embeddings
        source = "embedding.weight" if tied else f"{name}.weight"
        if source not in state:
            raise IngotError(f"the new weights have no {source!r}", place="pack_state")
        weight = out[source] if tied else out.pop(source)
        here = weight.to(next(module.buffers()).device)
        out |= {f"{name}.{part}": tensor for part, tensor in module.pack_parts(here).items()}
    return out


def stored_bytes(model: nn.Module) -> int:
    """The memory of all parameters and buffers."""
    return sum(tensor.numel() * tensor.element_size() for tensor in (*model.parameters(), *model.buffers()))
