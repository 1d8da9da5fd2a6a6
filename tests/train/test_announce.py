"""What a run says and writes when it starts, and its losses by source."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch

from ingot.model.count import count
from ingot.tokens.batch import Batch
from ingot.train import announce, device, float8
from ingot.train.announce import START, Start
from ingot.train.batches import deal, split_rows
from ingot.train.hardware import peak_flops
from ingot.train.losses.terms import CrossEntropy, ZLoss
from ingot.train.source import Source
from ingot.workspace.files import read_json
from ingot.workspace.stage import StageFolder
from tests.making.stages import Listener
from tests.model.tiny import VOCABULARY, attention, config, random_model
from tests.train.test_routers import MOVERS, routed_model
from tests.train.toy import FixedSource, StepSource, make_trainer


def test_the_start_is_said_and_written(folder: StageFolder, listener: Listener) -> None:
    model = routed_model(MOVERS["bias"])
    source = SourcesSource()
    source.planned_tokens = 96
    make_trainer(
        folder, model=model, source=source, terms=[CrossEntropy(), ZLoss(1e-4)], steps=2, train_only=["blocks.*"]
    ).run()
    counted = count(model.config)
    start = read_json(folder.path / START)
    assert start["terms"] == {"cross_entropy": [1.0], "z_loss": [1e-4]}
    assert start["parameters"] == sum(each.numel() for each in model.parameters())
    assert start["active_parameters"] == counted.active < start["parameters"]
    blocks = {name: each for name, each in model.named_parameters() if name.startswith("blocks.")}
    assert start["trained_parameters"] == sum(each.numel() for each in blocks.values())
    assert start["flops_per_token"] == counted.training_flops_per_token(16)
    assert (start["device"], start["precision"], start["ranks"], start["mesh"]) == ("cpu", "float32", 1, {})
    assert (start["tokens_planned"], start["steps"], start["peak_flops"]) == (96, 2, None)
    assert sum(group["parameters"] for group in start["groups"]) == start["trained_parameters"]
    decayed = {kind for group in start["groups"] if group["weight_decay"] for kind in group["kinds"]}
    plain = {kind for group in start["groups"] if not group["weight_decay"] for kind in group["kinds"]}
    assert {"mixer", "experts", "router"} <= decayed and "norm" in plain - decayed
    assert "loss = cross_entropy × 1, z_loss × 0.0001" in listener.lines[0]
    assert f"{counted.active:,} parameters active per token" in listener.lines[1]
    assert "96 tokens" in listener.lines[1]
    assert any(line.startswith("adamw for ") and "weight decay 0.1" in line for line in listener.lines[2:])


@pytest.mark.parametrize(
    ("peak", "expected", "said"),
    [
        (
            2 * 989e12,
            0.4,
            "expected MFU 40% (395,600 tokens/s) of 1,978 TFLOP/s, where 989,000 tokens/s would be 100 %",
        ),
        (2 * 989e12, None, "MFU of 1,978 TFLOP/s, where 989,000 tokens/s would be 100 %"),
        (None, None, "no MFU: what cuda can do in bfloat16 is not known"),
    ],
)
def test_mfu_is_announced_against_the_makers_number(peak: float | None, expected: float | None, said: str) -> None:
    start = Start(
        {"cross_entropy": [1.0]},
        10,
        10,
        10,
        5,
        0,
        None,
        2_000_000_000,
        "cuda",
        "bfloat16",
        None,
        2,
        {"shard": 2},
        peak,
        expected,
        [],
    )
    assert start.lines()[1] == f"5 steps; 2,000 MFLOP per token; {said}; mesh shard 2"


@pytest.mark.parametrize(
    ("smallest", "precision", "said"),
    [
        (1024, "float32", "precision: float8 changes nothing: no layer has 1,024 inputs and as many outputs"),
        (32, "float8", "float8 in 6 layers"),
    ],
)
def test_float8_that_changes_nothing_is_seen(
    smallest: int, precision: str, said: str, folder: StageFolder, listener: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All that is asked for and not done would be measured against another peak: MFU would be half of what it is."""
    monkeypatch.setattr(float8, "SMALLEST", smallest)
    monkeypatch.setattr(device, "cpu_has_bfloat16", lambda: False)  # such a CPU would train in bfloat16
    model = random_model(config(attention(key_value_heads=4), width=32))  # `down` has 40 inputs, no multiple of 16
    make_trainer(folder, model=model, steps=1, precision="float8").run()
    start = read_json(folder.path / START)
    assert (start["precision"], said in listener.lines) == (precision, True), listener.lines


SKIP = {"spike": "skip", "window": 8}


@pytest.mark.parametrize(("guards", "steps", "idle"), [(SKIP, 4, True), (SKIP, 5, False), ({}, 1, False)])
def test_a_guard_that_cannot_act_in_so_few_steps_is_announced(
    guards: dict[str, Any], steps: int, idle: bool, folder: StageFolder, listener: Listener
) -> None:
    """Rules wait until half of their window is known: the first step that can be skipped is number window / 2."""
    make_trainer(folder, steps=steps, guards=guards).run()
    said = "guards.spike: skip does nothing in this run: it acts once half of guards.window (8 steps) is known"
    assert any(line.startswith(said) for line in listener.lines) == idle
    assert bool(read_json(folder.path / START)["idle_guard"]) == idle


@pytest.mark.parametrize(("rows", "measured"), [(1, True), (8, False)])
def test_a_noise_scale_that_steps_of_one_pass_do_not_have_is_announced(
    rows: int, measured: bool, folder: StageFolder, listener: Listener
) -> None:
    """All passes of a step in one batch, or one for each row: what is said holds for both."""
    (whole,) = StepSource().batches(0)[0][:1]
    source = FixedSource(split_rows(whole, rows))
    make_trainer(folder, source=source, steps=2, measure_noise=True, micro_batch_tokens=4096).run()
    said = "noise_scale comes only from steps of at least two passes; a pass takes up to 4,096 tokens of a rank"
    assert sum(line.startswith(said) for line in listener.lines) == 1
    assert ["noise_scale" in row for row in folder.metrics.read()] == [measured] * 2


def test_what_was_expected_of_the_stage_is_said(
    folder: StageFolder, listener: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(announce, "peak_flops", lambda name, precision: 1e12)
    folder.expected_tokens_per_second = 1e6
    make_trainer(folder, steps=1).run()
    start = read_json(folder.path / START)
    assert start["expected_mfu"] == pytest.approx(1e6 * start["flops_per_token"] / 1e12)
    assert f"expected MFU {start['expected_mfu']:.0%} (1,000,000 tokens/s)" in listener.lines[1]


@pytest.mark.parametrize(
    ("name", "precision", "peak"),
    [
        ("NVIDIA H200", "bfloat16", 989e12),
        ("NVIDIA H100 80GB HBM3", "float8", 1979e12),
        ("NVIDIA H100 PCIe", "bfloat16", 756e12),
        ("NVIDIA A100-SXM4-80GB", "bfloat16", 312e12),
        ("NVIDIA A100-SXM4-80GB", "float8", None),
        ("NVIDIA H200", "float32", None),
        ("cpu", "bfloat16", None),
    ],
)
def test_peaks(name: str, precision: str, peak: float | None) -> None:
    assert peak_flops(name, precision) == peak


class SourcesSource(Source):
    """Rows of two sources in two micro-batches, and a third source that step 0 has nothing of."""

    names = ("prose", "code", "late")

    def batches(self, step: int, rank: int = 0, world: int = 1) -> tuple[Sequence[Batch], dict[str, float]]:
        generator = torch.Generator().manual_seed(step)
        made = []
        for number in range(2):
            tokens, targets = torch.randint(0, VOCABULARY, (2, 3, 8), generator=generator)
            weight = torch.rand(3, 8, generator=generator)
            rows = torch.tensor([0, 1, 1] if number == 0 else [0, 0, 2 if step else 1])
            positions = torch.arange(8).expand(3, 8)
            made.append(
                Batch(tokens, targets, positions, torch.zeros(3, 8, dtype=torch.long), {"weight": weight}, rows)
            )
        return deal(made, rank, world), {}


def test_losses_by_source_are_those_of_their_rows(folder: StageFolder) -> None:
    make_trainer(folder, source=SourcesSource(), steps=2).run()
    first, second = folder.metrics.read()
    assert {name for name in first if name.startswith("loss/")} == {"loss/prose", "loss/code"}, "late is not there yet"
    assert "loss/late" in second
    model = random_model(config()).double()
    sums = torch.zeros(2, 3, dtype=torch.float64)
    with torch.no_grad():
        for batch in SourcesSource().batches(0)[0]:
            logprobs_BTV = model(batch.tokens).log_softmax(-1)
            chosen_BT = logprobs_BTV.gather(-1, batch.targets[..., None])[..., 0]
            assert batch.sources is not None
            for row, source in enumerate(batch.sources.tolist()):
                weight_T = batch.streams["weight"][row].double()
                sums[0, source] -= (weight_T * chosen_BT[row]).sum()
                sums[1, source] += weight_T.sum()
    expected = sums[0] / sums[1]
    assert [first["loss/prose"], first["loss/code"]] == pytest.approx(expected[:2].tolist(), rel=1e-5)
    assert first["loss"] == pytest.approx(float(sums[0].sum() / sums[1].sum()), rel=1e-5)
