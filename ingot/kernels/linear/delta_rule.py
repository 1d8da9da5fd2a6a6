"""The gated delta rule, the recurrence of Gated DeltaNet and KDA.

    S_t = (I − β_t k_t k_tᵀ) Diag(e^{g_t}) S_{t−1} + β_t k_t v_tᵀ        o_t = S_tᵀ q_t        g_t ≤ 0

The state is a memory from keys to values. Each token first lets it decay, then *replaces* the share β of what the memory
holds under its key: it writes u_t = β_t (v_t − Sᵀk_t), the error of the memory (Schlag et al., arXiv 2102.11174; Yang et
al., arXiv 2406.06484, 2412.06464). The decay is one number per head (Gated DeltaNet) or per channel (KDA, arXiv
2510.26692).

In a chunk, with G = cumsum(g) from its beginning and S the state before it, the errors U solve a triangular system:

    (I + A) U  =  β (V − (e^G ⊙ K) S)          A_ij = β_i ⟨k_i, k_j⟩_ij for j < i
    O  =  (e^G ⊙ Q) S  +  P U                   P_ij = ⟨q_i, k_j⟩_ij for j ≤ i
    S ←   e^{G_C} S  +  (e^{G_C − G} ⊙ K)ᵀ U

where ⟨a, b⟩_ij = Σ_c a_c b_c e^{G_ic − G_jc} is the product after the decay between j and i, zero between documents. The
part of U that does not need S is solved for all chunks at once; the loop over chunks has two products each.

No exponent is ever positive. With one decay per head the factor is a matrix e^{G_i − G_j}, masked before the
exponential. With a decay per channel it sits inside the product, and splitting it as e^{G_i} · e^{−G_j} would overflow;
`channel_products` splits it at a token m between j and i instead: e^{G_i − G_m} · e^{G_m − G_j}. The sums G are float64,
as in decayed_attention.py: their differences and the gradients of the decays then keep all digits of float32.

The kernels (delta_rule_kernel.py) are flash-linear-attention's and our own. They take bfloat16: they multiply in it, and add up
and keep the running state in float32. A single token is recurrent_step.py.

Shapes: B rows, T tokens, N chunks, C tokens of a chunk, H heads in G groups of R that share queries and keys, K key width,
V value width, W decays per head (1 or K).
"""

from __future__ import annotations

import torch
from torch import Tensor

from ingot.kernels.launch import has_fla
from ingot.kernels.linear.chunks import Chunks, Sequences
from ingot.kernels.linear.decayed_attention import bfloat16_among, fits


def step(
    query_BGK: Tensor, key_BGK: Tensor, value_BHV: Tensor, decay_BHW: Tensor, beta_BH: Tensor, state_BHKV: Tensor
) -> tuple[Tensor, Tensor]:
    """One token: o [B, H, V] and the new state."""
    share = value_BHV.shape[1] // key_BGK.shape[1]
    query, key = (x.repeat_interleave(share, dim=1)[..., None, :] for x in (query_BGK, key_BGK))  # [B, H, 1, K]
    state_BHKV = decay_BHW.exp()[..., None] * state_BHKV
    error = beta_BH[..., None, None] * (value_BHV[..., None, :] - key @ state_BHKV)
    state_BHKV = state_BHKV + key.mT * error
    return (query @ state_BHKV)[..., 0, :], state_BHKV


def chunked(
    query_BTGK: Tensor,
    key_BTGK: Tensor,
    value_BTHV: Tensor,
    decay_BTHW: Tensor,
    beta_BTH: Tensor,
    state_BHKV: Tensor,
    chunks: Chunks,
) -> tuple[Tensor, Tensor]:
    """All tokens: o [B, T, H, V] and the state after the last one."""
    groups, key_width = key_BTGK.shape[2:]

    def split(x_BTH: Tensor) -> Tensor:  # [B, T, H, …] as [B, G, R, N, C, …]
        return chunks.split(x_BTH).unflatten(3, (groups, -1)).movedim((3, 4), (1, 2)).contiguous()

    query, key, value, beta = split(query_BTGK), split(key_BTGK), split(value_BTHV), split(beta_BTH[..., None])
    total = split(decay_BTHW).cumsum(dim=-2, dtype=torch.float64)  # [B, G, R, N, C, W]
    visible, reached, kept = (x[:, None, None] for x in (chunks.visible_BNCC, chunks.reached_BNC, chunks.kept_BNC))
    products = head_products if total.shape[-1] == 1 else channel_products
    read, overlap = products(query, key, total, visible)
    into = total.to(value).exp() * reached[..., None]
    out = key * ((total[..., -1:, :] - total).to(value).exp() * kept[..., None])

    # β(V − (e^G ⊙ K) S) is affine in S: solve for its two parts, S comes in the loop.
    right = beta * torch.cat((value, key * into), dim=-1)
    solved = torch.linalg.solve_triangular(beta * overlap, right, upper=False, unitriangular=True)
    constant, slope = solved.split((value.shape[-1], key_width), dim=-1)
    state = state_BHKV.unflatten(1, (groups, -1))  # [B, G, R, K, V]
    before, errors = [], []
    by_chunk = (x.unbind(3) for x in (constant, slope, out, into[..., -1, :, None]))
    for constant_here, slope_here, key_out, through in zip(*by_chunk, strict=True):
        before.append(state)
        errors.append(constant_here - slope_here @ state)
        state = through * state + key_out.mT @ errors[-1]
    mixed = (query * into) @ torch.stack(before, dim=3) + read @ torch.stack(errors, dim=3)  # [B, G, R, N, C, V]
    return chunks.join(mixed.movedim((1, 2), (3, 4)).flatten(3, 4)), state.flatten(1, 2)


def head_products(query: Tensor, key: Tensor, total: Tensor, visible: Tensor) -> tuple[Tensor, Tensor]:
    """⟨q_i, k_j⟩_ij and ⟨k_i, k_j⟩_ij for visible pairs, with one decay per head; the second's diagonal is not used."""
    between = (total - total.mT).to(key).masked_fill(~visible, -torch.inf).exp()
    return (query @ key.mT) * between, (key @ key.mT) * between


def channel_products(query: Tensor, key: Tensor, total: Tensor, visible: Tensor) -> tuple[Tensor, Tensor]:
    """The same with a decay per channel, by halves.

    A block of 2s tokens is two blocks of s on the diagonal and one square between them, whose rows i come after the first
    half's last token m and whose columns j do not:

        e^{G_i − G_j} = e^{G_i − G_m} · e^{G_m − G_j}        both exponents ≤ 0

    so the square is one product of two decayed matrices. Doubling s from 1 to C gives log₂ C products for all blocks at
    once, and never the C × C × K factors.
    """
    rows = torch.stack((query, key))
    products = (rows * key).sum(dim=-1)[..., None, None]  # blocks of one token: [2, …, C, 1, 1]
    half, size = 1, key.shape[-2]
    while half < size:
        late_rows = rows.unflatten(-2, (-1, 2, half))[..., 1, :, :]
        early_keys = key.unflatten(-2, (-1, 2, half))[..., 0, :, :]
        early, late = total.unflatten(-2, (-1, 2, half)).unbind(-3)
        middle = early[..., -1:, :]
        square = (late_rows * (late - middle).to(key).exp()) @ (early_keys * (middle - early).to(key).exp()).mT
        first, second = products.unflatten(-3, (-1, 2)).unbind(-3)
        products = torch.cat(
            (torch.cat((first, torch.zeros_like(square)), dim=-1), torch.cat((square, second), dim=-1)), dim=-2
        )
        half *= 2
    read, overlap = (products[..., 0, :, :] * visible).unbind(0)
    return read, overlap


def kernel_allowed(
    query_BTGK: Tensor, key_BTGK: Tensor, value_BTHV: Tensor, decay_BTHW: Tensor, beta_BTH: Tensor
) -> bool:
    """The kernels take: CUDA, activations in bfloat16 (what was computed from them may be float32), widths by sixteens."""
    given = (query_BTGK, key_BTGK, value_BTHV)
    if not value_BTHV.is_cuda or not has_fla() or max(decay_BTHW.dtype.itemsize, beta_BTH.dtype.itemsize) > 4:
        return False
    return bfloat16_among(given) and all(fits(x.shape[-1]) for x in given)


def by_kernel(
    query_BTGK: Tensor,
    key_BTGK: Tensor,
    value_BTHV: Tensor,
    decay_BTHW: Tensor,
    beta_BTH: Tensor,
    state_SHKV: Tensor | None,
    sequences: Sequences,
    *,
    wants_state: bool,
) -> tuple[Tensor, Tensor | None]:
    """All tokens: o [B, T, H, V] in bfloat16 and the sequences' states after their last token, if they are wanted."""
    from ingot.kernels.linear import delta_rule_kernel as kernel

    query, key, value = (x.to(torch.bfloat16).flatten(0, 1) for x in (query_BTGK, key_BTGK, value_BTHV))
    decay, beta = decay_BTHW.float().flatten(0, 1), beta_BTH.float().flatten(0, 1)
    at = (sequences.starts, sequences.chunks, sequences.offsets)
    if decay.shape[-1] == 1:
        out, last, _, _ = kernel.head_forward(query, key, value, decay[..., 0], beta, state_SHKV, *at, wants_state)
    else:
        out, last, *_ = kernel.channel_forward(query, key, value, decay, beta, state_SHKV, *at, wants_state)
    return out.unflatten(0, value_BTHV.shape[:2]), last if wants_state else None
