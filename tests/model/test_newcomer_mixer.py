"""A newcomer's mixer is one file and one line: it is put into a copy of the package, and everything else works with it.

The copy has the file newcomer_mixer.py and, in the union of mixers/config.py, its name (with the import that the name needs).
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import ingot
from tests.train.pretraining import CONFIG, write_inputs

PACKAGE, MIXER = Path(ingot.__file__).parent, Path(__file__).with_name("newcomer_mixer.py")
BLOCK = {"mixer": {"kind": "moving_average", "channels": 24}, "feed_forward": {"width": 32}}
PROGRAM = """
import json, pathlib, torch, ingot
from ingot.model.count import count
from ingot.model.describe import describe_block
from ingot.model.mixers.cache import CacheShape
from ingot.planner.plan import make_plan
from ingot.recipe.load import load_recipe

found = {"package": ingot.__file__}
plan = make_plan(load_recipe("tiny.yaml"), pathlib.Path("runs"), gpus=8)
found["planned"] = [stage.name for stage in plan.stages]
result = ingot.run("tiny.yaml", report=False)
model = ingot.load(result.checkpoint)
config = model.config
found["words"] = describe_block(config.block(0))
counted = count(config)
found["parameters"] = [counted.total, sum(each.numel() for each in model.parameters())]
found["state_bytes"] = counted.state_bytes
found["flops"] = counted.training_flops_per_token(32) - counted.training_flops_per_token(16)
rows = [json.loads(line) for line in open(next(pathlib.Path().glob("runs/*/pretrain-*/metrics.jsonl")))]
found["losses"] = [rows[0]["loss"], rows[-1]["loss"]]
tokens = torch.arange(12)[None] + 5
with torch.no_grad():
    whole = model(tokens)
    caches = model.make_caches(CacheShape(slots=2, length=12))
    positions, slot = torch.arange(12)[None], torch.tensor([1])
    pieces = [slice(0, 5), *(slice(place, place + 1) for place in range(5, 12))]
    parts = [
        model.head(model.hidden(tokens[:, one], positions[:, one], caches=caches, slots=slot)) for one in pieces
    ]
found["cached"] = float((torch.cat(parts, 1) - whole).abs().max())
found["text"] = ingot.generate(model, "def ", max_new_tokens=8)
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the package with the new mixer."""
    root = tmp_path_factory.mktemp("package")
    shutil.copytree(PACKAGE, root / "ingot")  # compiled files too: their sources keep their times
    mixers = root / "ingot" / "model" / "mixers"
    shutil.copyfile(MIXER, mixers / "moving_average.py")
    union = (mixers / "config.py").read_text(encoding="utf-8")
    line, last = "from ingot.model.mixers.moving_average import MovingAverageConfig\n", " | ParallelConfig,\n"
    assert union.count(last) == 1
    union = union.replace(last, " | ParallelConfig | MovingAverageConfig,\n").replace(
        "\n\n\ndef", f"\n{line}\n\ndef", 1
    )
    (mixers / "config.py").write_text(union, encoding="utf-8")
    return root


def test_a_mixer_is_one_file_and_one_line(package: Path, tmp_path: Path) -> None:
    assert len(MIXER.read_text(encoding="utf-8").splitlines()) <= 60
    inputs = {name: str(path) for name, path in write_inputs(tmp_path).items()}
    model = {"width": 16, "blocks": {"layer": BLOCK}, "layers": "layer*2"}
    stages = {"pretrain": {**CONFIG, "model": model, "inputs": inputs}}
    (tmp_path / "tiny.yaml").write_text(json.dumps({"name": "tiny", "stages": stages}), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(package), "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr[-4000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert Path(found["package"]).is_relative_to(package)
    assert "pretrain" in found["planned"]
    assert found["words"].startswith("moving average of 24 channels; ")
    assert found["parameters"][0] == found["parameters"][1]
    assert found["state_bytes"] == 2 * 24 * 4 and found["flops"] == 0
    assert found["losses"][1] < found["losses"][0] - 0.5
    assert found["cached"] < 1e-5 and isinstance(found["text"], str)
