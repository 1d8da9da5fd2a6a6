"""Orthogonalises matrices by Newton–Schulz iterations: X = U S Vᵀ becomes nearly U Vᵀ, by matrix products alone.

    X ← X / ‖X‖_F,     then several times     X ← a X + (b A + c A²) X,     A = X Xᵀ   (the smaller side; tall: A = Xᵀ X)

Every singular value s moves by the same odd polynomial a s + b s³ + c s⁵. Two choices of it:

* quintic (K. Jordan, "Muon", 2024): one polynomial, steep at zero. It does not converge: singular values end in about 0.7 … 1.2;
* Polar Express (Amsel et al., arXiv 2505.16932): in every iteration the polynomial that is best for the interval where the values
  then are, from [10⁻³, 1] on. It converges; the paper's numbers, with its safety factor of 1.01.

For X of m × n, m < n, the iteration can run on the m × m matrices alone ("Gram Newton–Schulz", Dao-AILab 2026). Everything that
multiplies X is a polynomial of R = X Xᵀ and commutes with it: with Z = b R + c R²,

    Q ← a Q + Q Z        R ← (a + Z) R (a + Z)        and X ← Q X at the end

costs 2·m²n + 17·m³ instead of 10·m²n + 5·m³ multiplications for five iterations. Squaring singular values loses the small ones
in 16 bits, so after RESTART iterations Q is applied and R made anew (4·m²n + 14·m³); that is as exact as the plain iteration
(docs/methods/muon.md). Below n/m = GRAM_RATIO the plain one is cheaper.

On CUDA it runs in float16, not bfloat16: the same speed and eight times as exact. Its range suffices because X is held √m times
too large (`unit`, a power of two), so that the entries of X and R lie around one. Elsewhere it runs in the dtype of the input.

All m × m products have symmetric results, which cost half (kernels/symmetric_product.py).

Shapes: N matrices of R rows and C columns; M = min(R, C).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ingot.kernels.symmetric_product import symmetric_product

Polynomial = tuple[float, float, float]

QUINTIC: Polynomial = (3.4445, -4.7750, 2.0315)
POLAR_EXPRESS: tuple[Polynomial, ...] = (
    (8.28721201814563, -23.595886519098837, 17.300387312530933),
    (4.107059111542203, -2.9478499167379106, 0.5448431082926601),
    (3.9486908534822946, -2.908902115962949, 0.5518191394370137),
    (3.3184196573706015, -2.488488024314874, 0.51004894012372),
    (2.300652019954817, -1.6689039845747493, 0.4188073119525673),
    (1.891301407787398, -1.2679958271945868, 0.37680408948524835),
    (1.8750014808534479, -1.2500016453999487, 0.3750001645474248),
)
FIXED: Polynomial = (1.875, -1.25, 0.375)  # Polar Express from its eighth iteration on
SAFETY = 1.01  # of Polar Express: rounding may push a singular value above one, where the polynomials would blow it up

RESTART = 3  # iterations
GRAM_RATIO = 1.5
TINY = 1e-30  # a gradient of zeros stays one


def polynomials(kind: str, iterations: int) -> tuple[Polynomial, ...]:
    """The polynomial of each iteration."""
    if kind == "quintic":
        return (QUINTIC,) * iterations
    safe = tuple((a / SAFETY, b / SAFETY**3, c / SAFETY**5) for a, b, c in POLAR_EXPRESS)
    return (safe + (FIXED,) * iterations)[:iterations]


def iteration_dtype(x: Tensor) -> torch.dtype:
    """The dtype of the iterations, and that of their result."""
    return torch.float16 if x.is_cuda and x.dtype != torch.float64 else x.dtype


def orthogonalise(x_NRC: Tensor, steps: Sequence[Polynomial], scale: float = 1.0, out: Tensor | None = None) -> Tensor:
    """`scale` · (nearly) U Vᵀ of each matrix [N, R, C], written to `out` where one is given."""
    small, large = sorted(x_NRC.shape[-2:])
    unit = 2.0 ** (small.bit_length() // 2)
    x = _normalised(x_NRC, unit, margin=1.0 if steps[0] == QUINTIC else SAFETY)
    steps = [(a, b / unit**2, c / unit**4) for a, b, c in steps]  # of X · unit
    return _iterate(x, steps, RESTART if large >= GRAM_RATIO * small else 1, scale / unit, out)


def _normalised(x_NRC: Tensor, unit: float, margin: float) -> Tensor:
    """X · unit / (margin · ‖X‖_F), in the dtype of the iterations."""
    precise = torch.promote_types(x_NRC.dtype, torch.float32)
    norm_N11 = torch.linalg.vector_norm(x_NRC, dim=(-2, -1), keepdim=True, dtype=precise)
    factor_N11 = unit / (margin * norm_N11).clamp_min(TINY)
    return (x_NRC * factor_N11).to(iteration_dtype(x_NRC), memory_format=torch.contiguous_format)


def _iterate(x: Tensor, steps: Sequence[Polynomial], restart: int, scale: float, out: Tensor | None = None) -> Tensor:
    """The Gram form, made anew after every `restart` iterations; after every one it is the plain iteration."""
    stretches = [steps[start : start + restart] for start in range(0, len(steps), restart)]
    for number, stretch in enumerate(stretches, start=1):
        r, q = _gram_matrix(x), None
        for count, (a, b, c) in enumerate(stretch, start=1):
            z = symmetric_product(r, r, plus=r, beta=b, alpha=c)
            if count < len(stretch):
                rz = symmetric_product(r, z, plus=r, beta=a)
                r = symmetric_product(z, rz, plus=rz, beta=a)
            if q is None:
                q = z  # nothing reads z any more
                q.diagonal(dim1=-2, dim2=-1).add_(a)
            else:
                q = symmetric_product(q, z, plus=q, beta=a)
        assert q is not None
        last = number == len(stretches)
        x = _times(q, x, scale if last else 1.0, out if last else None)
    return x


def _gram_matrix(x_NRC: Tensor) -> Tensor:
    """[N, M, M]."""
    if x_NRC.shape[-2] > x_NRC.shape[-1]:
        return symmetric_product(x_NRC.mT, x_NRC)
    # on ARM a small product with a transposed right side takes three times as long as the copy and the product
    return symmetric_product(x_NRC, x_NRC.mT if x_NRC.is_cuda else x_NRC.mT.contiguous())


def _times(q_NMM: Tensor, x_NRC: Tensor, alpha: float, out: Tensor | None) -> Tensor:
    """alpha · Q X, from the side where Q fits."""
    left, right = (q_NMM, x_NRC) if x_NRC.shape[-2] <= x_NRC.shape[-1] else (x_NRC, q_NMM)
    out = torch.empty_like(x_NRC) if out is None else out
    return torch.baddbmm(out, left, right, beta=0.0, alpha=alpha, out=out)
