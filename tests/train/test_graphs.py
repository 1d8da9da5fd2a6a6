"""When steps are recorded and when they are not, with a recorder that only notes what is asked of it.

That captured graphs compute what passes compute is shown on a GPU (test_graphs_cuda.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from ingot.model.count import count
from ingot.model.transformer import Transformer
from ingot.tokens.batch import Batch
from ingot.tokens.batch import TokenSequence as Text
from ingot.tokens.metadata import with_metadata
from ingot.tokens.packing import make_batch
from ingot.train.graphs import SHAPES, SHORT_FLOPS, Graphs, _obstacle, shape_of, short_pass
from ingot.train.losses.policy_gradient import PolicyGradient
from ingot.train.losses.terms import CrossEntropy, LossTerm
from ingot.train.passes import Objective, Sums
from ingot.workspace.errors import RecipeError
from tests.making.stages import stage_folder
from tests.model.tiny import config as tiny_config
from tests.train.toy import make_trainer


class Stream:
    def __init__(self, device: object) -> None:
        pass

    def wait_stream(self, other: object) -> None:
        pass


class Card:
    """Stands in for torch.cuda: notes in what mode passes run."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.mode, self.recording, self.replays, self.free = "default", False, 0, 10**12
        card = self

        class Graph:
            def replay(self) -> None:
                card.replays += 1

        @contextmanager
        def graph(*_: Any, **__: Any) -> Iterator[None]:
            card.recording = True
            yield
            card.recording = False

        @contextmanager
        def stream(_: object) -> Iterator[None]:
            yield

        fakes: dict[str, Any] = {
            "Stream": Stream,
            "current_stream": Stream,
            "stream": stream,
            "graph_pool_handle": lambda: 0,
            "CUDAGraph": Graph,
            "graph": graph,
            "synchronize": lambda _: None,
            "empty_cache": lambda: None,
            "max_memory_allocated": lambda _: 3 * 10**9,
            "memory_allocated": lambda _: 10**9,
            "mem_get_info": lambda _: (card.free, 0),
            "set_sync_debug_mode": lambda mode: setattr(card, "mode", mode),
        }
        for name, fake in fakes.items():
            patch.setattr(torch.cuda, name, fake)
        patch.setattr(torch._C, "_cuda_clearCublasWorkspaces", lambda: None, raising=False)


class Passes:
    """Adds 1 to the gradient; `waits`: a part of it asks the device."""

    def __init__(self, card: Card, waits: bool = False) -> None:
        self.card, self.waits, self.ran = card, waits, list[str]()
        self.model, self.device = nn.Linear(1, 1, bias=False), torch.device("cpu")
        self.objective = Objective([CrossEntropy()])

    def run(self, batches: Sequence[Batch], denominators: Mapping[str, Tensor], tokens: Tensor) -> Sums:
        weight = self.model.weight
        weight.grad = torch.ones(1, 1) if weight.grad is None else weight.grad + 1
        if self.waits and self.card.mode == "error":
            raise RuntimeError("called a synchronizing CUDA operation")
        self.ran.append("recorded" if self.card.recording else self.card.mode)
        return Sums({"loss": tokens.clone()})


@pytest.fixture
def card(monkeypatch: pytest.MonkeyPatch) -> Card:
    return Card(monkeypatch)


def batch_of(length: int, documents: int = 1) -> Batch:
    texts = [Text(list(range(length)), {"weight": [1.0] * length}) for _ in range(documents)]
    return with_metadata(make_batch(texts, length))


def step(graphs: Graphs, batch: Batch) -> None:
    """A step as the loop takes it: no gradient before, those of one step after."""
    graphs.passes.model.zero_grad(set_to_none=True)
    sums = graphs.run([batch], {"loss": torch.ones(())}, torch.tensor(3.0))
    assert float(sums.parts["loss"]) == 3.0
    gradient = graphs.passes.model.get_parameter("weight").grad
    assert gradient is not None and float(gradient) == 1.0


def make(passes: Passes) -> tuple[Graphs, list[str]]:
    lines: list[str] = []
    return Graphs(passes, lines.append), lines  # type: ignore[arg-type]


def test_two_steps_as_usual_then_a_recording(card: Card) -> None:
    passes = Passes(card)
    graphs, lines = make(passes)
    for _ in range(5):
        step(graphs, batch_of(8))
    assert passes.ran == ["default", "error", "recorded"]  # the second is watched; a recording is replayed at once
    assert card.replays == 3 and card.mode == "default" and not lines
    for _ in range(3):
        step(graphs, batch_of(6))
    assert passes.ran[3:] == ["default", "default", "recorded"] and len(graphs.captured) == 2


def test_a_part_that_waits_is_found_before_anything_is_recorded(card: Card) -> None:
    passes = Passes(card, waits=True)
    graphs, lines = make(passes)
    for _ in range(4):
        step(graphs, batch_of(8))  # gradients are those of one step, also after the broken one
    assert passes.ran == ["default"] * 4 and card.replays == 0
    assert lines == [
        "no CUDA graphs from here on: a part of the model or of its loss waits for the device in the middle of a pass"
    ]


def test_other_errors_are_not_swallowed(card: Card) -> None:
    passes = Passes(card)
    graphs, _ = make(passes)
    step(graphs, batch_of(8))

    def fail(*_: Any) -> Sums:
        raise RuntimeError("something else")

    passes.run = fail  # type: ignore[method-assign, assignment]
    with pytest.raises(RuntimeError, match="something else"):
        step(graphs, batch_of(8))
    assert card.mode == "default"


def test_little_memory_and_many_shapes(card: Card) -> None:
    card.free = 4 * 10**9  # a step needs 2: the graph needs as much, another shape as much again, and a margin
    graphs, lines = make(Passes(card))
    for _ in range(4):
        step(graphs, batch_of(8))
    assert card.replays == 0 and "do not fit" in lines[0]
    card.free = 10**12
    graphs, lines = make(Passes(card))
    for length in range(2, SHAPES + 4):
        step(graphs, batch_of(length))
    assert lines == ["no CUDA graphs from here on: batches have too many shapes"] and len(graphs.seen) == SHAPES + 1


def test_a_shape_is_all_but_the_values() -> None:
    assert shape_of(batch_of(8)) == shape_of(batch_of(8).map(lambda tensor: tensor + 1))
    assert shape_of(batch_of(8)) != shape_of(batch_of(9))
    assert shape_of(batch_of(8, documents=2)) != shape_of(batch_of(8))


def test_a_graph_has_the_temperature_it_was_captured_with(card: Card) -> None:
    passes = Passes(card)
    graphs, _ = make(passes)
    for temperature in (1.0, 0.5):
        passes.objective.temperature = temperature
        for _ in range(4):
            step(graphs, batch_of(8))
    assert passes.ran == ["default", "error", "recorded", "default", "default", "recorded"]


def test_long_passes_are_not_captured(card: Card) -> None:
    passes = Passes(card)
    graphs = Graphs(passes, lambda _: None, short=10)  # type: ignore[arg-type]
    for _ in range(4):
        step(graphs, batch_of(12))
    assert passes.ran == ["default"] * 4
    for _ in range(4):
        step(graphs, batch_of(10))
    assert passes.ran[4:] == ["default", "error", "recorded"]


def test_a_pass_is_short_by_its_layers() -> None:
    """A layer takes the host some milliseconds, however few FLOPs it has: half the width, about four times the tokens."""
    narrow, wide = (Transformer(tiny_config(width=width)) for width in (32, 64))
    assert short_pass(narrow, 16) > 1.5 * short_pass(wide, 16)
    flops = count(narrow.config).training_flops_per_token(16)
    assert short_pass(narrow, 16) * flops == pytest.approx(SHORT_FLOPS * len(narrow.blocks), rel=1e-6)


class Undecorated(CrossEntropy):
    """What a person may write: attributes that are not fields can be set at any time."""


def test_what_cannot_be_captured_says_why(tmp_path: Path) -> None:
    trainer = make_trainer(stage_folder(tmp_path))
    passes, config = trainer.passes, trainer.config
    passes.device = torch.device("cuda")
    cases: list[tuple[list[LossTerm], str | None]] = [
        ([CrossEntropy()], None),
        ([PolicyGradient()], None),
        ([PolicyGradient(level="mean")], "'policy_gradient' of its loss compares tokens"),
        ([CrossEntropy(), Undecorated()], "is not a frozen dataclass"),
    ]
    for terms, reason in cases:
        passes.objective.terms = terms
        found = _obstacle(config, passes)
        assert found is None if reason is None else found is not None and reason in found


def test_asking_for_graphs_on_a_cpu_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match="graphs: on, but the run is on a CPU"):
        make_trainer(stage_folder(tmp_path), graphs="on")
