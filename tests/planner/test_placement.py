"""Layouts: the search against brute force, the speed against one reading and against published runs."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import pytest
import yaml

from ingot.model.config import ModelConfig
from ingot.model.count import count
from ingot.planner.compare import compare
from ingot.planner.hardware import GPUS, Reached, find_gpu, reached
from ingot.planner.memory import memory
from ingot.planner.placement import TIE, best, devices, judge, why_none
from ingot.planner.published import PUBLISHED
from ingot.planner.shape import Matrix, shape_of
from ingot.planner.speed import HIDDEN, KERNEL_SHARE, Practice, product_seconds, step_speed
from ingot.train.config import ActivationsConfig
from ingot.train.parallel.config import MeshConfig
from ingot.train.parallel.divisible import find_indivisible
from ingot.train.pretrain_config import PretrainConfig
from ingot.workspace.errors import RecipeError

from .test_memory import ONE, llama, stage

H200 = GPUS["h200"]


def test_one_h200_as_measured() -> None:
    """A plain compiled 1.24B model trained at 65,885 tokens/s, 54.8 % of 989 TFLOP/s."""
    model = llama()
    flops = count(model).training_flops_per_token(4096)
    placed = judge(shape_of(model), stage(model, 8, 4096), ONE, H200, reached(H200), flops)
    assert placed.tokens_per_second == pytest.approx(65_885, rel=0.02)
    assert placed.mfu == pytest.approx(0.548, rel=0.02)


def test_a_large_product_reaches_the_measured_speed() -> None:
    flops = 2 * 8192**3
    seconds = product_seconds(Matrix(8192, 8192), 8192, Reached().bfloat16, H200, reached(H200))
    assert flops / seconds / KERNEL_SHARE == pytest.approx(788e12)
    small = product_seconds(Matrix(128, 128), 128, Reached().bfloat16, H200, reached(H200))
    assert 2 * 128**3 / small < 0.02 * 788e12  # one tile on one of 132 multiprocessors
    assert reached(find_gpu("NVIDIA H100 80GB HBM3")).bfloat16 == pytest.approx(788e12)
    with pytest.raises(RecipeError, match="no figures are known for the device 'abacus'"):
        find_gpu("abacus")


def test_the_bubble_by_hand() -> None:
    model = llama()
    config = stage(model, 1, 4096, batch_tokens=8 * 4096)
    plain = step_speed(shape_of(model), config, MeshConfig(shard=1, pipeline=4), H200, reached(H200))
    assert plain.bubble / (plain.compute + plain.bubble) == pytest.approx(3 / (8 + 3))
    twice = {"pipeline_schedule": "interleaved", "pipeline_stages": 2}
    mesh = MeshConfig.model_validate({"shard": 1, "pipeline": 4, **twice})
    interleaved = step_speed(shape_of(model), config, mesh, H200, reached(H200))
    assert interleaved.bubble / (interleaved.compute + interleaved.bubble) == pytest.approx(3 / (2 * 8 + 3))


def mixture() -> ModelConfig:
    return ModelConfig.model_validate(
        {
            "vocabulary_size": 32000,
            "width": 4096,
            "layers": "layer*24",
            "blocks": {
                "layer": {
                    "mixer": {"heads": 32, "key_value_heads": 8, "head_width": 128},
                    "feed_forward": {"kind": "moe", "experts": 16, "active": 2, "expert": {"width": 4096}},
                }
            },
        }
    )


def test_nothing_legal_beats_the_search() -> None:
    """Every mesh of eight devices, by brute force over all factorisations."""
    model, gpu = mixture(), GPUS["h200"]
    shape, kernels, flops = shape_of(model), reached(gpu), count(model).training_flops_per_token(8192)
    config = stage(model, 1, 8192, batch_tokens=16 * 8192)
    found = best(model, shape, config, 8, gpu, kernels, flops)
    assert found is not None and found.fits and devices(found.mesh) == 8
    speeds = []
    sizes = range(1, 9)
    for replicate, shard, tensor, context, pipeline in itertools.product(sizes, repeat=5):
        if replicate * shard * tensor * context * pipeline != 8:
            continue
        for expert, rows, keep in itertools.product((1, 2, 4, 8), (1, 2, 4, 8), ("all", "products", "blocks")):
            mesh = MeshConfig(
                replicate=replicate,
                shard=shard,
                tensor=tensor,
                context=context,
                pipeline=pipeline,
                expert=expert,
                reshard_after_forward=pipeline == 1 or shard * context == 1,
            )
            if find_indivisible(model, mesh, sequence_length=8192, rows_per_step=16) or 16 % (rows * replicate * shard):
                continue
            options: dict[str, Any] = {"micro_batch_tokens": rows * 8192, "activations": ActivationsConfig(keep=keep)}
            changed = config.model_copy(update=options)
            if memory(shape, changed, mesh, gpu.memory).needed <= gpu.memory:
                speeds.append(judge(shape, changed, mesh, gpu, kernels, flops).tokens_per_second or 0)
    assert len(speeds) > 100
    assert (found.tokens_per_second or 0) >= max(speeds) * (1 - TIE)


def test_too_few_devices_and_too_odd_ones() -> None:
    model = ModelConfig.model_validate({"preset": "llama-3.1-405b"})
    config = stage(model, 1, 8192, batch_tokens=2048 * 8192)
    args = shape_of(model), config
    assert best(model, *args, 8, GPUS["h100"], reached(GPUS["h100"]), 1) is None
    assert "fits into the memory" in why_none(model, config, 8)
    assert best(model, *args, 1000, GPUS["h100"], reached(GPUS["h100"]), 1) is None
    assert "no mesh of 1000 devices divides 2048 rows a step" in why_none(model, config, 1000)


RUNS = {  # batch in rows, length, devices, further options; as the reports give them, devices where they do not: 512
    "olmo3-7b": (512, 8192, 512, {}),
    "olmo3-32b": (1024, 8192, 512, {}),
    "smollm3-3b": (576, 4096, 384, {}),
    "deepseek-v3": (15360, 4096, 2048, {"precision": "float8"}),
    "llama-3.1-405b": (2048, 8192, 16384, {}),
}


@pytest.mark.parametrize(
    ("system", "ratio"),
    [("olmo3-7b", 1.18), ("olmo3-32b", 1.11), ("smollm3-3b", 1.22), ("deepseek-v3", 0.48), ("llama-3.1-405b", 0.68)],
)
def test_published_runs(system: str, ratio: float) -> None:
    """How far the estimate is from what was published, in tokens per second and device; docs/planning.md says why."""
    rows, length, gpus, options = RUNS[system]
    run, model = PUBLISHED[system], ModelConfig.model_validate({"preset": system})
    gpu, config = GPUS[run.gpu], stage(model, 1, length, batch_tokens=rows * length, **options)
    flops = count(model).training_flops_per_token(length)
    found = best(model, shape_of(model), config, gpus, gpu, reached(gpu), flops)
    assert found is not None and found.tokens_per_second is not None and run.speed is not None
    assert found.tokens_per_second / run.speed == pytest.approx(ratio, abs=0.03)
    compared = compare("pretrain", config, shape_of(model), found, run)
    assert compared is not None and compared.ratio == found.tokens_per_second / run.speed
    assert compared.published_mfu == pytest.approx(run.speed * flops / gpu.bfloat16)
    assert [one.practice for one in compared.explained] == list(run.practices)
    assert compared.reason
    if system == "deepseek-v3":  # what their trainer did explains most of the difference, each practice a part of it
        ratios = [compared.ratio, *(one.ratio for one in compared.explained)]
        assert ratios == sorted(ratios) and len(set(ratios)) == 4
        assert ratios[-1] == pytest.approx(0.83, abs=0.03)


def test_practices_by_hand() -> None:
    """Float8 experts speed up grouped products only; hidden exchanges take the time that computing leaves them."""
    model, gpu = mixture(), GPUS["h200"]
    shape, kernels = shape_of(model), reached(GPUS["h200"])
    config, mesh = stage(model, 1, 8192, batch_tokens=16 * 8192), MeshConfig(shard=8, expert=8)
    ours = step_speed(shape, config, mesh, gpu, kernels)
    hidden = step_speed(shape, config, mesh, gpu, kernels, {Practice.HIDDEN_EXCHANGES})
    assert hidden.compute == ours.compute
    assert ours.communication - hidden.communication == pytest.approx(min(ours.communication, HIDDEN * ours.compute))
    faster = replace(kernels, grouped=kernels.grouped * kernels.float8 / kernels.bfloat16)
    assert step_speed(shape, config, mesh, gpu, kernels, {Practice.FLOAT8_EXPERTS}) == step_speed(
        shape, config, mesh, gpu, faster
    )
    dense = llama()
    plain = shape_of(dense), stage(dense, 1, 4096), MeshConfig(shard=8), gpu, kernels
    assert step_speed(*plain, {Practice.FLOAT8_EXPERTS, Practice.HIDDEN_EXCHANGES}) == step_speed(*plain)


def test_another_device_is_not_compared() -> None:
    model, gpu = ModelConfig.model_validate({"preset": "smollm3-3b"}), GPUS["h200"]
    config, shape = stage(model, 1, 4096, batch_tokens=576 * 4096), shape_of(model)
    placed = judge(shape, config, MeshConfig(shard=8), gpu, reached(gpu), 1)
    assert placed.fits and compare("pretrain", config, shape, placed, PUBLISHED["smollm3-3b"]) is None


def test_published_numbers_agree_with_themselves() -> None:
    """SmolLM3: 384 devices · 24 days for 11.2T tokens is the 14k tokens/s per device that its playbook gives."""
    assert PUBLISHED["smollm3-3b"].speed == pytest.approx(14_000, rel=0.01)
    flops = count(ModelConfig.model_validate({"preset": "llama-3.1-405b"})).training_flops_per_token(8192)
    assert flops == pytest.approx(6 * 405e9, rel=0.05)


def test_options_ask_for_the_layout_again() -> None:
    model = ModelConfig.model_validate({"preset": "deepseek-v3"})
    config = stage(model, 1, 4096, batch_tokens=15360 * 4096)
    gpu = GPUS["h800"]
    found = best(model, shape_of(model), config, 2048, gpu, reached(gpu), 1)
    assert found is not None
    written = yaml.safe_load(found.options())
    again = PretrainConfig.model_validate({**config.model_dump(), **written})
    assert (again.mesh, again.micro_batch_tokens, again.activations.keep) == (
        found.mesh,
        found.micro_batch_tokens,
        found.keep,
    )
