"""Whole runs through a pipeline: what is logged, validated and saved, and going on in another layout."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ingot.model.checkpoint import load_model
from ingot.train.pretrain import bits_per_byte
from ingot.workspace.errors import Interrupted
from tests.train.parallel.models import MOE, fresh, shape, uneven
from tests.train.parallel.ranks import run_ranks
from tests.train.parallel.steps import UnevenSource
from tests.train.toy import make_trainer, records, stage_folder

STEPS, STOP = 6, 2
PIPELINE = {"pipeline": 2, "pipeline_schedule": "interleaved", "pipeline_stages": 2}
OPTIMIZER = {
    "lr": 0.002,  # at 0.01 the last bit of a gradient grows a hundredfold in a step, in one process too
    "epsilon": 1e-4,
    "groups": [{"match": "blocks.0.*", "lr": 0.004}],  # layer 0 is on one rank only
    "qk_clip": 0.05,  # clips many heads of the toy, whose logits are small
}
BLOCK = {**MOE, "mixer": {**MOE["mixer"], "query_key_norm": "none"}}  # QK-clip is for those without a norm
MODEL = shape(BLOCK, tied_embeddings=True, multi_token={"steps": 1, "block": "layer"})


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


@pytest.mark.parametrize(("first", "second"), [({}, PIPELINE), (PIPELINE, {}), (PIPELINE, PIPELINE)])
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
        assert one == pytest.approx(other, rel=3e-5, abs=1e-9), one["step"]
    weights, whole = load_model(folder).state_dict(), load_model(alone).state_dict()
    assert weights.keys() == whole.keys()
    for name, value in whole.items():
        assert float((weights[name] - value).norm()) <= 1e-5 * float(value.norm()), name
