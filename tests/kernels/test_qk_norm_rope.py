"""Heads from the joint projection in one kernel, values and gradients, against the layer's own operations in float64.

On a GPU, or in Triton's interpreter on a CPU: TRITON_INTERPRET=1 python -m pytest tests/kernels/test_qk_norm_rope.py
"""

from __future__ import annotations

import copy
import os

import pytest
import torch
from torch import Tensor
from torch.nn.functional import rms_norm

from ingot.kernels.layer import qk_norm_rope as operation
from ingot.kernels.layer.rotate import rotate_definition
from ingot.model.block import Block
from ingot.model.config import BlockConfig
from ingot.model.context import Context
from ingot.model.mixers.mixer import Site
from ingot.model.norm import NormConfig

triton = pytest.importorskip("triton", reason="Triton is not installed")
if not torch.cuda.is_available() and os.environ.get("TRITON_INTERPRET") != "1":
    pytest.skip("needs a CUDA device, or TRITON_INTERPRET=1", allow_module_level=True)

from ingot.kernels.layer import qk_norm_rope_kernel  # noqa: E402
from tests.slow import first_fast  # noqa: E402

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
EPSILON = 1e-5
Parts = tuple[Tensor, ...]


def expected(projected: Tensor, cos: Tensor, sin: Tensor, gains: Tensor | None, heads: int, pairing: str) -> Parts:
    """The definition, in the dtype of its inputs."""
    key_heads = 2
    width = projected.shape[-1] // (heads + 2 * key_heads)
    sizes = [count * width for count in (heads, key_heads, key_heads)]
    query, key, value = (part.unflatten(-1, (-1, width)).transpose(1, 2) for part in projected.split(sizes, dim=-1))
    if gains is not None:
        query, key = (rms_norm(part, (width,), gain, EPSILON) for part, gain in zip((query, key), gains, strict=True))
    query, key = (rotate_definition(part, cos, sin, pairing) for part in (query, key))
    return tuple(part.transpose(1, 2) for part in (query, key, value))


def close(found: Tensor, exact: Tensor, steps: float = 1.0) -> None:
    """Within `steps` roundings to the dtype found in, and float32 in between."""
    bound = (
        steps * torch.finfo(found.dtype).eps * exact.abs() + 4e-6 * exact.abs().max() + torch.finfo(found.dtype).tiny
    )
    assert bool(((found.detach().cpu().double() - exact.detach()).abs() <= bound).all())


@pytest.mark.parametrize("normed", [False, True], ids=["plain", "normed"])
@pytest.mark.parametrize("pairing", ["halves", "interleaved"])
@pytest.mark.parametrize(
    ("rows", "tokens", "heads", "width", "share"),
    [(2, 11, 6, 64, 1.0), (1, 8, 2, 32, 1.0), (3, 34, 4, 80, 1.0), (2, 37, 10, 128, 0.5), (1, 3, 2, 80, 0.4), (0, 4, 2, 32, 1.0)],
)  # fmt: skip
@pytest.mark.parametrize("dtype", first_fast([torch.bfloat16, torch.float16]))
def test_values_and_gradients(
    rows: int, tokens: int, heads: int, width: int, share: float, pairing: str, normed: bool, dtype: torch.dtype
) -> None:
    generator = torch.Generator().manual_seed(width + tokens)
    projected = torch.randn(rows, tokens, (heads + 4) * width, generator=generator).to(dtype)
    angles = torch.randn(1 if tokens % 2 else rows, 1, tokens, int(share * width) // 2, generator=generator)
    cos, sin = angles.cos(), angles.sin()
    gains = torch.rand(2, width, generator=generator) + 0.5 if normed else None
    exact = projected.double().requires_grad_()
    exact_gains = None if gains is None else gains.double().requires_grad_()
    wanted = expected(exact, cos.double(), sin.double(), exact_gains, heads, pairing)
    incoming = [torch.randn(part.shape, generator=generator).to(dtype) for part in wanted]
    # in memory as [B, H, T, W]; the same for all tokens; with gaps between the channels
    incoming[0] = incoming[0].transpose(1, 2).contiguous().transpose(1, 2)
    incoming[1] = incoming[1][:, :1].expand_as(incoming[1])
    incoming[2] = torch.stack((incoming[2], incoming[2]), dim=-1)[..., 0]
    torch.autograd.backward(wanted, [each.double() for each in incoming])

    given = projected.to(DEVICE).requires_grad_()
    given_gains = None if gains is None else gains.to(DEVICE).requires_grad_()
    interleaved = pairing == "interleaved"
    found = qk_norm_rope_kernel.qk_norm_rope_forward(
        given, cos.to(DEVICE), sin.to(DEVICE), given_gains, heads, 2, EPSILON, interleaved
    )
    torch.autograd.backward(found, [each.to(DEVICE) for each in incoming])
    assert given.grad is not None and exact.grad is not None
    for ours, theirs in zip((*found, given.grad), (*wanted, exact.grad), strict=True):
        assert ours.shape == theirs.shape and ours.dtype == dtype
        assert ours.is_contiguous()
        if theirs.numel():
            close(ours, theirs)
    assert torch.equal(found[2].cpu(), projected[..., (heads + 2) * width :].unflatten(-1, (2, width)))
    if exact_gains is not None and given_gains is not None:
        assert exact_gains.grad is not None and given_gains.grad is not None
        close(given_gains.grad, exact_gains.grad, steps=64)


@pytest.mark.parametrize("normed", [False, True], ids=["plain", "normed"])
def test_the_operator_as_torch_wants_it(normed: bool) -> None:
    """Schema, shapes without data, gradients, and tracing with static and dynamic shapes."""
    generator = torch.Generator().manual_seed(0)
    projected = torch.randn(2, 3, 8 * 32, generator=generator).bfloat16().to(DEVICE).requires_grad_()
    cos, sin = (torch.randn(1, 1, 3, 16, generator=generator).to(DEVICE) for _ in range(2))
    gains = torch.ones(2, 32, device=DEVICE, requires_grad=True) if normed else None
    torch.library.opcheck(qk_norm_rope_kernel.qk_norm_rope_forward, (projected, cos, sin, gains, 4, 2, EPSILON, False))


def gradients(x: Tensor, block: Block) -> list[Tensor]:
    found = [each.grad for each in (x, *block.parameters()) if each.grad is not None]
    assert len(found) == 1 + len(list(block.parameters()))
    return found


@pytest.mark.parametrize("query_key_norm", ["none", "head"])
@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
def test_a_layer_with_it_equals_one_without(
    query_key_norm: str, compiled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All gradients of a block are as near to float64 as without: in bfloat16 on a GPU, in float32 in the interpreter."""
    config = BlockConfig.model_validate(
        {
            "mixer": {"heads": 4, "key_value_heads": 2, "head_width": 32, "query_key_norm": query_key_norm}
            | {"kind": "attention", "gate": {"place": "value", "form": "elementwise"}},
            "feed_forward": {"kind": "dense", "width": 48},
        }
    )
    torch.manual_seed(0)
    exact = Block(config, Site(40, 0, 1, NormConfig())).double()
    x = torch.randn(2, 21, 40, dtype=torch.float64, requires_grad=True)
    positions = torch.arange(21).expand(2, 21)
    exact(x, Context(positions)).square().sum().backward()
    wanted = gradients(x, exact)

    taken: list[bool] = []
    errors = []
    torch._dynamo.reset()
    for with_it in (True, False):

        def allowed(projected: Tensor, cos_sin: object, width: int, with_it: bool = with_it) -> bool:
            taken.append(with_it)
            return with_it  # the interpreter's tensors are on the CPU

        monkeypatch.setattr(operation, "kernel_allowed", allowed)
        block, given = copy.deepcopy(exact).float().to(DEVICE), x.detach().float().to(DEVICE).requires_grad_()
        context = Context(positions.to(DEVICE))
        assert block.mixer is not None
        block.mixer.prepare(context)
        if compiled:
            block.compile(dynamic=False, fullgraph=True, backend="inductor" if DEVICE == "cuda" else "aot_eager")
        with torch.autocast(DEVICE, torch.bfloat16, enabled=DEVICE == "cuda"):
            out = block(given, context)
        out.square().sum().backward()
        pairs = zip(gradients(given, block), wanted, strict=True)
        errors.append([float((ours.cpu() - theirs).norm() / theirs.norm()) for ours, theirs in pairs])
    assert taken == [True, False]
    for ours, theirs in zip(*errors, strict=True):
        assert ours < (1.2 * theirs + 2e-3 if DEVICE == "cuda" else 2e-6)
