"""Where and how precisely a run computes."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from ingot.train import device
from ingot.train.device import choose_device, choose_precision, cpu_has_bfloat16
from ingot.workspace.errors import IngotError
from tests.making.stages import stage_folder
from tests.model.tiny import mixed_config, random_model
from tests.train.toy import make_trainer, records

CPU = torch.device("cpu")


def test_asking_for_a_gpu_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert choose_device("auto") == choose_device("cpu") == CPU
    with pytest.raises(IngotError, match="cuda was asked for, but torch sees no GPU"):
        choose_device("cuda")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert choose_device("auto") == choose_device("cuda") == torch.device("cuda")
    assert choose_device("cpu") == CPU


@pytest.mark.parametrize(
    ("cpuinfo", "fast"),
    [
        ("flags\t\t: fpu avx512f avx512_bf16 wbnoinvd\n", True),
        ("flags\t\t: fpu avx2 amx_bf16 amx_tile\n", True),
        ("Features\t: fp asimd i8mm bf16 dgh\n", True),
        ("flags\t\t: fpu avx2 avx512f\n", False),
        ("Features\t: fp asimd atomics\n", False),
        (None, False),
    ],
)
def test_bfloat16_only_where_the_cpu_has_it(
    cpuinfo: str | None, fast: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if cpuinfo is not None:
        (tmp_path / "cpuinfo").write_text(cpuinfo, encoding="utf-8")
    monkeypatch.setattr(device, "Path", lambda _: tmp_path / "cpuinfo")
    assert cpu_has_bfloat16() == fast
    assert choose_precision("auto", CPU) == (torch.bfloat16 if fast else torch.float32)
    assert choose_precision("float32", CPU) == torch.float32
    assert choose_precision("bfloat16", CPU) == torch.bfloat16


@pytest.mark.filterwarnings("ignore:mkldnn_matmul failed:UserWarning")
def test_a_run_in_bfloat16_keeps_float32_masters(tmp_path: Path) -> None:
    losses = {}
    for precision in ("float32", "bfloat16"):
        folder = stage_folder(tmp_path / precision)
        trainer = make_trainer(folder, model=random_model(mixed_config()), precision=precision, steps=3)
        trainer.run()
        losses[precision] = [row["loss"] for row in records(folder)]
        assert {parameter.dtype for parameter in trainer.model.parameters()} == {torch.float32}
    assert losses["bfloat16"] != losses["float32"]
    assert losses["bfloat16"] == pytest.approx(losses["float32"], rel=0.01)
