"""The order of the passes is that of torch's own schedules, the bubble that of the formula, the cut of layers the best one."""

from __future__ import annotations

import itertools
from types import SimpleNamespace
from typing import Any

import pytest
from pydantic import ValidationError
from torch.distributed.pipelining.schedules import Schedule1F1B, ScheduleInterleaved1F1B

from ingot.model.config import ModelConfig
from ingot.model.transformer import Transformer
from ingot.train.parallel.config import MeshConfig
from ingot.train.parallel.stages import balanced_cuts, divide_layers, layer_costs
from ingot.train.parallel.timetable import Action, bubble, rank_order, timetable
from ingot.workspace.errors import RecipeError
from tests.train.parallel.models import DENSE, MLA, MOE, shape


def no_stage(number: int, ranks: int, stages: int) -> Any:
    """As much of a stage as torch's schedules need to make their order."""
    place = {
        "stage_index": number,
        "num_stages": stages,
        "group_size": ranks,
        "group_rank": number % ranks,
        "group": None,
    }
    return SimpleNamespace(**place, is_first=number == 0, is_last=number == stages - 1, has_backward=True)


def torch_order(rank: int, ranks: int, per_rank: int, micros: int) -> list[Action]:
    stages = [no_stage(number, ranks, ranks * per_rank) for number in range(rank, ranks * per_rank, ranks)]
    if per_rank == 1:
        order = Schedule1F1B(stages[0], micros).pipeline_order
    else:
        order = ScheduleInterleaved1F1B(stages, micros).pipeline_order
    assert order is not None
    names = {"FORWARD": True, "FULL_BACKWARD": False}
    listed = [each for each in order[rank] if each is not None and each.computation_type.name in names]
    actions = [
        Action(names[each.computation_type.name], each.stage_index, each.microbatch_index or 0) for each in listed
    ]
    if per_rank == 1 and rank == ranks - 1:  # torch lists this rank's forward passes as 1 … M, though it runs 0 … M − 1
        actions = [Action(each.forward, each.stage, each.micro - each.forward) for each in actions]
    return actions


@pytest.mark.parametrize(
    ("ranks", "per_rank", "micros"),
    [(2, 1, 2), (2, 1, 5), (4, 1, 4), (4, 1, 11), (2, 2, 4), (2, 3, 8), (3, 2, 6), (4, 2, 8), (4, 4, 12), (8, 2, 32)],
)
def test_the_order_is_that_of_torch(ranks: int, per_rank: int, micros: int) -> None:
    for rank in range(ranks):
        assert rank_order(rank, ranks, per_rank, micros) == torch_order(rank, ranks, per_rank, micros), rank


def test_the_bubble_of_1f1b() -> None:
    for ranks, micros in itertools.product((2, 3, 4, 8), (1, 2, 3, 4, 7, 8, 32)):
        table = timetable(ranks, 1, micros)
        assert len(table) == 2 * (micros + ranks - 1)
        assert bubble(table) == pytest.approx((ranks - 1) / (micros + ranks - 1))


def test_the_bubble_of_interleaved_stages() -> None:
    for ranks, per_rank, groups in itertools.product((2, 3, 4, 8), (2, 3, 4), (1, 2, 5)):
        micros = ranks * groups
        table = timetable(ranks, per_rank, micros)
        assert bubble(table) == pytest.approx((ranks - 1) / (micros * per_rank + ranks - 1))
        assert bubble(table) < bubble(timetable(ranks, 1, micros))


@pytest.mark.parametrize(
    ("ranks", "per_rank", "micros"), [*itertools.product((2, 3, 4), (1, 2, 3), (1, 2, 3, 4, 5, 7, 8, 13))]
)
def test_every_pass_is_made_once_after_what_it_needs(ranks: int, per_rank: int, micros: int) -> None:
    stages, when = ranks * per_rank, dict[Action, int]()
    alive, most = [0] * ranks, [0] * ranks
    for number, slot in enumerate(timetable(ranks, per_rank, micros)):
        for rank, action in enumerate(slot):
            if action is None:
                continue
            assert action not in when and action.stage % ranks == rank
            when[action] = number
            alive[rank] += 1 if action.forward else -1
            most[rank] = max(most[rank], alive[rank])
    assert when.keys() == {Action(f, s, m) for f in (True, False) for s in range(stages) for m in range(micros)}
    for action, number in when.items():
        own = Action(True, action.stage, action.micro)
        before = Action(action.forward, action.stage + (-1 if action.forward else 1), action.micro)
        assert when.get(before, -1) < number and (action.forward or when[own] < number)
    for rank in range(ranks):
        first = ranks - rank - 1
        before_backward = first if per_rank == 1 else 2 * first + (per_rank - 1) * ranks
        assert most[rank] <= before_backward + 1, "no rank keeps the activations of more passes than it must"


def layered(blocks: dict[str, Any], layers: str) -> ModelConfig:
    parts = {"vocabulary_size": 8, "width": 32, "blocks": blocks, "layers": layers, "context": 32}
    return ModelConfig.model_validate(parts)


def brute_force(costs: list[int], parts: int) -> int:
    """The costliest part of the best cut."""
    inner = itertools.combinations(range(1, len(costs)), parts - 1)
    return min(max(sum(costs[a:b]) for a, b in itertools.pairwise((0, *cuts, len(costs)))) for cuts in inner)


@pytest.mark.parametrize(
    "costs", [[1] * 7, [5, 1, 1, 1, 1, 9], [3, 1, 4, 1, 5, 9, 2, 6, 5, 3], [1, 1, 1, 1, 1, 1, 1, 6]]
)
@pytest.mark.parametrize("parts", [1, 2, 3, 4, 6])
def test_the_costliest_stage_is_as_cheap_as_can_be(costs: list[int], parts: int) -> None:
    cuts = balanced_cuts(costs, parts)
    assert cuts[0] == 0 and cuts[-1] == len(costs) and len(cuts) == parts + 1
    pieces = [sum(costs[a:b]) for a, b in itertools.pairwise(cuts)]
    assert all(a < b for a, b in itertools.pairwise(cuts)) and max(pieces) == brute_force(costs, parts)


def test_equal_layers_are_divided_evenly() -> None:
    small = shape(DENSE, layers=8, vocabulary_size=8)
    assert [len(layers) for layers in divide_layers(small, 4)] == [2, 2, 2, 2]
    assert sorted(len(layers) for layers in divide_layers(shape(DENSE, layers=7, vocabulary_size=8), 3)) == [2, 2, 3]


def test_a_large_head_takes_layers_from_the_last_stage() -> None:
    """A layer has 7,680 matrix weights; a head of three layers' size leaves the last of two stages (8 + 3)/2 − 3 of eight."""
    costs, last = layer_costs(shape(DENSE, layers=8, vocabulary_size=720, context=1))
    matrices = sum(
        parameter.numel()
        for name, parameter in Transformer(shape(DENSE, layers=1)).named_parameters()
        if name.startswith("blocks.") and parameter.dim() == 2
    )
    assert len(set(costs)) == 1 and costs[0] == pytest.approx(6 * matrices, rel=0.02) and last == 6 * 720 * 32
    divided = divide_layers(shape(DENSE, layers=8, vocabulary_size=720, context=1), 2)
    assert [len(layers) for layers in divided] == [6, 2] or [len(layers) for layers in divided] == [5, 3]
    assert [*itertools.chain(*divided)] == list(range(8))


def test_layers_of_different_cost_are_weighed() -> None:
    mixed = shape(DENSE)
    dense, experts = mixed.blocks["layer"], shape(MOE).blocks["layer"]
    blocks = {"dense": dense.model_dump(), "experts": {**experts.model_dump(), "mixer": dense.model_dump()["mixer"]}}
    blocks["experts"]["feed_forward"]["active"] = 8
    config = layered(blocks, "dense*6 experts*2")
    costs, last = layer_costs(config)
    assert costs[7] > 1.5 * costs[0]
    first, second = divide_layers(config, 2)
    weighed = sum(costs[layer] for layer in first), sum(costs[layer] for layer in second) + last
    assert max(weighed) == brute_force([*costs[:-1], costs[-1] + last], 2)
    assert len(first) > len(second)


def test_layers_that_share_an_indexer_stay_with_it() -> None:
    sparse = {"heads": 2, "head_width": 8, "keep": 4}
    blocks = {
        "own": {**MLA, "mixer": {**MLA["mixer"], "sparse": sparse}},
        "shared": {**MLA, "mixer": {**MLA["mixer"], "sparse": {**sparse, "shared": True}}},
    }
    config = layered(blocks, "own shared own shared shared own")
    for stages in (2, 3):
        for layers in divide_layers(config, stages):
            assert config.layer_names[layers[0]] == "own"
    with pytest.raises(RecipeError, match="at most 3 stages"):
        divide_layers(config, 4)


def test_stages_and_schedule_must_agree() -> None:
    for schedule, stages in (("1f1b", 2), ("interleaved", 1)):
        with pytest.raises(ValidationError, match="interleaved needs at least 2 stages per rank"):
            MeshConfig.model_validate({"pipeline": 2, "pipeline_schedule": schedule, "pipeline_stages": stages})
