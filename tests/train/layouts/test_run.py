"""Layouts train as one process does; a wrong number, a failure and a refusal are seen for what they are."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, distributed
from torch._C._distributed_c10d import FileStore

from ingot.model.context_parallel import all_gather, reduce_scatter
from ingot.train.layouts.cases import Case, list_cases, make_case
from ingot.train.layouts.groups import CaseJob, CaseMachine, run_job
from ingot.train.layouts.run import CaseVerdict, judge, make_reference, prove
from ingot.train.layouts.staged import STAGED
from tests.slow import first_fast
from tests.train.parallel.ranks import run_ranks

TWO_CORES = CaseMachine("cpu", 2)
FAST = (  # each has what no other test of parallel/ has
    ("tensor", "float8"),
    ("context", "float8"),
    ("pipeline", "QLoRA"),
    ("ring", "recomputation"),
    ("expert", "kept products"),
    ("data", "noise scale"),
)


def quietly(verdict: CaseVerdict) -> None:
    """A run prints its verdicts; a test does not."""


def test_some_pairs() -> None:
    verdicts = prove([make_case((kind,), method) for kind, method in FAST], TWO_CORES, quietly)
    assert {each.case: each.text for each in verdicts if each.verdict != "equal"} == {}


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["data", "tensor", "context", "pipeline", "expert", "copies", "ring", "interleaved"])
def test_every_pair(kind: str) -> None:
    verdicts = prove([case for case in list_cases(4) if case.kinds[0] == kind], TWO_CORES, quietly)
    assert {each.case: each.text for each in verdicts if not each.good} == {}


def wrong(case: Case, change: Any) -> CaseVerdict:
    """The verdict when the numbers of two ranks are those of one process but for a change of them."""
    numbers = run_job(CaseJob("alone", case.alone), "cpu")
    ranks = [copy.deepcopy(numbers), copy.deepcopy(numbers)]
    change(ranks)
    return judge(case, ranks, [numbers], "cpu")


def scale(ranks: list[Any], kind: str, name: str, factor: float) -> None:
    for rank in ranks:
        found = rank[kind][0] if isinstance(rank[kind], list) else rank[kind]
        found[name] = found[name] * factor


def test_a_wrong_number_is_seen() -> None:
    case = make_case(("tensor",), None)
    norm = "blocks.0.mixer_norm.gain"
    assert wrong(case, lambda ranks: None).verdict == "equal"
    found = wrong(case, lambda ranks: scale(ranks, "gradients", norm, 1.0001))
    assert (found.verdict, found.text) == ("different", "gradients by 1.0e-04, allowed 3e-05")
    assert wrong(case, lambda ranks: scale(ranks, "values", "loss", 1.00001)).verdict == "different"
    assert wrong(case, lambda ranks: scale(ranks, "weights", norm, 1.0001)).verdict == "different"
    found = wrong(case, lambda ranks: scale(ranks[:1], "gradients", norm, 1 + 1e-7))
    assert found.text == f"rank 1 has other gradients of {norm} than a rank before it"
    found = wrong(case, lambda ranks: [rank["weights"].pop(norm) for rank in ranks])
    assert found.text == f"weights of other names: {norm}"


def test_float8_is_told_from_what_is_not() -> None:
    """Numbers of bfloat16 or float32, or with the scales of another layout, are not those of float8."""
    case = make_case(("tensor",), "float8")
    reference = make_reference(case)
    assert reference.scales_of is not None and reference.scales_of.tensor == 2
    numbers = run_job(reference, "cpu")
    assert sum("is in float8" in name for name in numbers["buffers"]) == 2 * 4
    other = run_job(replace(reference, scales_of=None), "cpu")
    assert judge(case, [other, other], [numbers], "cpu").verdict == "different"
    exact = run_job(CaseJob("exact", replace(case.alone, training={"precision": "float32"})), "cpu")
    assert "is in float8" in judge(case, [exact, exact], [numbers], "cpu").text


def test_what_fails_or_is_refused_does_not_stop_the_others() -> None:
    good = make_case(("tensor",), None)
    broken = replace(good, name="broken", model={**good.model, "blocks": {"layer": {"feed_forward": {"width": 63}}}})
    refused = make_case(("pipeline",), "noise scale")
    heard: list[str] = []
    verdicts = prove([refused, broken, good], TWO_CORES, lambda verdict: heard.append(verdict.case))
    assert [each.verdict for each in verdicts] == ["refused", "failed", "equal"]
    assert "tensor (2) does not divide width (63)" in verdicts[1].text
    assert sorted(heard) == ["broken", "pipeline × noise scale", "tensor"]


def exchanged(store: str, backend: str) -> dict[str, Any]:
    """What every exchange of training gives, in a group of this backend."""
    rank = distributed.get_rank()
    shared = FileStore(store + backend, 3)
    distributed.destroy_process_group()
    distributed.init_process_group(backend, store=shared, rank=rank, world_size=3, timeout=timedelta(seconds=30))
    generator = torch.Generator().manual_seed(rank)

    def drawn(*size: int) -> Tensor:
        return torch.randn(*size, generator=generator)

    found: dict[str, Any] = {"sum": drawn(3, 2), "max": drawn(4), "root": drawn(2)}
    distributed.all_reduce(found["sum"])
    distributed.all_reduce(found["max"], distributed.ReduceOp.MAX)
    distributed.broadcast(found["root"], 1)
    found["gathered"], found["scattered"] = torch.empty(9, 2), torch.empty(2, 2)
    all_gather(found["gathered"], drawn(3, 2))
    reduce_scatter(found["scattered"], drawn(6, 2))
    sent = [[0, 1, 2], [1, 1, 0], [2, 0, 1]][rank]
    received = [[0, 1, 2], [1, 1, 0], [2, 0, 1]][rank]
    found["all to all"] = torch.empty(sum(received), 2)
    distributed.all_to_all_single(found["all to all"], drawn(sum(sent), 2), received, sent)
    found["from the left"] = torch.empty(2)
    operations = [
        distributed.P2POp(distributed.isend, drawn(2), (rank + 1) % 3),
        distributed.P2POp(distributed.irecv, found["from the left"], (rank - 1) % 3),
    ]
    for work in distributed.batch_isend_irecv(operations):
        work.wait()
    objects: list[Any] = [None] * 3
    distributed.all_gather_object(objects, {"rank": rank})
    distributed.barrier()
    return {**found, "objects": objects}


def test_exchanges_through_memory_are_those_of_gloo(tmp_path: Path) -> None:
    staged = run_ranks(3, exchanged, tmp_path / "a", str(tmp_path / "b"), STAGED)
    gloo = run_ranks(3, exchanged, tmp_path / "c", str(tmp_path / "d"), "gloo")
    for found, expected in zip(staged, gloo, strict=True):
        assert found.pop("objects") == expected.pop("objects") == [{"rank": rank} for rank in range(3)]
        for name, value in expected.items():
            assert (found[name] == value).all(), name


def staged_jobs(store: str, jobs: list[CaseJob]) -> list[Any]:
    rank, size = distributed.get_rank(), distributed.get_world_size()
    distributed.destroy_process_group()
    shared = FileStore(store, size)
    distributed.init_process_group(STAGED, store=shared, rank=rank, world_size=size, timeout=timedelta(seconds=30))
    return [run_job(job, "cpu") for job in jobs]


PAIRS = (("data", "tensor"), ("context", "expert"), ("tensor", "expert"), ("pipeline", "data"))


@pytest.mark.parametrize(
    ("size", "kinds"),
    first_fast([(2, [(kind,) for kind in ("data", "tensor", "context", "ring", "pipeline", "expert")]), (4, PAIRS)]),
)
def test_layouts_over_the_transport_of_a_shared_card(
    size: int, kinds: Sequence[tuple[str, ...]], tmp_path: Path
) -> None:
    """Here between tensors of the CPU: what a card adds is the copy."""
    cases = [make_case(each, None) for each in kinds]
    jobs = [CaseJob(f"case{number}", case) for number, case in enumerate(cases)]
    ranks = run_ranks(size, staged_jobs, tmp_path / "a", str(tmp_path / "b"), jobs)
    for number, case in enumerate(cases):
        alone = run_job(make_reference(case), "cpu")
        found = judge(case, [rank[number] for rank in ranks], [alone], "cpu")
        assert found.verdict == "equal", found
