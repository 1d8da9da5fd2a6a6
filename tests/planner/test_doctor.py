"""The doctor's findings."""

from __future__ import annotations

import json
import shutil
import time
from collections import namedtuple
from collections.abc import Mapping
from pathlib import Path

import pytest
import torch

from ingot.checkpoints.checkpoint import save_checkpoint
from ingot.planner import check_machine, doctor
from ingot.planner.check import Check, TooSlow, within
from ingot.planner.check_data import check_seeds, unshuffled
from ingot.planner.check_machine import check_bf16, check_disk, check_packages, check_python
from ingot.planner.check_training import checkpoint_bytes, judge_step
from ingot.planner.cost import Cost, stage_models
from ingot.planner.doctor import examine_machine, examine_recipe
from ingot.planner.dry_run import DryRunOutcome, dry_run
from ingot.planner.stress import StressProducts, judge_clocks, judge_memory, judge_products, measure_products
from ingot.recipe.load import load_recipe
from ingot.tokens.config import TokenizerConfig
from ingot.tokens.loader import MixtureLoader
from ingot.tokens.shards import SourceWriter, write_index
from ingot.tokens.train_tokenizer import train_tokenizer
from ingot.train.pretrain_config import PretrainConfig
from ingot.workspace.packages import install_extra
from tests.model import tiny
from tests.recipe import toy
from tests.recipe.conftest import Write

from .test_plan import REAL

Usage = namedtuple("Usage", "total used free")


def test_this_machine() -> None:
    checks = {check.name: check for check in examine_machine(Path("runs"))}
    assert list(checks) == ["python", "packages", "torch", "bfloat16", "memory", "disk", "chromium"]
    assert {checks[name].status for name in ("python", "packages", "torch", "bfloat16")} == {"ok"}
    assert all(check.fix for check in checks.values() if check.status == "fail")


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("flags\t\t: fpu avx512_bf16 amx_bf16", "the CPU has amx_bf16, avx512_bf16"),
        ("Features\t: fp asimd bf16 i8mm", "the CPU has bf16"),
        ("Features\t: fp asimd", "the CPU has none (emulated, slow): float32 is used"),
        ("model name\t: bf16 pro", "the CPU has none (emulated, slow): float32 is used"),
    ],
)
def test_bfloat16(write: Write, line: str, text: str) -> None:
    check = check_bf16(write(f"processor\t: 0\n{line}\n", "cpuinfo"))
    assert check == Check("bfloat16", "ok", text)
    assert check_bf16(Path("no/such/file")).text.startswith("the CPU has none")


def test_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check_machine, "PACKAGES", ("json", "no_such_package"))
    assert check_packages() == Check("packages", "fail", "missing: no_such_package", install_extra(""))
    monkeypatch.setattr(check_machine, "PYTHON_NEEDED", (9, 1))
    assert (check_python().status, check_python().fix) == ("fail", "install Python 9.1 or newer")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: Usage(10, 9, 1024**3))
    assert check_disk(Path("some/runs")).text == "1.0 GiB free below some/runs"
    assert check_disk(Path("some/runs")).status == "warn"


QUICK = ("recipe", "stages", "recipe memory", "recipe disk", "pretrain data", "extend data", "seeds")


def quick(path: Path, *changes: str) -> dict[str, Check]:
    return {check.name: check for check in examine_recipe(path, changes, quick=True)}


@pytest.fixture
def real(write: Write, monkeypatch: pytest.MonkeyPatch) -> Path:
    write("x", "given/part-0.parquet")
    monkeypatch.setattr(doctor, "check_stages", lambda recipe, table: Check("stages", "ok", ""))
    return write(REAL, "tiny.yaml")


def test_a_recipe(real: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checks = quick(real)
    assert tuple(checks) == QUICK
    assert {check.status for check in checks.values()} == {"ok"}
    assert checks["recipe"].text == "tiny: 5 stages, 0 finished in runs/tiny"
    monkeypatch.setattr(doctor, "memory_bytes", lambda: 1000)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: Usage(10, 9, 100))
    checks = quick(real)
    assert (checks["recipe memory"].status, checks["recipe disk"].status) == ("warn", "fail")


def test_a_broken_recipe(write: Write) -> None:
    (check,) = examine_recipe(write("stages: {mkae: }\n"), table=toy.TABLE)
    assert check.status == "fail"
    assert "did you mean make?" in check.text


def test_a_mesh_that_does_not_divide(real: Path) -> None:
    checks = quick(real, "pretrain.mesh={tensor: 4, shard: 2}")
    assert checks["pretrain sharding"].status == "fail"
    assert checks["pretrain sharding"].text == "tensor (4) does not divide key_value_heads (2)"
    assert checks["pretrain sharding"].fix == "choose a tensor that divides 2"
    fine = quick(real, "pretrain.mesh={tensor: 2, shard: 2}")["pretrain sharding"]
    assert fine.status == "ok"
    assert "heads 4, key_value_heads 2, feed_forward.width 96" in fine.text
    assert "4 processes in all" in fine.text


def test_models_that_the_recipe_alone_does_not_say_are_looked_up(real: Path) -> None:
    """Own data: the vocabulary lies in a tokenizer on disk, a model in a checkpoint."""
    train_tokenizer(["a few words, some of them twice: a few words"] * 9, TokenizerConfig(vocabulary_size=300)).save(
        Path("mine/tokenizer")
    )
    own = "pretrain.inputs={tokenizer: mine/tokenizer}"
    checks = quick(real, own, "pretrain.mesh={tensor: 4}")
    assert checks["pretrain sharding"].text == "tensor (4) does not divide key_value_heads (2)"
    assert {"recipe memory", "recipe disk"} <= checks.keys()
    save_checkpoint(Path("mine/checkpoint"), tiny.random_model(tiny.config(tiny.attention(heads=3, key_value_heads=3))))
    later = "extend.inputs={checkpoint: mine/checkpoint}"
    checks = quick(real, later, "extend.mesh={tensor: 2}")
    assert checks["extend sharding"].text.startswith("tensor (2) does not divide heads (3)")
    (Path("mine/checkpoint") / "config.json").unlink()
    checks = quick(real, later)
    assert (checks["recipe inputs"].status, checks["recipe inputs"].text) == (
        "fail",
        "mine/checkpoint: no checkpoint here",
    )


def test_samplers_that_cannot_be_divided(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "check_stages", lambda recipe, table: Check("stages", "ok", ""))
    stage = {
        "inputs": {"checkpoint": "mine/checkpoint"},
        "steps": 2,
        "sequence_length": 64,
        "asynchronous": {"tensor": 2},
    }
    path = write(
        json.dumps({"name": "rl", "stages": {"rl": stage | {"tasks": {"weights": {"no_think": 1.0}}}}}), "rl.yaml"
    )
    save_checkpoint(Path("mine/checkpoint"), tiny.random_model(tiny.config(tiny.attention(heads=3, key_value_heads=3))))
    check = quick(path)["rl sharding"]
    assert check.status == "fail" and check.text.startswith("tensor (2) does not divide heads (3)")


def test_two_stages_with_one_order(real: Path) -> None:
    """The loader's order depends on seed, source and length: `extend` with the length of `pretrain` would read its rows again."""
    again = check_seeds(load_recipe(real, ["extend.sequence_length=128"]))
    assert (again.status, again.fix) == ("warn", "give extend a seed of its own, such as seed: 2")
    assert "extend reads all in the same order as pretrain" in again.text
    assert check_seeds(load_recipe(real, ["extend.sequence_length=128", "extend.seed=2"])).status == "ok"
    branch = load_recipe(Path(__file__).parents[2] / "recipes" / "deepseek-v3.2-mini.yaml")
    assert branch.stage("sparse").seed == branch.stage("cold").seed and check_seeds(branch).status == "ok"
    assert check_seeds(load_recipe(branch.path, {"cold.inputs.checkpoint": "sparse"})).status == "warn"


def write_shards(folder: Path, tokens: int = 200_000, more: Mapping[str, int] | None = None) -> None:
    """One source of documents of 100 tokens whose ids count up (or more), and a validation source."""
    entries = {}
    for name, size in {"all": tokens, **(more or {}), "validation": 1000}.items():
        writer = SourceWriter(folder, name, 512)
        for start in range(0, size, 100):
            writer.append(str(start), [number % 511 for number in range(start, start + 99)] + [511], 99, 0.5)
        entries[name] = writer.finish()
    write_index(folder, entries, torch.ones(512, dtype=torch.int32).numpy(), 511)


def test_shards(real: Path) -> None:
    write_shards(Path("shards"))
    given = "pretrain.inputs={shards: shards}"
    check = quick(real, given)["pretrain data"]
    assert check.status == "ok"
    assert check.text == "201,000 tokens in 2 sources, ids in range, rows shuffled, 6 of 6 checksums compared"
    often = quick(real, given, "pretrain.steps=1000")["pretrain data"]
    assert (often.status, "read all 5.1 times" in often.text) == ("warn", True)
    assert often.fix is not None and often.fix.endswith("more data, or fewer steps"), "there is but one source"
    write_shards(Path("two"), more={"rare": 20_000})
    phases = "pretrain.phases=[{until: 1.0, weights: {all: 1, rare: 1}}]"
    rare = quick(real, "pretrain.inputs={shards: two}", phases, "pretrain.steps=300")["pretrain data"]
    assert rare.fix is not None and "fewer steps, or weights: {all: 0.7" in rare.fix and "read rare 7." in rare.text
    bad = quick(real, given, "pretrain.phases=[{until: 1.0, weights: {allx: 1}}]")["pretrain data"]
    assert (bad.status, "no source 'allx'" in bad.text) == ("fail", True)
    path = Path("shards/all/tokens.bin")
    stored = bytearray(path.read_bytes())
    path.write_bytes(stored[:-2])
    assert "truncated or damaged" in quick(real, given)["pretrain data"].text
    stored[1000:1002] = b"\x01\x00"
    path.write_bytes(stored)
    assert "its checksum is not the one in index.json" in quick(real, given)["pretrain data"].text


def test_rows_in_the_order_of_the_file_are_found(monkeypatch: pytest.MonkeyPatch, real: Path) -> None:
    write_shards(Path("shards"))
    config = load_recipe(real).stage("pretrain").config
    assert isinstance(config, PretrainConfig)
    loader = MixtureLoader(
        Path("shards"),
        config.phases,
        sequence_length=128,
        batches=config.batch_sizes,
        total_steps=100,
        seed=1,
    )
    assert unshuffled(loader) is None
    monkeypatch.setattr("ingot.tokens.windows.Permutation", lambda size, key: lambda place: place)
    in_order = MixtureLoader(
        Path("shards"), config.phases, sequence_length=128, batches=config.batch_sizes, total_steps=100, seed=1
    )
    found = unshuffled(in_order)
    assert found is not None and "100% of them in a row" in found


def test_bytes_of_checkpoints_by_hand() -> None:
    """12 bytes per parameter of a checkpoint of a run; 4 of a finished stage's."""
    config = PretrainConfig.model_validate(
        {
            "steps": 1000,
            "sequence_length": 8,
            "batch_tokens": 8,
            "phases": [{"until": 1.0, "weights": {"all": 1.0}}],
            "checkpoints": {"every": 10, "keep": 2, "keep_every": 250, "keep_best": True},
        }
    )
    most, stays = checkpoint_bytes(config, Cost(parameters=100))
    assert (
        most == 1200 * (2 + 1 + 4 + 1) + 400
    )  # newest, the one being written, every 250th, the best; the last weights
    assert stays == 1200 * 4 + 400


def test_products_are_judged() -> None:
    broken = judge_products(StressProducts(7e14, 1.0, False), "cuda:0", "NVIDIA H200")
    assert (broken.status, "different results" in broken.text) == ("fail", True)
    assert judge_products(StressProducts(7.8e14, 1.0, True), "cuda:0", "NVIDIA H200").status == "ok"
    slow = judge_products(StressProducts(3e14, 1.0, True), "cuda:0", "NVIDIA H200")
    assert (slow.status, "38% of what is expected" in slow.text) == ("warn", True)
    assert "fell to 50%" in judge_products(StressProducts(3e10, 0.5, True), "cpu", "CPU, 2 threads").text
    assert judge_memory((1 << 30, 0), "cuda:0").status == "ok"
    assert judge_memory((1 << 30, 3), "cuda:0").status == "fail"
    assert judge_clocks("0, 1980, 1980, 45, 120.5, 700.0").status == "ok"
    assert judge_clocks("1, 900, 1980, 88, 700.0, 700.0").status == "warn"


def test_this_cpu_multiplies(monkeypatch: pytest.MonkeyPatch) -> None:
    products = measure_products(torch.device("cpu"), seconds=0.2)
    assert products.repeatable and products.flops_per_second > 1e8
    times = iter([0.0, 1.0, 1.0, 2.0, 2.0, 4.0, 4.0])  # the third product takes twice as long as the first
    monkeypatch.setattr(time, "perf_counter", lambda: next(times))
    assert measure_products(torch.device("cpu"), seconds=3.5).steadiness == 0.5


def test_a_hung_device_does_not_hang_the_doctor() -> None:
    began = time.monotonic()
    with pytest.raises(TooSlow):
        within(0.1, lambda: time.sleep(5))
    assert time.monotonic() - began < 2
    assert within(5.0, lambda: 3) == 3
    with pytest.raises(ZeroDivisionError):
        within(5.0, lambda: 1 / 0)


def test_one_real_step(real: Path) -> None:
    """In a process of its own: a loss near ln(vocabulary), a peak near the estimate, an error that is told, a deadline."""
    recipe = load_recipe(real)
    model, config = stage_models(recipe)["pretrain"], recipe.stage("pretrain").config
    assert model is not None and isinstance(config, PretrainConfig)
    outcome = dry_run(model, config, 120)
    assert outcome.error is None
    assert outcome.loss == pytest.approx(torch.tensor(512.0).log().item(), rel=0.1)
    assert 1e6 < outcome.peak_bytes < 4e8
    assert "within 0 s" in str(dry_run(model, config, 0.05).error)


def test_a_step_is_judged() -> None:
    fine = DryRunOutcome(1.0, 10 << 30, 6.3, "cuda:0")
    assert judge_step(fine, "pretrain", 10 << 30, 512).status == "ok"
    assert judge_step(fine, "pretrain", 20 << 30, 512).status == "warn"
    assert judge_step(DryRunOutcome(1.0, 1, float("nan"), "cpu"), "pretrain", 1, 512).status == "warn"
    assert judge_step(DryRunOutcome(1.0, 1, 60.0, "cpu"), "pretrain", 1, 512).status == "warn"
    killed = judge_step(DryRunOutcome(error="the process was killed by signal 9 (out of memory?)"), "pretrain", 1, 512)
    assert (killed.status, "signal 9" in killed.text) == ("fail", True)
