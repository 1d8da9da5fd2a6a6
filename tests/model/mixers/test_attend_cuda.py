"""Every backend on a GPU gives what the definition gives in float64 on the CPU. Needs torch and pytest only."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache

import pytest
import torch

from ingot.kernels.attention.attend_paged import attend_past, visible_past
from ingot.kernels.attention.attention_options import AttentionOptions
from ingot.model.context import Context
from ingot.model.mixers.attend import Backend, attend
from tests.model.mixers.attend_cases import Case, Result, cases, largest_difference, run

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")

TOLERANCE = {torch.float64: 1e-12, torch.float32: 2e-5, torch.bfloat16: 3e-2}
BACKENDS: list[tuple[Backend | None, torch.dtype]] = [
    ("plain", torch.float32),
    ("sdpa", torch.float32),
    ("sdpa", torch.bfloat16),
    ("blocks", torch.float64),
    ("blocks", torch.bfloat16),
    ("varlen", torch.bfloat16),
    ("flex", torch.float32),
    ("flex", torch.bfloat16),
    (None, torch.float32),
    (None, torch.bfloat16),
    (None, torch.float64),
]


@cache
def definition(case: Case) -> Result:
    return run("plain", case, repeat=2)


@pytest.fixture(autouse=True)
def many_kernels() -> Iterator[None]:
    """Heads, softcap and sinks are compiled in (the mask is data): more kernels than the compiler allows by default."""
    with torch._dynamo.config.patch(recompile_limit=64):
        yield


@pytest.mark.parametrize(("backend", "dtype"), BACKENDS, ids=lambda value: str(value).removeprefix("torch."))
def test_backends_equal_the_definition(
    backend: Backend | None, dtype: torch.dtype, record_property: Callable[[str, object], None]
) -> None:
    chosen = [case for case in cases() if case.fused or backend not in ("sdpa", "varlen")]
    chosen = chosen[::7] if backend is None else chosen
    worst = {case: largest_difference(run(backend, case, dtype, "cuda", repeat=2), definition(case)) for case in chosen}
    record_property("cases", len(worst))
    record_property("largest relative difference", max(worst.values()))
    bad = {str(case): value for case, value in worst.items() if not value < TOLERANCE[dtype]}
    assert not bad, bad


@pytest.mark.parametrize("backend", ["varlen", "flex", None])
def test_long_rows(backend: Backend | None) -> None:
    """Documents of many blocks of keys: 3,000 tokens a row."""
    for case in (Case(), Case(window=500), Case(chunk=700, key_heads=1)):
        expected = run("plain", case, torch.float32, "cuda", repeat=40)
        found = run(backend, case, torch.bfloat16, "cuda", repeat=40)
        assert largest_difference(found, expected) < TOLERANCE[torch.bfloat16], case


def test_rows_of_changing_length() -> None:
    """Flex is compiled for one length, then for any: rows shorter than its blocks go elsewhere."""
    for repeat in (1, 2, 5, 3, 9, 4):
        case = Case(window=18, sinks=True)
        found = run(None, case, torch.bfloat16, "cuda", repeat=repeat)
        assert largest_difference(found, run("plain", case, torch.float32, "cuda", repeat=repeat)) < 3e-2, repeat


@torch.no_grad()
def test_the_past_with_grouped_heads() -> None:
    """Cached keys and values, five new tokens in each of three slots."""
    generator = torch.Generator().manual_seed(0)
    query, key, value = (torch.randn(3, heads, n, 16, generator=generator) for heads, n in ((6, 5), (2, 40), (2, 40)))
    positions = torch.tensor([[0], [9], [35]]) + torch.arange(5)
    results, options = [], AttentionOptions(0.3, window=20)
    for device in ("cpu", "cuda"):
        visible = visible_past(positions.to(device), torch.arange(40, device=device)[None], options)
        inputs = [x.to(device) for x in (query, key, value)]
        results.append(attend_past(inputs[0], inputs[1], inputs[2], visible, options).cpu())
    torch.testing.assert_close(results[1], results[0], rtol=1e-5, atol=1e-5)


def test_no_mask_waits_for_the_device() -> None:
    """Sinks and softcap on the GPU go through flex: after its compilation nothing synchronises with the host."""
    case = Case(window=18, sinks=True, softcap=2.0)
    run(None, case, torch.bfloat16, "cuda", repeat=2)
    query = torch.randn(4, 4, 150, 16, device="cuda", dtype=torch.bfloat16, requires_grad=True)
    documents = (torch.arange(150, device="cuda") // 30).expand(4, 150)
    positions = torch.arange(150, device="cuda").expand(4, 150)
    sinks = torch.zeros(4, device="cuda", dtype=torch.bfloat16, requires_grad=True)
    torch.cuda.set_sync_debug_mode("error")
    try:
        output = attend(
            query,
            query,
            query,
            Context(positions, documents),
            AttentionOptions(0.3, window=18, softcap=2.0, sinks_H=sinks),
        )
        output.sum().backward()
    finally:
        torch.cuda.set_sync_debug_mode("default")
