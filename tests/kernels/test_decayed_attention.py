"""Linear attention with a decaying state by our kernels, values and gradients against the definition in float64.

On a GPU, or in Triton's interpreter on a CPU: TRITON_INTERPRET=1 python -m pytest tests/kernels/test_decayed_attention.py
The interpreter has no products of bfloat16: there inputs are float32.
"""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest
import torch

from tests.kernels.recurrence_cases import DOCUMENTS, by_operator, distances, make_recurrence

triton = pytest.importorskip("triton", reason="Triton is not installed")
if not torch.cuda.is_available() and os.environ.get("TRITON_INTERPRET") != "1":
    pytest.skip("needs a CUDA device, or TRITON_INTERPRET=1", allow_module_level=True)

from ingot.kernels import decayed_attention_kernel as kernel  # noqa: E402
from ingot.kernels.chunks import cut_documents, cut_equal  # noqa: E402
from tests.slow import first_fast  # noqa: E402

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


@pytest.mark.parametrize(
    ("lengths", "groups", "heads", "key_width", "value_width"),
    first_fast([(DOCUMENTS, 1, 2, 16, 32), ((70, 5), 2, 2, 48, 16), ((130,), 1, 3, 16, 80)], keep=2),
    ids=["documents", "odd widths", "group of three"],
)
def test_values_and_gradients_in_float32(
    lengths: tuple[int, ...], groups: int, heads: int, key_width: int, value_width: int
) -> None:
    case = make_recurrence("decayed", lengths, groups, heads, key_width, value_width, device=DEVICE)
    found = distances(by_operator(case, kernel.forward), case.exact())
    assert max(found.values()) < 3e-6, found


def test_strong_decays_stay_exact() -> None:
    """e^{+cumsum} would overflow float32 after two of these tokens."""
    case = make_recurrence("decayed", (70,), 1, 2, 16, 16, device=DEVICE, strength=60.0)
    found = distances(by_operator(case, kernel.forward), case.exact())
    assert max(found.values()) < 1e-4, found


def test_the_gradient_of_fixed_decays_is_not_computed() -> None:
    case = make_recurrence("decayed", (66,), 1, 1, 16, 16, device=DEVICE, first=False)
    case.inputs[3] = case.inputs[3].detach()
    at = (case.sequences.starts, case.sequences.chunks, case.sequences.offsets)
    out, *_ = kernel.forward(*case.inputs, None, *at, False)
    found = torch.autograd.grad(out, case.inputs[:3], case.gradient)
    case.last_gradient.zero_()
    exact = [x.detach() for x in case.exact()]
    for one, two in zip((out, *found), (exact[0], *exact[2:5]), strict=True):
        assert float((one.detach().double() - two).norm() / two.norm()) < 3e-6


def test_any_number_of_sequences_and_heads_can_be_launched(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second and third axis of CUDA's grid end at 65,535. 512 sequences of Nemotron-H's 128 heads are one more."""
    grids: list[tuple[int, ...]] = []

    class Recorded:
        def __getitem__(self, grid: tuple[int, ...]) -> Callable[..., None]:
            grids.append(grid)
            return lambda *given, **options: None

    monkeypatch.setattr(kernel, "_states", Recorded())
    sequences = cut_documents(torch.arange(513, dtype=torch.int32), 512)
    query, value, totals = torch.zeros(512, 1, 16), torch.zeros(512, 128, 16), torch.zeros(512, 128)
    at = (sequences.starts, sequences.chunks, sequences.offsets)
    kernel.run_states(query, value, totals, None, *at, backwards=False, wants_last=False)
    assert len(sequences.starts) - 1 >= 512 and grids
    assert all(size <= 65_535 for grid in grids for size in grid[1:])


def test_chunks_of_documents() -> None:
    """Every token is in one chunk, in order; surplus chunks are of a sequence without tokens."""
    lengths = [3, 64, 0, 65, 1, 129]
    starts = torch.tensor([0, *torch.tensor(lengths).cumsum(0).tolist()])
    made = cut_documents(torch.cat((starts, starts[-1:])), sum(lengths))  # metadata repeats the end
    tokens = list[int]()
    for sequence, place in made.chunks.tolist():
        begin, end = made.starts[sequence : sequence + 2].tolist()
        tokens += range(begin + 64 * place, min(begin + 64 * place + 64, end))
    assert tokens == list(range(sum(lengths)))
    for sequence, (begin, end) in enumerate(zip(made.starts[:-1].tolist(), made.starts[1:].tolist(), strict=True)):
        if end > begin:
            assert made.chunks[int(made.offsets[sequence])].tolist() == [sequence, 0]
    equal = cut_equal(3, 65, torch.device("cpu"))
    assert equal.starts.tolist() == [0, 65, 130, 195] and equal.offsets.tolist() == [0, 2, 4, 6]
    assert equal.chunks.tolist() == [[0, 0], [0, 1], [1, 0], [1, 1], [2, 0], [2, 1]]
