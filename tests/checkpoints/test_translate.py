"""Views as numbers, and tensors put together from rows: against the views themselves, whatever the cut."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ingot.checkpoints import tensors as pieces
from ingot.checkpoints.families.family import Layout, TensorMap, ViewPair, maps_to, rows
from ingot.checkpoints.tensors import MemoryTensors, fill
from ingot.checkpoints.translate import to_parameters, to_tensors
from ingot.workspace.errors import ArtifactError

EXPERTS, WIDTH, INNER = 5, 6, 4
SHAPES = {
    "embedding.weight": (11, WIDTH),
    "query_key_value.weight": (12, WIDTH),
    "experts.gate_up": (EXPERTS, 2 * INNER, WIDTH),
    "experts.down": (EXPERTS, WIDTH, INNER),
    "convolution": (6, 3),
    "scale": (),
}
LAYOUT: Layout = {
    "embed": maps_to("embedding.weight"),
    "copy": TensorMap((ViewPair("embedding.weight"),), duplicate=True),
    "q": maps_to("query_key_value.weight", rows(0, 6)),
    "k": maps_to(  # rows of two heads, in pairs instead of halves
        "query_key_value.weight",
        lambda t: t[6:10].unflatten(0, (2, 2, 1)),
        lambda t: t.unflatten(0, (2, 1, 2)).transpose(1, 2),
        shape=(4, WIDTH),
    ),
    "v": maps_to("query_key_value.weight", rows(10, 12)),
    # Stacked, transposed, gate and up interleaved, as gpt-oss has them.
    "gate_up": TensorMap(
        (
            ViewPair("experts.gate_up", lambda t: t[:, :INNER], lambda t: t[..., ::2].transpose(1, 2)),
            ViewPair("experts.gate_up", lambda t: t[:, INNER:], lambda t: t[..., 1::2].transpose(1, 2)),
        ),
        (EXPERTS, WIDTH, 2 * INNER),
    ),
    **{f"down.{n}": maps_to("experts.down", lambda t, n=n: t[n]) for n in range(EXPERTS)},  # type: ignore[misc]
    "conv": maps_to("convolution", lambda t: t[:, None]),
    "scale": maps_to("scale"),
    "made": TensorMap((), (4, 2), computed=lambda: torch.arange(8.0).reshape(4, 2)),
}


class Watched(MemoryTensors):
    """Notes the largest piece that was ever asked for."""

    largest = 0

    def rows(self, name: str, start: int, end: int) -> torch.Tensor:
        values = super().rows(name, start, end)
        self.largest = max(self.largest, values.nbytes)
        return values


def random_state(dtype: torch.dtype = torch.float32) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return {
        name: torch.nn.Parameter(torch.randn(shape, generator=generator).to(dtype)) for name, shape in SHAPES.items()
    }


def reference(state: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The tensors by the definition: each pair of views is copied as a whole."""
    made = {}
    for name, at in LAYOUT.items():
        if at.computed is not None:
            made[name] = at.computed()
            continue
        first = state[at.pairs[0].parameter]
        made[name] = torch.empty(at.shape or at.pairs[0].ours(first).shape, dtype=first.dtype)
        for pair in at.pairs:
            pair.theirs(made[name]).copy_(pair.ours(state[pair.parameter].detach()))
    return made


@settings(max_examples=60)
@given(chunk=st.integers(1, 500))
def test_both_directions_equal_the_views_for_every_size_of_piece(chunk: int) -> None:
    state = random_state()
    expected = reference(state)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pieces, "CHUNK", chunk)
        theirs = to_tensors(MemoryTensors(state), LAYOUT, state, "here")
        found = {name: torch.full(tensor.shape, torch.nan) for name, tensor in expected.items()}
        fill(found, theirs)
        assert all(torch.equal(found[name], tensor) for name, tensor in expected.items())
        ours = to_parameters(MemoryTensors(expected), LAYOUT, state, "here")
        back = {name: torch.full(shape, torch.nan) for name, shape in SHAPES.items()}
        fill(back, ours)
    assert all(torch.equal(back[name], tensor) for name, tensor in state.items())


def test_only_the_rows_that_are_needed_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stacked weight is read expert by expert, from a stacked tensor as from single ones."""
    monkeypatch.setattr(pieces, "CHUNK", 1)
    state = random_state()
    source = Watched(reference(state))
    ours = to_parameters(source, LAYOUT, state, "here")
    source.largest = 0
    expert = 2 * INNER * WIDTH * 4
    assert [values.nbytes for *_, values in ours.chunks("experts.gate_up")] == [expert] * EXPERTS
    assert source.largest == expert
    watched = Watched(state)
    theirs = to_tensors(watched, LAYOUT, state, "here")
    assert [values.nbytes for *_, values in theirs.chunks("gate_up")] == [expert] * EXPERTS
    assert watched.largest == expert


def test_parts_of_different_dtypes_take_the_widest() -> None:
    state = random_state()
    tensors = reference(state)
    tensors["v"] = tensors["v"].bfloat16()
    ours = to_parameters(MemoryTensors(tensors), LAYOUT, state, "here")
    assert ours.entries["query_key_value.weight"].dtype == torch.float32
    tensors |= {name: tensors[name].bfloat16() for name in ("q", "k")}
    ours = to_parameters(MemoryTensors(tensors), LAYOUT, state, "here")
    assert ours.entries["query_key_value.weight"].dtype == torch.bfloat16


def test_a_duplicate_may_be_missing_but_not_different() -> None:
    state = random_state()
    tensors = reference(state)
    missing = {name: tensor for name, tensor in tensors.items() if name != "copy"}
    to_parameters(MemoryTensors(missing), LAYOUT, state, "here")
    tensors["copy"][10, 0] += 1
    with pytest.raises(ArtifactError, match=r"copy should be a copy of embedding\.weight, but it is another matrix"):
        to_parameters(MemoryTensors(tensors), LAYOUT, state, "here")


def test_no_parameter_is_left_out() -> None:
    state = random_state()
    state["extra"] = torch.nn.Parameter(torch.ones(2))
    state["momentum"] = torch.ones(3)  # a buffer of training: zero in a model that was just imported
    tensors = reference(state)
    for convert in (to_parameters, to_tensors):
        with pytest.raises(ArtifactError, match="here: the model type cannot store these parameters: extra"):
            convert(MemoryTensors(tensors if convert is to_parameters else state), LAYOUT, state, "here")
    del state["extra"]
    ours = to_parameters(MemoryTensors(tensors), LAYOUT, state, "here")
    assert torch.equal(ours.rows("momentum", 0, 3), torch.zeros(3))
