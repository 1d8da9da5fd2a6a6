"""Prompts that are read by graphs: the same texts, whatever shares a pass; what does not fit is read as before."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import pytest
import torch
from torch import Tensor

from ingot.inference import engine as engine_module
from ingot.inference.engine import Engine
from ingot.inference.memory import Memory
from ingot.inference.prefill import PromptChunk, read_chunks
from ingot.inference.prompt_graphs import ROW, SIZES, PromptGraphs
from ingot.inference.sampling import Sampling
from ingot.model.transformer import Transformer
from tests.inference.test_engine_mixers import text


class Again:
    """In place of a graph: it runs once more what was captured, on the same tensors."""

    def __init__(self, run: Callable[[], Tensor]) -> None:
        self.run, self.replays = run, 0

    def replay(self) -> None:
        self.run()
        self.replays += 1


@contextmanager
def with_graphs(engine: Engine) -> Iterator[list[Again]]:
    """The engine reads prompts as on a GPU."""
    made: list[Again] = []

    def capture(run: Callable[[], Tensor]) -> tuple[Again, Tensor]:
        made.append(Again(run))
        return made[-1], run()  # the warm-up writes, too: dead rows must write nowhere

    engine._prompt_graphs = PromptGraphs(engine.model, engine._memory, capture)
    yield made


def texts(engine: Engine) -> list[list[int]]:
    """Groups of one prompt each, of lengths around those of rows and pages, more of them than slots."""
    lengths = (1, 2, 15, 16, 17, 18, 33, 40, 64)
    prompts = [text(length, length) for length in lengths for _ in range(3)]
    samplings = [Sampling(max_new_tokens=3 + number % 7, seed=number) for number in range(len(prompts))]
    return [each.tokens for each in engine.complete(prompts, samplings)]


@torch.no_grad()
def test_texts_are_the_same(model: Transformer) -> None:
    double = model.double()
    plain = texts(Engine(double, slots=20, length=96, chunk=400))
    engine = Engine(double, slots=20, length=96, chunk=400)
    with with_graphs(engine) as made:
        assert texts(engine) == plain
    assert len(made) > 1 and sum(each.replays for each in made) > 3


@torch.no_grad()
def test_long_prompts_and_scores_are_read_as_before(model: Transformer, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []

    def counted(model: Transformer, memory: Memory, chunks: Sequence[PromptChunk], drafter: None) -> None:
        read.append(len(chunks))
        read_chunks(model, memory, chunks, drafter)

    monkeypatch.setattr(engine_module, "read_chunks", counted)
    engine = Engine(model, slots=4, length=96, chunk=4096)
    with with_graphs(engine) as made:
        monkeypatch.setattr("ingot.inference.prompt_graphs.SIZES", (1, 2))
        engine.complete([text(ROW * 2 + 1, 1)], [Sampling(max_new_tokens=1)])
        assert not read and len(made) == 1
        engine.complete([text(ROW * 2 + 2, 2)], [Sampling(max_new_tokens=1)])  # three rows
        assert len(read) == 1
        request = engine.submit_scoring(text(6, 3), 2)
        while request.finish is None:
            engine.step()
        assert len(read) == 2 and request.scoring is not None and len(request.scoring.inner) == 3
    assert SIZES[-1] * ROW == 2048


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@torch.no_grad()
def test_captured_graphs_on_a_gpu(model: Transformer) -> None:
    """In float32, where the length of a row changes nothing but the order of sums."""
    there = model.float().cuda()
    plain = Engine(there, slots=20, length=96, chunk=400)
    assert isinstance(plain._prompt_graphs, PromptGraphs)
    plain._prompt_graphs = None
    engine = Engine(there, slots=20, length=96, chunk=400)
    assert texts(engine) == texts(plain)
    assert engine._prompt_graphs is not None and len(engine._prompt_graphs._graphs) > 1
