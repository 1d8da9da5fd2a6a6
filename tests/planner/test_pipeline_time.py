"""What a pipeline adds to a step, against the trainer's own timetable walked through with a clock; and its cut of the layers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from ingot.model.config import ModelConfig
from ingot.model.count import count
from ingot.planner.hardware import GPUS, reached
from ingot.planner.pipeline_time import sends, stretch
from ingot.planner.placement import best
from ingot.planner.published import PUBLISHED
from ingot.planner.shape import Matrix, shape_of
from ingot.planner.speed import FLEET_SHARE, LINK_SHARE, LOGIT_BYTES, product_seconds, step_speed
from ingot.train.parallel.config import MeshConfig
from ingot.train.parallel.stages import divide_layers
from ingot.train.parallel.timetable import rank_order

from .test_memory import stage

H200 = GPUS["h200"]
KERNELS = reached(H200)


def clock(ranks: int, per_rank: int, micros: int, send: float) -> float:
    """Every rank does its passes in order, each as soon as what it needs has come: forward 1, backward 2 units of time."""
    orders = [rank_order(rank, ranks, per_rank, micros) for rank in range(ranks)]
    ended, free = dict[Any, float](), [0.0] * ranks
    while any(orders):
        for rank, order in enumerate(orders):
            while order and ((needed := order[0].needs(ranks * per_rank)) is None or needed in ended):
                action = order.pop(0)
                travels = 0.0 if needed is None or needed.stage == action.stage else send
                begin = free[rank] if needed is None else max(free[rank], ended[needed] + travels)
                free[rank] = ended[action] = begin + (1 if action.forward else 2)
    return max(free)


@pytest.mark.parametrize("per_rank", [1, 2, 4])
@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_idle_slots(ranks: int, per_rank: int) -> None:
    """Also of passes that are no multiple of the ranks, and fewer than the ranks."""
    for micros in (*range(1, 3 * ranks), 41):
        busy = 3 * per_rank * micros
        assert stretch(ranks, per_rank, micros) == pytest.approx(clock(ranks, per_rank, micros, 0) / busy)


@pytest.mark.parametrize(("ranks", "per_rank"), [(2, 1), (4, 1), (16, 1), (2, 8), (4, 2), (8, 4)])
def test_sends_that_are_waited_for(ranks: int, per_rank: int) -> None:
    for micros in (ranks, 3 * ranks, 8 * ranks):
        waited = (clock(ranks, per_rank, micros, 0.1) - clock(ranks, per_rank, micros, 0)) / 0.1
        assert sends(ranks, per_rank, micros) == pytest.approx(waited, abs=1.2)


def model_of(layers: int, **options: Any) -> ModelConfig:
    block = {"mixer": {"heads": 16, "key_value_heads": 8, "head_width": 128}, "feed_forward": {"width": 8192}}
    fields = {"vocabulary_size": 262_144, "width": 2048, "layers": f"layer*{layers}", "blocks": {"layer": block}}
    return ModelConfig.model_validate({**fields, **options})


def computing(model: ModelConfig, mesh: MeshConfig) -> float:
    """Seconds of one of eight passes."""
    config = stage(model, 1, 4096, batch_tokens=8 * 4096)
    return step_speed(shape_of(model), config, mesh, H200, KERNELS).compute / 8


def test_a_pipeline_waits_for_the_rank_with_most_to_do() -> None:
    """The head costs as much as some layers, which the last rank has less: by the trainer's own cut."""
    one = MeshConfig(shard=1)
    alone = {layers: computing(model_of(layers), one) for layers in (1, 2, 12)}
    layer = alone[2] - alone[1]
    head = alone[1] - layer
    assert 2 * layer < head < 8 * layer
    assert alone[12] == pytest.approx(12 * layer + head)
    for per_rank, schedule in ((1, "1f1b"), (2, "interleaved")):
        mesh = {"shard": 1, "pipeline": 4, "pipeline_stages": per_rank, "pipeline_schedule": schedule}
        ranges = divide_layers(model_of(12, context=4096), 4 * per_rank)
        counts = [sum(len(ranges[number]) for number in range(rank, len(ranges), 4)) for rank in range(4)]
        slowest = max(layer * counts[0], layer * counts[1], layer * counts[2], layer * counts[3] + head)
        assert computing(model_of(12), MeshConfig.model_validate(mesh)) == pytest.approx(slowest)
    assert [len(each) for each in divide_layers(model_of(12, context=4096), 4)][-1] == 1


def test_every_module_of_multi_token_prediction_has_a_head() -> None:
    one, further = MeshConfig(shard=1), {"steps": 2, "block": "layer"}
    plain, more = computing(model_of(3), one), computing(model_of(3, multi_token=further), one)
    layer = computing(model_of(4), one) - plain
    head = product_seconds(Matrix(262_144, 2048), 4096, KERNELS.bfloat16, H200, KERNELS)
    join = product_seconds(Matrix(2048, 4096), 4096, KERNELS.bfloat16, H200, KERNELS)
    loss = LOGIT_BYTES * 4096 * 262_144 / KERNELS.copy
    assert more - plain == pytest.approx(2 * (layer + 3 * head + loss + 3 * join))


def test_rows_for_other_nodes_travel_beside_those_for_this_one() -> None:
    """Four exchanges of each token's two rows of 4096 numbers, a sixteenth of which stay where they are."""
    block = {
        "mixer": {"heads": 32, "key_value_heads": 8, "head_width": 128},
        "feed_forward": {"kind": "moe", "experts": 32, "active": 2, "expert": {"width": 4096}},
    }
    fields = {"vocabulary_size": 32000, "width": 4096, "layers": "layer*2", "blocks": {"layer": block}}
    model = ModelConfig.model_validate(fields)
    config = stage(
        model, 16, 8192, batch_tokens=16 * 16 * 8192
    )  # passes so long that gathering weights hides behind them
    found = []
    for expert in (1, 16):
        mesh = MeshConfig(shard=16, expert=expert, reshard_after_forward=False)
        found.append(step_speed(shape_of(model), config, mesh, H200, KERNELS).communication)
    near, far = 0.5 / H200.nvlink, 0.5 / H200.network
    volume = 4 * 2 * 16 * 8192 * 2 * 4096 * 15 / 16
    expected = 2 * volume * max(near, far) / LINK_SHARE / FLEET_SHARE  # of two layers
    assert found[0] == 0.0 and found[1] == pytest.approx(expected, rel=1e-6)


def test_what_deepseek_does_otherwise() -> None:
    """With experts in float8, and then with nothing waiting for their exchanges, the estimate comes near the published speed."""
    model = ModelConfig.model_validate({"preset": "deepseek-v3"})
    gpu, run = GPUS["h800"], PUBLISHED["deepseek-v3"]
    kernels = replace(reached(gpu), grouped=reached(gpu).float8)
    config = stage(model, 1, 4096, batch_tokens=15360 * 4096, precision="float8")
    flops = count(model).training_flops_per_token(4096)
    found = best(model, shape_of(model), config, 2048, gpu, kernels, flops)
    assert found is not None and found.speed is not None
    assert found.tokens_per_second is not None and run.speed is not None
    assert found.tokens_per_second / run.speed == pytest.approx(0.61, abs=0.03)
    speed = found.speed
    idle = speed.bubble / (speed.step - speed.bubble)  # it shrinks with the passes
    hidden = speed.step - speed.communication * (1 + idle)
    assert found.tokens_per_second * speed.step / hidden / run.speed == pytest.approx(0.97, abs=0.05)
