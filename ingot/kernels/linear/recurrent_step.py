"""One token of a recurrence with a decaying state, read and renewed where the cache keeps it.

    S ← Diag(e^g) S        u = v, or the delta rule's error β (v − Sᵀ k)        S ← S + k uᵀ        o = Sᵀ q

The definitions are `step` of decayed_attention.py and delta_rule.py. They copy the states out of the cache, run a dozen
operations over them, and copy them back. A decoding step is bound by the memory of these states: the kernel
(recurrent_step_kernel.py) reads each once and writes it once, in float32, and can be part of a captured graph.

Shapes: B rows, N slots of the cache, H heads in G groups, K key width, V value width, W decays per head (1 or K).
"""

from __future__ import annotations

import torch
from torch import Tensor

from ingot.kernels.launch import has_triton

WIDEST = 256  # keys: all channels of a column are in the registers of one program


def step_kernel_allowed(states_NHKV: Tensor, inputs: tuple[Tensor, ...]) -> bool:
    """The kernel takes: CUDA, states and inputs in float32, keys of at most WIDEST channels; no gradients, no compiled code."""
    if not states_NHKV.is_cuda or states_NHKV.shape[2] > WIDEST or not has_triton():
        return False
    if any(x.dtype != torch.float32 for x in (states_NHKV, *inputs)) or not states_NHKV.is_contiguous():
        return False
    return not torch.is_grad_enabled() and not torch.compiler.is_compiling()


def step_in_place(
    states_NHKV: Tensor,
    slots_B: Tensor,
    positions_B: Tensor,
    query_BGK: Tensor,
    key_BGK: Tensor,
    value_BHV: Tensor,
    decay: Tensor,
    beta_BH: Tensor | None = None,
) -> Tensor:
    """o [B, H, V]; the states of the slots go on from what they are, or from zeros at position 0. Decays: [B, H] or [B, H, W]."""
    from ingot.kernels.linear.recurrent_step_kernel import launch

    return launch(states_NHKV, slots_B, positions_B, query_BGK, key_BGK, value_BHV, decay, beta_BH)
