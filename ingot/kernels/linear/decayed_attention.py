"""Linear attention with a decaying state, the recurrence of lightning attention and of Mamba-2.

    S_t = e^{g_t} S_{t−1} + k_t v_tᵀ        o_t = S_tᵀ q_t        g_t ≤ 0, one number per head and token

In a chunk, with G = cumsum(g) from its beginning and S the state before it (state-space duality, arXiv 2405.21060;
arXiv 2401.04658):

    O  =  (Q Kᵀ ⊙ D) V  +  e^G ⊙ Q S           D_ij = e^{G_i − G_j} for visible pairs, else 0
    S ←   e^{G_C} S  +  Kᵀ (e^{G_C − G} ⊙ V)

with e^G masked by `reached` and e^{G_C − G} by `kept` (chunks.py). Every exponent is a sum of decays between two
tokens, so none is positive and nothing overflows. The sums G are float64: the gradient of a decay is a small difference
of large sums, and float32 would lose a digit of it. Queries and keys may be shared by groups of heads (Mamba-2's B and
C): the products Q Kᵀ are then computed once per group, and decays are applied on the side of the values.

The kernels (decayed_attention_kernel.py) take bfloat16: they multiply in it, and add up and keep the running state in float32.
A single token is recurrent_step.py.

Shapes: B rows, T tokens, N chunks, C tokens of a chunk, H heads in G groups of R, K key width, V value width.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ingot.kernels.launch import has_triton
from ingot.kernels.linear.chunks import Chunks, Sequences

NARROWEST, WIDEST = 16, 256  # heads that the kernels take, in multiples of 16 channels


def step(
    query_BGK: Tensor, key_BGK: Tensor, value_BHV: Tensor, decay_BH: Tensor, state_BHKV: Tensor
) -> tuple[Tensor, Tensor]:
    """One token: o [B, H, V] and the new state."""
    share = value_BHV.shape[1] // key_BGK.shape[1]
    query_BHK, key_BHK = (x.repeat_interleave(share, dim=1) for x in (query_BGK, key_BGK))
    state_BHKV = decay_BH.exp()[..., None, None] * state_BHKV + key_BHK[..., :, None] * value_BHV[..., None, :]
    return (query_BHK[..., None, :] @ state_BHKV)[..., 0, :], state_BHKV


def chunked(
    query_BTGK: Tensor, key_BTGK: Tensor, value_BTHV: Tensor, decay_BTH: Tensor, state_BHKV: Tensor, chunks: Chunks
) -> tuple[Tensor, Tensor]:
    """All tokens: o [B, T, H, V] and the state after the last one."""
    groups = key_BTGK.shape[2]
    query, key = (chunks.split(x).movedim(3, 1).contiguous() for x in (query_BTGK, key_BTGK))  # [B, G, N, C, K]
    value = chunks.split(value_BTHV).unflatten(3, (groups, -1)).permute(0, 3, 1, 4, 2, 5)  # [B, G, N, R, C, V]
    decay = chunks.split(decay_BTH).unflatten(3, (groups, -1)).permute(0, 3, 1, 4, 2)  # [B, G, N, R, C]
    total = decay.cumsum(dim=-1, dtype=torch.float64)

    visible, reached, kept = chunks.visible_BNCC, chunks.reached_BNC, chunks.kept_BNC
    between = (
        (total[..., :, None] - total[..., None, :]).to(value).masked_fill(~visible[:, None, :, None], -torch.inf).exp()
    )
    into = total.to(value).exp() * reached[:, None, :, None]
    out = (total[..., -1:] - total).to(value).exp() * kept[:, None, :, None]

    within = ((query @ key.mT)[:, :, :, None] * between) @ value  # [B, G, N, R, C, V]
    written = key.mT @ (value * out[..., None]).transpose(3, 4).flatten(4)  # [B, G, N, K, R·V]
    state = state_BHKV.unflatten(1, (groups, -1)).transpose(2, 3)  # [B, G, K, R, V]
    before = []
    for write, through in zip(written.unflatten(-1, state.shape[3:]).unbind(2), into[..., -1].unbind(2), strict=True):
        before.append(state)
        state = torch.addcmul(write, state, through[:, :, None, :, None])
    read = (query @ torch.stack(before, dim=2).flatten(4)).unflatten(-1, state.shape[3:]).transpose(3, 4)
    mixed = torch.addcmul(within, read, into[..., None]).permute(0, 2, 4, 1, 3, 5).flatten(3, 4)
    return chunks.join(mixed), state.transpose(2, 3).flatten(1, 2)


def kernel_allowed(query_BTGK: Tensor, key_BTGK: Tensor, value_BTHV: Tensor, decay_BTH: Tensor) -> bool:
    """The kernels take: CUDA, activations in bfloat16 (what was computed from them may be float32), widths by sixteens.

    Not float16: states between chunks are stored in the dtype of the keys, and would leave its range.
    """
    given = (query_BTGK, key_BTGK, value_BTHV)
    if not value_BTHV.is_cuda or not has_triton() or decay_BTH.dtype.itemsize > 4:
        return False
    return bfloat16_among(given) and all(fits(x.shape[-1]) for x in given)


def bfloat16_among(tensors: tuple[Tensor, ...]) -> bool:
    """Whether some are bfloat16 and the others float32."""
    dtypes = [x.dtype for x in tensors]
    return torch.bfloat16 in dtypes and all(dtype in (torch.bfloat16, torch.float32) for dtype in dtypes)


def fits(width: int) -> bool:
    """Whether the kernels take heads of this width."""
    return width % NARROWEST == 0 and NARROWEST <= width <= WIDEST


def by_kernel(
    query_BTGK: Tensor,
    key_BTGK: Tensor,
    value_BTHV: Tensor,
    decay_BTH: Tensor,
    state_SHKV: Tensor | None,
    sequences: Sequences,
    *,
    wants_state: bool,
) -> tuple[Tensor, Tensor | None]:
    """All tokens: o [B, T, H, V] in bfloat16 and the sequences' states after their last token, if they are wanted."""
    from ingot.kernels.linear.decayed_attention_kernel import forward

    query, key, value = (x.to(torch.bfloat16).flatten(0, 1) for x in (query_BTGK, key_BTGK, value_BTHV))
    decay = decay_BTH.float().flatten(0, 1)
    at = (sequences.starts, sequences.chunks, sequences.offsets)
    out, last, _ = forward(query, key, value, decay, state_SHKV, *at, wants_state)
    return out.unflatten(0, value_BTHV.shape[:2]), last if wants_state else None
