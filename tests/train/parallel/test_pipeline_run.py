"""Whole runs through a pipeline: what is logged, validated and saved, and going on in another layout."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from ingot.checkpoints.checkpoint import load_model
from ingot.model.config import BlockConfig, ModelConfig, MultiTokenConfig
from ingot.train.layouts.steps import UnevenSource, fresh, uneven
from ingot.train.pretrain import bits_per_byte
from ingot.workspace.errors import CheckFailed, Interrupted
from tests.making.stages import stage_folder
from tests.slow import first_fast
from tests.train.parallel.models import DENSE, MOE, VOCABULARY, shape
from tests.train.parallel.ranks import run_ranks
from tests.train.toy import make_trainer, records

STEPS, STOP = 6, 2
PIPELINE = {"pipeline": 2, "pipeline_schedule": "interleaved", "pipeline_stages": 2}
TENSOR = {"tensor": 2}
OPTIMIZER = {
    "lr": 0.002,  # at 0.01 the last bit of a gradient grows a hundredfold in a step, in one process too
    "epsilon": 1e-4,
    "groups": [{"match": "blocks.0.*", "lr": 0.004}],  # layer 0 is on one rank only
    "qk_clip": 0.05,  # clips many heads of the toy, whose logits are small
}
BLOCK = {**MOE, "mixer": {**MOE["mixer"], "query_key_norm": "none"}}  # QK-clip is for those without a norm
MODEL = ModelConfig(
    vocabulary_size=VOCABULARY,
    width=32,
    blocks={"layer": BlockConfig.model_validate(BLOCK), "normed": BlockConfig.model_validate(MOE)},
    layers="(layer normed)*2",  # all of the second rank have norms
    context=32,
    multi_token=MultiTokenConfig(block="layer"),
)


def run(path: Path, mesh: dict[str, Any], stop: int | None = None) -> bool:
    """Train to the end, or until step `stop` was made; returns whether it was the end."""
    folder = stage_folder(path)

    def after(step: int, metrics: dict[str, Any]) -> dict[str, float]:
        if step == stop:
            folder.stop.request()
        return {"bits": bits_per_byte(trainer, [(uneven(100 + number, rows=3), 50) for number in range(3)])}

    trainer = make_trainer(
        folder,
        source=UnevenSource(2),
        model=fresh(MODEL),
        after_step=after,
        mesh=mesh,
        steps=STEPS,
        optimizer=OPTIMIZER,
    )
    try:
        trainer.run()
    except Interrupted:
        return False
    return True


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("alone")
    assert run(path, {})
    return path


@pytest.mark.parametrize(
    ("first", "second"),
    first_fast([(PIPELINE, {}), ({}, PIPELINE), (PIPELINE, PIPELINE), ({}, TENSOR)]),
)
def test_a_run_goes_on_in_another_layout(
    first: dict[str, Any], second: dict[str, Any], alone: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "stage"
    for number, (mesh, stop) in enumerate(((first, STOP), (second, None))):
        if mesh:
            ended = run_ranks(2, run, tmp_path / f"store{number}", folder, mesh, stop)
            assert ended == [stop is None] * 2
        else:
            assert run(folder, mesh, stop) is (stop is None)
    found, expected = records(stage_folder(folder)), records(stage_folder(alone))
    assert [row["step"] for row in found] == list(range(STEPS))
    assert 0 < expected[-1]["clipped_heads"] < 1 and "router/max_violation" in expected[-1]
    for one, other in zip(found, expected, strict=True):
        assert one.keys() == other.keys()
        # ratios are those of a sample, and shards are sampled each by itself
        known = [name for name in one if second != TENSOR or not name.startswith("update_ratio")]
        assert [one[name] for name in known] == pytest.approx([other[name] for name in known], rel=3e-5, abs=1e-9)
    weights, whole = load_model(folder).state_dict(), load_model(alone).state_dict()
    assert weights.keys() == whole.keys()
    for name, value in whole.items():
        assert float((weights[name] - value).norm()) <= 1e-5 * float(value.norm()), name


def validated(path: Path, meshes: list[dict[str, int]]) -> list[float]:
    """Bits per byte by an untrained model, of rows of 32 and of 33 tokens: ranks that share rows cannot divide the second."""
    odd = uneven(101, rows=3, length=33)
    batches = [(uneven(100, rows=3), 50), (odd, 40), (uneven(102, rows=3), 50)]
    assert odd.tokens.shape[1] == 33
    found = []
    for number, mesh in enumerate(meshes):
        folder = stage_folder(path / str(number))
        trainer = make_trainer(folder, source=UnevenSource(2), model=fresh(shape(DENSE)), mesh=mesh, steps=1)
        found.append(bits_per_byte(trainer, batches))
    return found


def test_validation_is_the_same_in_every_layout(tmp_path: Path) -> None:
    """Each token counts once, on whichever rank it is scored."""
    meshes = [{"context": 4}, {"pipeline": 2, "context": 2}, {"shard": 2, "context": 2}, {"tensor": 2, "context": 2}]
    (alone,) = validated(tmp_path / "alone", [{}])
    for found in run_ranks(4, validated, tmp_path / "store", tmp_path / "ranks", meshes):
        assert found == pytest.approx([alone] * len(meshes), rel=1e-6)


DEEP = shape(DENSE, layers=20)  # cut at layer 10, whose name comes before that of layer 2


def where_not_finite(path: Path, mesh: dict[str, Any], spoiled: dict[str, float]) -> str:
    """What a run says that stops because a weight was filled with this number, or made its gradient infinite (0)."""
    trainer = make_trainer(stage_folder(path), source=UnevenSource(2), model=fresh(DEEP), mesh=mesh, steps=1)
    for name, number in spoiled.items():
        for each in (each for found, each in trainer.trained if found == name):
            if number:
                torch.nn.init.constant_(each, number)
            else:
                each.register_hook(lambda gradient: gradient * torch.inf)
    with pytest.raises(CheckFailed) as stopped:
        trainer.run()
    return str(stopped.value).partition("\n")[0].rpartition("; ")[2]


@pytest.mark.parametrize(
    ("spoiled", "named"),
    first_fast(
        [
            (
                {"blocks.1.mixer.output.weight": 0, "blocks.12.feed_forward.down.weight": 0},
                "gradients that are not, from the loss back: blocks.12.feed_forward.down.weight",
            ),
            ({"blocks.2.mixer.output.weight": 3e38}, "first output that is not finite: blocks.2.mixer.output (Linear)"),
        ]
    ),
)
def test_the_layer_that_is_not_finite_is_that_of_one_process(
    spoiled: dict[str, float], named: str, tmp_path: Path
) -> None:
    """Every stage sees what comes after the trouble; the one where it began is to be named."""
    assert where_not_finite(tmp_path / "one", {}, spoiled).startswith(named)
    mesh = {"pipeline": 2}
    assert all(
        said.startswith(named)
        for said in run_ranks(2, where_not_finite, tmp_path / "store", tmp_path / "two", mesh, spoiled)
    )
