"""Linear attention with a decaying state by our kernels, values and gradients against the definition in float64.

On a GPU, or in Triton's interpreter on a CPU: TRITON_INTERPRET=1 python -m pytest tests/kernels/test_decayed_attention.py
The interpreter has no products of bfloat16: there inputs are float32.
"""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from tests.kernels.recurrence_cases import DOCUMENTS, by_operator, distances, make_recurrence

triton = pytest.importorskip("triton", reason="Triton is not installed")
if not torch.cuda.is_available() and os.environ.get("TRITON_INTERPRET") != "1":
    pytest.skip("needs a CUDA device, or TRITON_INTERPRET=1", allow_module_level=True)

from ingot.kernels.linear import decayed_attention_kernel as kernel  # noqa: E402
from ingot.kernels.linear import states_kernel  # noqa: E402
from ingot.kernels.linear.chunk_kernel import totals  # noqa: E402
from ingot.kernels.linear.chunks import Sequences, cut_documents, cut_equal  # noqa: E402
from tests.slow import first_fast  # noqa: E402

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
WEAK = 0.003  # decays with which a part of 128 tokens forgets little of the state before it


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


@pytest.fixture
def parts_of_two_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sequences of more than 128 tokens are cut into parts, whatever the batch."""
    for name, value in (("PART", 2), ("LONG", 0), ("CUT", 10**9)):
        monkeypatch.setattr(states_kernel, name, value)


@pytest.mark.usefixtures("parts_of_two_chunks")
@pytest.mark.parametrize(
    ("lengths", "groups", "heads", "key_width", "value_width", "first", "strength"),
    first_fast(
        [
            ((1, 130, 0, 65, 400, 1), 1, 2, 16, 32, True, WEAK),  # parts across windows
            ((330,), 1, 1, 48, 80, False, WEAK),
            ((1, 450, 70), 1, 1, 16, 16, True, 2.0),  # only the chunk next to a border is remembered there
            ((128, 256, 129, 0), 2, 2, 16, 16, True, WEAK),  # borders at the ends of sequences are none
            (DOCUMENTS, 2, 4, 32, 16, False, WEAK),
        ],
        keep=3,
    ),
    ids=["mixed", "one row", "forgetful", "whole parts", "documents"],
)
def test_sequences_cut_into_parts(
    lengths: tuple[int, ...],
    groups: int,
    heads: int,
    key_width: int,
    value_width: int,
    first: bool,
    strength: float,
) -> None:
    made = {"device": DEVICE, "first": first, "strength": strength}
    case = make_recurrence("decayed", lengths, groups, heads, key_width, value_width, **made)  # type: ignore[arg-type]
    assert states_kernel.border_count(len(case.sequences.chunks), 1, heads) > 0
    found = distances(by_operator(case, kernel.forward), case.exact())
    assert max(found.values()) < 3e-6, found


@pytest.mark.usefixtures("parts_of_two_chunks")
@pytest.mark.parametrize("backwards", [False, True])
def test_parts_of_a_document_do_not_depend_on_where_it_lies(backwards: bool) -> None:
    """Its states are bit by bit those of the document alone."""
    lengths = (70, 330, 1, 64, 0, 200, 385)
    case = make_recurrence("decayed", lengths, 1, 1, 16, 16, device=DEVICE, strength=WEAK)
    left, right, decay = case.inputs[1].detach(), case.inputs[2].detach(), case.inputs[3].detach()
    assert case.first is not None
    first, begin = case.first.detach(), 0

    def states(made: Sequences, first: Tensor, tokens: slice) -> tuple[Tensor, Tensor]:
        sums = totals(decay[tokens], made.starts, made.chunks)
        given = (left[tokens], right[tokens], sums, first, made.starts, made.chunks, made.offsets)
        found, last = states_kernel.run_states(*given, backwards=backwards, wants_last=True)
        assert last is not None
        return found, last

    together, last = states(case.sequences, first, slice(None))
    for number, length in enumerate(lengths):
        place, end = case.sequences.offsets[number : number + 2].tolist()
        if length:
            made = cut_equal(1, length, left.device)
            alone, behind = states(made, first[number : number + 1], slice(begin, begin + length))
            assert torch.equal(together[place:end], alone) and torch.equal(last[number], behind[0]), length
        begin += length
    assert torch.equal(last[4], first[4])  # the document without tokens


@pytest.mark.usefixtures("parts_of_two_chunks")
@pytest.mark.parametrize("backwards", [False, True])
def test_parts_of_one_document_with_nan_leave_the_others(backwards: bool) -> None:
    made = cut_documents(torch.tensor([0, 300, 600, 900], device=DEVICE), 900)
    left, right, sums = (torch.ones(900, 1, 16, device=DEVICE) for _ in range(3))
    right[300:600] = torch.nan
    given = (left, right, -0.1 * sums[..., 0], None, made.starts, made.chunks, made.offsets)
    states, last = states_kernel.run_states(*given, backwards=backwards, wants_last=True)
    assert last is not None and last.isfinite().all(dim=(1, 2, 3)).tolist() == [True, False, True, True]
    assert bool(torch.cat((states[:5], states[10:15])).isfinite().all())


def test_only_few_long_sequences_are_cut_into_parts() -> None:
    """Where there are many sequences, or short ones, keys would be read twice for nothing."""
    assert states_kernel.border_count(2048, 1, 16) > 0
    for rows, tokens, heads in ((1, 4096, 16), (8, 4096, 16), (8, 131_072, 16), (1, 131_072, 128)):
        assert states_kernel.border_count(rows * tokens // 64, rows, heads) == 0


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

    monkeypatch.setattr(states_kernel, "_states", Recorded())
    sequences = cut_documents(torch.arange(513, dtype=torch.int32), 512)
    query, value, totals = torch.zeros(512, 1, 16), torch.zeros(512, 128, 16), torch.zeros(512, 128)
    at = (sequences.starts, sequences.chunks, sequences.offsets)
    states_kernel.run_states(query, value, totals, None, *at, backwards=False, wants_last=False)
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
