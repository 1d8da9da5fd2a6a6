"""The doctor's findings."""

from __future__ import annotations

import shutil
from collections import namedtuple
from pathlib import Path

import pytest

from ingot.recipe import doctor
from ingot.recipe.doctor import (
    Check,
    check_bf16,
    check_disk,
    check_packages,
    check_python,
    examine_machine,
    examine_recipe,
)

from . import toy
from .conftest import Write
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
    monkeypatch.setattr(doctor, "PACKAGES", ("json", "no_such_package"))
    assert check_packages() == Check("packages", "fail", "missing: no_such_package", "pip install ingot")
    monkeypatch.setattr(doctor, "PYTHON_NEEDED", (9, 1))
    assert (check_python().status, check_python().fix) == ("fail", "install Python 9.1 or newer")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: Usage(10, 9, 1024**3))
    assert check_disk(Path("some/runs")).text == "1.0 GiB free below some/runs"
    assert check_disk(Path("some/runs")).status == "warn"


def test_a_recipe(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    write("x", "given/part-0.parquet")
    path = write(REAL, "tiny.yaml")
    monkeypatch.setattr(doctor, "check_stages", lambda recipe, table: Check("stages", "ok", ""))
    checks = examine_recipe(path)
    assert [(check.name, check.status) for check in checks] == [
        ("recipe", "ok"),
        ("stages", "ok"),
        ("recipe memory", "ok"),
        ("recipe disk", "ok"),
    ]
    assert checks[0].text == "tiny: 5 stages, 0 finished in runs/tiny"
    monkeypatch.setattr(doctor, "memory_bytes", lambda: 1000)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: Usage(10, 9, 100))
    assert [check.status for check in examine_recipe(path)] == ["ok", "ok", "warn", "fail"]


def test_a_broken_recipe(write: Write) -> None:
    (check,) = examine_recipe(write("stages: {mkae: }\n"), table=toy.TABLE)
    assert check.status == "fail"
    assert "did you mean make?" in check.text
