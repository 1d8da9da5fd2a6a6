"""Context parallelism against one process: loss and every gradient, with documents that cross the borders of the ranks."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Literal

import numpy
import pytest
import torch
from torch import Tensor, distributed

from ingot.kernels.attention.attention_options import AttentionOptions
from ingot.model.config import ModelConfig
from ingot.model.context import Context
from ingot.model.context_parallel import ContextParallel
from ingot.model.mixers.attend import Backend, attend, use_backend
from ingot.model.mixers.attend_flex import block_mask
from ingot.model.mixers.mask import Mask
from ingot.model.order import orders, whole
from ingot.model.record import Record
from ingot.train.layouts.steps import uneven
from ingot.train.losses.preference import Preference
from ingot.train.losses.terms import CrossEntropy
from ingot.train.parallel.config import MeshConfig
from ingot.train.parallel.context import make_context_parallel
from ingot.train.parallel.layout import make_layout
from ingot.train.parallel.shard import shard_model
from ingot.train.parallel.tensor import apply_tensor_parallel
from ingot.workspace.errors import RecipeError
from tests.slow import slow
from tests.train.parallel.models import DENSE, MLA, MOE, shape, sparse, two_choices
from tests.train.parallel.ranks import run_ranks
from tests.train.parallel.reference import Results, compare, loss_of, one_process
from tests.train.parallel.steps import Case
from tests.train.parallel.steps import compare as compare_steps
from tests.train.parallel.test_tensor import RICH, varied

WINDOW = {**DENSE, "mixer": {**DENSE["mixer"], "window": 5}}
CHUNK = {**DENSE, "mixer": {**DENSE["mixer"], "chunk": 6, "softcap": 5.0, "sinks": True}}
DELTA = {
    "mixer": {"kind": "gated_delta", "key_heads": 2, "value_heads": 4, "key_width": 8, "value_width": 8},
    "feed_forward": {"width": 48},
}
BOTH = {
    "mixer": {
        "kind": "parallel",
        "attention": DENSE["mixer"],
        "mamba": {"kind": "mamba2", "heads": 4, "head_width": 8, "state": 8},
    },
    "feed_forward": {"width": 48},
}
GLOBAL = {
    **MOE,
    "feed_forward": {
        **MOE["feed_forward"],
        "balancers": [{"kind": "loss", "scope": "micro_batch", "coefficient": 0.1}],
    },
}


def mixed(**blocks: object) -> ModelConfig:
    parts = shape(DENSE).model_dump() | {"blocks": blocks, "layers": " ".join(blocks)}
    return ModelConfig.model_validate(parts)


MODELS = {
    "dense": shape(DENSE, 2),
    "rich": shape(RICH, 2),
    "mla": shape(MLA, 2),
    "moe": shape(MOE, 2),
    "sparse": shape(sparse(), 2),
    "warm": shape(sparse(stage="dense_warmup"), 2),
    "shared choice": two_choices(),
    "far": shape({**DENSE, "mixer": {**DENSE["mixer"], "dual_chunk": {"chunk": 8, "window": 4}}}, 1),
    "hybrid": mixed(window=WINDOW, delta=DELTA, both=BOTH, chunk=CHUNK),
    "balanced": shape(GLOBAL, 2),
    "ahead": shape(DENSE, 2, multi_token={"block": "layer", "steps": 2}),
}


def by_context(names: list[str], mesh: MeshConfig, batch_seed: int = 0) -> list[Results]:
    layout = make_layout(mesh, torch.device("cpu"))
    assert layout is not None
    results = []
    for name in names:
        model = varied(MODELS[name])
        apply_tensor_parallel(model, layout)
        context_parallel = make_context_parallel(model, layout)
        if layout.size("shard") > 1:
            shard_model(model, layout, torch.float32)
        rows = slice(layout.data_rank, None, layout.data_world)
        loss = loss_of(model, uneven(batch_seed), rows, context_parallel)
        loss.backward()
        order, gradients = orders(model), {}
        for each_name, each in model.named_parameters():
            if each.grad is not None:
                gradient = whole(each.grad, order.get(each_name))
                if layout.size("shard") == 1:  # else the sum over ranks is FSDP's
                    gradient = layout.sum_over_loss(gradient.contiguous())
                gradients[each_name] = gradient
        results.append((float(layout.sum_over_loss(loss.detach())), gradients))
    return results


@pytest.mark.parametrize(
    ("mesh", "names"),
    [
        (MeshConfig(context=2), list(MODELS)),
        pytest.param(MeshConfig(context=4), ["dense", "mla", "hybrid"], marks=pytest.mark.slow),
        pytest.param(
            MeshConfig(context=2, tensor=2),
            ["rich", "mla", "moe", "sparse", "warm", "shared choice"],
            marks=pytest.mark.slow,
        ),
        pytest.param(MeshConfig(context=2, shard=2), ["moe", "hybrid"], marks=pytest.mark.slow),
        pytest.param(MeshConfig(context=2, context_method="ring"), list(MODELS), marks=pytest.mark.slow),
        (MeshConfig(context=4, context_method="ring"), ["rich", "hybrid"]),
        pytest.param(MeshConfig(context=4, context_method="ring"), ["mla"], marks=pytest.mark.slow),
        pytest.param(MeshConfig(context=2, tensor=2, context_method="ring"), ["rich", "mla"], marks=pytest.mark.slow),
    ],
    ids=["2", "4", "2 tensor 2", "2 shard 2", "ring 2", "ring 4", "ring 4, latent", "ring 2 tensor 2"],
)
def test_loss_and_all_gradients_equal_one_process(mesh: MeshConfig, names: list[str], tmp_path: Path) -> None:
    world = mesh.context * mesh.tensor * max(1, mesh.shard)
    ranks = run_ranks(world, by_context, tmp_path / "store", names, mesh)
    for number, name in enumerate(names):
        compare(one_process(varied(MODELS[name]), uneven(0)), [rank[number] for rank in ranks], bound=1e-5)


@pytest.mark.parametrize(
    ("name", "mesh"),
    [
        ("moe", {"context": 2}),
        *map(slow, [("ahead", {"context": 2, "tensor": 2}), ("moe", {"context": 2, "tensor": 2})]),
    ],
)
def test_steps_of_training_equal_one_process(name: str, mesh: dict[str, int], tmp_path: Path) -> None:
    """Two optimizer steps through the real passes: counts, losses by source, multi-token prediction, routers' biases."""
    case = Case(name, MODELS[name], mesh)
    for rank, worst in enumerate(compare_steps([case], math.prod(mesh.values()), tmp_path / "store")[name]):
        assert max(worst.values()) < 1e-5, (rank, worst)


@pytest.mark.parametrize(("window", "chunk"), [(None, None), (130, None), (None, 200)])
def test_backends_agree_on_a_part_of_the_rows(window: int | None, chunk: int | None) -> None:
    """Queries of one rank against the keys of whole rows: the definition, blocks with their gradients, flex."""
    generator = torch.Generator().manual_seed(2)
    length, ranks = 1024, 2
    cuts = torch.tensor([[100, 300, 301, 700], [1, 127, 520, 1000]])
    documents = (torch.arange(length) >= cuts[:, :, None]).sum(dim=1)
    documents[:, -9:] = -1
    rows = Context(torch.arange(length).expand(2, -1), documents)
    query = torch.randn(2, 4, length, 16, generator=generator)
    key, value = (torch.randn(2, 2, length, 16, generator=generator) for _ in range(2))
    for rank in range(ranks):
        context_parallel = ContextParallel(None, rank, ranks)  # type: ignore[arg-type]
        found = {}
        backends: tuple[Backend, ...] = ("plain", "blocks", "flex")
        for backend in backends:
            context = rows.part(context_parallel)
            inputs = [
                x.detach().requires_grad_(backend != "flex") for x in (context_parallel.own(query, 2), key, value)
            ]
            with use_backend(backend):
                mixed = attend(inputs[0], inputs[1], inputs[2], context, AttentionOptions(0.25, window, chunk))
            found[backend] = [mixed.detach()]
            if backend != "flex":  # it has no gradients on a CPU
                weights = torch.randn(mixed.shape, generator=torch.Generator().manual_seed(rank))
                found[backend] += torch.autograd.grad((mixed * weights).sum(), inputs)
        for backend in ("blocks", "flex"):
            for one, other in zip(found[backend], found["plain"], strict=backend == "blocks"):
                torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)


def test_flex_leaves_out_blocks_that_a_rank_cannot_see() -> None:
    """One document of 2,048 tokens on two ranks: the first has the pieces 0 and 3, the second 1 and 2, of 4 blocks each."""
    rows = Context(torch.arange(2048)[None], torch.zeros(1, 2048, dtype=torch.int64))
    for rank, seen in ((0, [1, 2, 3, 4, 13, 14, 15, 16]), (1, [5, 6, 7, 8, 9, 10, 11, 12])):
        part = rows.part(ContextParallel(None, rank, 2))  # type: ignore[arg-type]
        mask = block_mask(Mask().first(part), part.index_T, 2048)
        counts = (mask.kv_num_blocks + mask.full_kv_num_blocks)[0, 0].tolist()
        assert counts == seen
        assert mask.kv_num_blocks[0, 0].tolist() == [1] * 8  # only the blocks on the diagonal need the mask


def refusals() -> list[str]:
    layout = make_layout(MeshConfig(context=2), torch.device("cpu"))
    messages = []
    model = varied(MODELS["dense"])
    with pytest.raises(RecipeError) as caught:
        make_context_parallel(model, layout, [CrossEntropy(), Preference()])
    messages.append(str(caught.value))
    context_parallel = make_context_parallel(model, layout, [CrossEntropy()])
    with pytest.raises(RecipeError) as caught:
        model.hidden(torch.zeros(1, 30, dtype=torch.int64), context_parallel=context_parallel)
    return [*messages, str(caught.value)]


def test_what_cannot_be_divided_is_refused(tmp_path: Path) -> None:
    for term, length in run_ranks(2, refusals, tmp_path / "store"):
        assert "'preference' looks at whole sequences" in term
        assert "rows of 30 tokens" in length and "multiple of 4" in length


def states_and_peaks(names: list[str], method: Literal["gather", "ring"]) -> list[tuple[Tensor, dict[int, Tensor]]]:
    """Rows without documents: all ranks' states put together, and the largest logits of all ranks."""
    layout = make_layout(MeshConfig(context=2, context_method=method), torch.device("cpu"))
    assert layout is not None
    results = []
    for name in names:
        model, record = varied(MODELS[name]), Record(want_logits=True)
        context_parallel = make_context_parallel(model, layout)
        assert context_parallel is not None
        states = model.hidden(uneven(0).tokens, record=record, context_parallel=context_parallel)
        for maxima in record.max_logits.values():
            distributed.all_reduce(maxima, distributed.ReduceOp.MAX)
        results.append((context_parallel.gather(states), record.max_logits))
    return results


@pytest.mark.parametrize("method", ["gather", "ring"])
def test_rows_of_one_document_and_largest_logits(method: str, tmp_path: Path) -> None:
    names = ["rich", "mla", "hybrid"]
    ranks = run_ranks(2, states_and_peaks, tmp_path / "store", names, method)
    for number, name in enumerate(names):
        record = Record(want_logits=True)
        expected = varied(MODELS[name]).hidden(uneven(0).tokens, record=record).detach().numpy()
        for states, maxima in (rank[number] for rank in ranks):
            numpy.testing.assert_allclose(states, expected, rtol=1e-5, atol=1e-5)
            assert maxima.keys() == record.max_logits.keys()
            for layer, largest in record.max_logits.items():
                numpy.testing.assert_allclose(maxima[layer], largest.numpy(), rtol=1e-5)
