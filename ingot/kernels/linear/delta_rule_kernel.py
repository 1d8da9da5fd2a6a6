"""The kernels of delta_rule.py, as operators that torch.compile leaves whole: stages of flash-linear-attention and our own.

flash-linear-attention (github.com/fla-org/flash-linear-attention) cuts the rule into stages: sums of decays, the triangular
system of a chunk, the loop over states, outputs, and each of them backwards. We call the stages, because

* its functions as a whole cannot be part of a compiled block, and ask the device how many chunks there are;
* one stage of the backward pass with a decay per head is refused by it on Hopper with Triton 3.4 to 3.7.0, which computes it
  wrongly: that stage is our `run_key_gradients` (key_gradients_kernel.py).

With W = (I + A)⁻¹ β e^G K and U₀ = (I + A)⁻¹ β V the errors of a chunk are U = U₀ − W S. What a forward pass keeps is (I + A)⁻¹;
the states are made again.

Shapes: T tokens of the flattened batch, H heads in G groups, K key width, V value width, C tokens of a chunk.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ingot.kernels.launch import on_device_of
from ingot.kernels.linear.chunk_kernel import totals
from ingot.kernels.linear.chunks import CHUNK
from ingot.kernels.linear.fla_tuning import fix_configurations, is_crowded
from ingot.kernels.linear.key_gradients_kernel import run_key_gradients


@torch.library.custom_op("ingot::delta_rule", mutates_args=())
def head_forward(
    query_TGK: Tensor,
    key_TGK: Tensor,
    value_THV: Tensor,
    decay_TH: Tensor,
    beta_TH: Tensor,
    first: Tensor | None,
    starts: Tensor,
    chunks: Tensor,
    offsets: Tensor,
    wants_last: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """One decay per head: o [T, H, V], the states after the sequences (empty if not wanted), G [T, H], (I + A)⁻¹ [T, H, C]."""
    from fla.ops.common.chunk_delta_h import chunk_gated_delta_rule_fwd_h
    from fla.ops.common.chunk_o import chunk_fwd_o
    from fla.ops.gated_delta_rule.chunk_fwd import chunk_gated_delta_rule_fwd_intra

    fix_configurations("head", key_TGK.shape[-1], crowded=is_crowded(starts.shape[0] - 1, value_THV))
    query, key, value, beta = _one_row(query_TGK, key_TGK, value_THV, beta_TH)
    at = {"cu_seqlens": starts, "chunk_indices": chunks}
    with on_device_of(query):
        summed = totals(decay_TH.contiguous(), starts, chunks)[None]
        slope, constant, inverse = chunk_gated_delta_rule_fwd_intra(key, value, summed, beta, **at)
        states, errors, last = chunk_gated_delta_rule_fwd_h(
            key,
            slope,
            constant,
            g=summed,
            initial_state=first,
            output_final_state=wants_last,
            chunk_offsets=offsets,
            **at,
        )
        out = chunk_fwd_o(query, key, errors, states, g=summed, scale=1.0, **at)
    return out[0], summed.new_empty(0) if last is None else last, summed[0], inverse[0]


@head_forward.register_fake
def _(
    query_TGK: Tensor,
    key_TGK: Tensor,
    value_THV: Tensor,
    decay_TH: Tensor,
    beta_TH: Tensor,
    first: Tensor | None,
    starts: Tensor,
    chunks: Tensor,
    offsets: Tensor,
    wants_last: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    summed = decay_TH.new_empty(decay_TH.shape)
    inverse = key_TGK.new_empty(*decay_TH.shape, CHUNK)
    return value_THV.new_empty(value_THV.shape), _last_like(key_TGK, value_THV, starts, wants_last), summed, inverse


@torch.library.custom_op("ingot::delta_rule_backward", mutates_args=())
def head_backward(
    query_TGK: Tensor,
    key_TGK: Tensor,
    value_THV: Tensor,
    totals_TH: Tensor,
    beta_TH: Tensor,
    inverse_THC: Tensor,
    first: Tensor | None,
    starts: Tensor,
    chunks: Tensor,
    offsets: Tensor,
    gradient_THV: Tensor,
    last_gradient: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Gradients of queries, keys, values, decays, β, and of the first states (empty without them)."""
    from fla.ops.common.chunk_delta_h import chunk_gated_delta_rule_bwd_dhu, chunk_gated_delta_rule_fwd_h
    from fla.ops.common.chunk_o import chunk_bwd_dv_local
    from fla.ops.gated_delta_rule.wy_fast import prepare_wy_repr_bwd, recompute_w_u_fwd

    fix_configurations("head", key_TGK.shape[-1], crowded=is_crowded(starts.shape[0] - 1, value_THV))
    query, key, value, beta, gradient, inverse, summed = _one_row(
        query_TGK, key_TGK, value_THV, beta_TH, gradient_THV, inverse_THC, totals_TH
    )
    at = {"cu_seqlens": starts, "chunk_indices": chunks}
    with on_device_of(query):
        slope, constant = recompute_w_u_fwd(key, value, beta, inverse, summed, **at)
        states, errors, _ = chunk_gated_delta_rule_fwd_h(
            key, slope, constant, g=summed, initial_state=first, chunk_offsets=offsets, **at
        )
        within = chunk_bwd_dv_local(query, key, gradient, g=summed, scale=1.0, **at)
        after, of_first, of_errors = chunk_gated_delta_rule_bwd_dhu(
            query,
            key,
            slope,
            gradient,
            within,
            g=summed,
            h0=first,
            dht=None if last_gradient is None else last_gradient.contiguous(),
            scale=1.0,
            chunk_offsets=offsets,
            **at,
        )
        of_query, of_key, of_slope, of_total = run_key_gradients(
            query[0],
            key[0],
            errors[0],
            gradient[0],
            summed[0],
            states[0],
            after[0],
            starts,
            chunks,
            error_gradient_THV=of_errors[0],
        )
        assert of_slope is not None and of_total is not None
        more_key, of_value, of_beta, more_total = prepare_wy_repr_bwd(
            key, value, beta, inverse, of_slope[None], of_errors, summed, **at
        )
        of_decay = totals(of_total.add_(more_total[0]), starts, chunks, backwards=True)
    of_first = summed.new_empty(0) if of_first is None else of_first
    return of_query, of_key.add_(more_key[0]), of_value[0], of_decay, of_beta[0], of_first


@head_backward.register_fake
def _(
    query_TGK: Tensor,
    key_TGK: Tensor,
    value_THV: Tensor,
    totals_TH: Tensor,
    beta_TH: Tensor,
    inverse_THC: Tensor,
    first: Tensor | None,
    starts: Tensor,
    chunks: Tensor,
    offsets: Tensor,
    gradient_THV: Tensor,
    last_gradient: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    made = [x.new_empty(x.shape) for x in (query_TGK, key_TGK, value_THV, totals_TH, beta_TH)]
    return *made, totals_TH.new_empty((0,) if first is None else first.shape)  # type: ignore[return-value]


def _remember_head(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    query, key, value, _, beta, first, starts, chunks, offsets, ctx.wants_last = inputs
    ctx.save_for_backward(query, key, value, output[2], beta, output[3], first, starts, chunks, offsets)
    ctx.set_materialize_grads(False)


def _differentiate_head(ctx: Any, gradient: Tensor | None, last_gradient: Tensor | None, *_: Any) -> tuple[Any, ...]:
    saved = ctx.saved_tensors  # once: torch.utils.checkpoint makes them when they are asked for
    gradient = torch.zeros_like(saved[2]) if gradient is None else gradient
    found = head_backward(*saved, gradient, last_gradient if ctx.wants_last else None)
    of_first = None if saved[6] is None else found[5]
    return *found[:5], of_first, None, None, None, None


head_forward.register_autograd(_differentiate_head, setup_context=_remember_head)


@torch.library.custom_op("ingot::delta_rule_channels", mutates_args=())
def channel_forward(
    query_TGK: Tensor,
    key_TGK: Tensor,
    value_THV: Tensor,
    decay_THK: Tensor,
    beta_TH: Tensor,
    first: Tensor | None,
    starts: Tensor,
    chunks: Tensor,
    offsets: Tensor,
    wants_last: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """A decay per channel: o [T, H, V], the states after the sequences (empty if not wanted), P and (I + A)⁻¹ [T, H, C]."""
    from fla.ops.kda.chunk_fwd import chunk_kda_fwd

    fix_configurations("channel", key_TGK.shape[-1], crowded=is_crowded(starts.shape[0] - 1, value_THV))
    query, key, value, decay, beta = _one_row(query_TGK, key_TGK, value_THV, decay_THK, beta_TH)
    with on_device_of(query):
        out, last, _, scores, inverse, *_ = chunk_kda_fwd(
            query,
            key,
            value,
            decay,
            beta,
            scale=1.0,
            initial_state=first,
            output_final_state=wants_last,
            cu_seqlens=starts,
            chunk_indices=chunks,
            chunk_offsets=offsets,
        )
    return out[0], decay.new_empty(0) if last is None else last, scores[0], inverse[0]


@channel_forward.register_fake
def _(
    query_TGK: Tensor,
    key_TGK: Tensor,
    value_THV: Tensor,
    decay_THK: Tensor,
    beta_TH: Tensor,
    first: Tensor | None,
    starts: Tensor,
    chunks: Tensor,
    offsets: Tensor,
    wants_last: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    scores, inverse = (key_TGK.new_empty(*beta_TH.shape, CHUNK) for _ in range(2))
    return value_THV.new_empty(value_THV.shape), _last_like(key_TGK, value_THV, starts, wants_last), scores, inverse


@torch.library.custom_op("ingot::delta_rule_channels_backward", mutates_args=())
def channel_backward(
    query_TGK: Tensor,
    key_TGK: Tensor,
    value_THV: Tensor,
    decay_THK: Tensor,
    beta_TH: Tensor,
    scores_THC: Tensor,
    inverse_THC: Tensor,
    first: Tensor | None,
    starts: Tensor,
    chunks: Tensor,
    offsets: Tensor,
    gradient_THV: Tensor,
    last_gradient: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Gradients of queries, keys, values, decays, β, and of the first states (empty without them)."""
    from fla.ops.kda.chunk_bwd import chunk_kda_bwd
    from fla.ops.utils import chunk_local_cumsum
    from fla.ops.utils.constant import RCP_LN2

    fix_configurations("channel", key_TGK.shape[-1], crowded=is_crowded(starts.shape[0] - 1, value_THV))
    query, key, value, decay, beta, scores, inverse, gradient = _one_row(
        query_TGK, key_TGK, value_THV, decay_THK, beta_TH, scores_THC, inverse_THC, gradient_THV
    )
    at = {"cu_seqlens": starts, "chunk_indices": chunks}
    with on_device_of(query):  # the sums of decays are as large as all else that is kept: made again
        summed = chunk_local_cumsum(decay, CHUNK, scale=RCP_LN2, **at)
        of_query, of_key, of_value, of_beta, of_decay, of_first, *_ = chunk_kda_bwd(
            query,
            key,
            value,
            beta,
            scores,
            inverse,
            scale=1.0,
            initial_state=first,
            do=gradient,
            dht=None if last_gradient is None else last_gradient.contiguous(),
            g=summed,
            chunk_offsets=offsets,
            **at,
        )
    of_first = decay.new_empty(0) if of_first is None else of_first
    made = zip((of_query, of_key, of_value, of_decay, of_beta), (query, key, value, decay, beta), strict=True)
    return *(found[0].to(given.dtype) for found, given in made), of_first


@channel_backward.register_fake
def _(
    query_TGK: Tensor,
    key_TGK: Tensor,
    value_THV: Tensor,
    decay_THK: Tensor,
    beta_TH: Tensor,
    scores_THC: Tensor,
    inverse_THC: Tensor,
    first: Tensor | None,
    starts: Tensor,
    chunks: Tensor,
    offsets: Tensor,
    gradient_THV: Tensor,
    last_gradient: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    made = [x.new_empty(x.shape) for x in (query_TGK, key_TGK, value_THV, decay_THK, beta_TH)]
    return *made, decay_THK.new_empty((0,) if first is None else first.shape)  # type: ignore[return-value]


def _remember_channels(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    *tensors, first, starts, chunks, offsets, ctx.wants_last = inputs
    ctx.save_for_backward(*tensors, output[2], output[3], first, starts, chunks, offsets)
    ctx.set_materialize_grads(False)


def _differentiate_channels(
    ctx: Any, gradient: Tensor | None, last_gradient: Tensor | None, *_: Any
) -> tuple[Any, ...]:
    saved = ctx.saved_tensors  # once: torch.utils.checkpoint makes them when they are asked for
    gradient = torch.zeros_like(saved[2]) if gradient is None else gradient
    found = channel_backward(*saved, gradient, last_gradient if ctx.wants_last else None)
    of_first = None if saved[7] is None else found[5]
    return *found[:5], of_first, None, None, None, None


channel_forward.register_autograd(_differentiate_channels, setup_context=_remember_channels)


def _one_row(*tensors: Tensor) -> list[Tensor]:
    """[T, …] as [1, T, …] without gaps, as flash-linear-attention wants sequences of different lengths."""
    return [x.contiguous()[None] for x in tensors]


def _last_like(key_TGK: Tensor, value_THV: Tensor, starts: Tensor, wants_last: bool) -> Tensor:
    shape = (starts.shape[0] - 1, value_THV.shape[1], key_TGK.shape[2], value_THV.shape[2])
    return value_THV.new_empty(shape if wants_last else (0,), dtype=torch.float32)
