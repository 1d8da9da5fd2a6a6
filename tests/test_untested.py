"""What a machine lacks is said at the end of the tests (tests/untested.py), and installed before them where that can be done."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.untested import untested

ROOT = Path(__file__).parents[1]


def test_skips_are_counted_by_what_is_missing() -> None:
    lines = untested(
        [
            ("tests/a.py::test_1", "Skipped: needs a CUDA device"),
            ("tests/a.py::test_2", "Skipped: bwrap is not installed, or user namespaces are refused"),
            ("tests/a.py::test_3", "Skipped: kills the sandbox of bubblewrap"),
            ("tests/b.py", "Skipped: could not import 'lm_eval.tasks': No module named 'lm_eval'"),
            ("tests/c.py::test_4", "Skipped: needs lm_eval (pip install lm_eval)"),
            ("tests/c.py::test_5", "Skipped: the moon is full"),
        ]
    )
    assert lines[0].startswith("without bubblewrap 2 tests did not run: every attack on the sandbox")
    assert "fix: apt install bubblewrap" in lines[0]
    assert lines[1].startswith("without a GPU 1 test did not run: ")
    assert lines[2] == "without the moon is full 1 test did not run"
    assert lines[3].startswith("without the package lm_eval 1 test and 1 whole file did not run: ")
    assert lines[4] == (
        "NOT TESTED HERE: 5 tests and 1 whole file, for want of bubblewrap (2 tests), a GPU (1 test), the moon is full "
        "(1 test), the package lm_eval (1 test and 1 whole file)"
    )
    assert untested([]) == []


def test_every_way_in_which_our_tests_miss_a_program_is_known() -> None:
    """Reasons in the tests that name bubblewrap or a browser are counted under these names, however they are put."""
    for reason, name in {
        "bubblewrap does not work on this machine: install bubblewrap, allow user namespaces": "bubblewrap",
        "bwrap is not installed, or namespaces are refused": "bubblewrap",
        "needs root, setpriv, bubblewrap and the Python of the system": "bubblewrap",
        "needs playwright (pip install playwright)": "chromium",
        "needs a CUDA device, or TRITON_INTERPRET=1": "a GPU",
        "the published files are not here": "data beside the repository",
        "INGOT_VERIFIERS_PYTHON does not name a Python that has verifiers 0.4": "verifiers",
    }.items():
        assert untested([("a::b", reason)])[-1] == f"NOT TESTED HERE: 1 test, for want of {name} (1 test)"


@pytest.mark.slow
@pytest.mark.parametrize("processes", [[], ["-n", "2"]])
def test_a_run_without_bubblewrap_ends_with_what_it_did_not_test(tmp_path: Path, processes: list[str]) -> None:
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "tests/sandbox/test_attacks.py", *processes]
    done = subprocess.run(
        command, cwd=ROOT, env=os.environ | {"PATH": str(tmp_path)}, capture_output=True, text=True, timeout=200
    )
    assert done.returncode == 0, done.stdout
    sentence, counts = done.stdout.rstrip().splitlines()[-2:]
    assert sentence.startswith("NOT TESTED HERE: ") and ", for want of bubblewrap (" in sentence
    assert "skipped" in counts and "passed" not in counts


def stub(folder: Path, name: str, script: str) -> None:
    (folder / name).write_text(f"#!/bin/bash\n{script}\n")
    (folder / name).chmod(0o755)


@pytest.mark.parametrize("user", [0, 1000])
def test_bubblewrap_is_installed_before_the_tests_where_that_is_allowed(tmp_path: Path, user: int) -> None:
    """`make test`, which CI runs (.ci/run), begins with tools/system-programs."""
    stub(tmp_path, "id", f"echo {user}")
    stub(tmp_path, "apt-get", f'echo "$@" >> {tmp_path}/called')
    stub(tmp_path, "chromium", "")
    done = subprocess.run(
        ["/bin/bash", str(ROOT / "tools" / "system-programs")],
        env={"PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    if user == 0:
        installed = (tmp_path / "called").read_text().splitlines()[-1].split()
        assert installed[0] == "install" and installed[-1] == "bubblewrap"
    else:
        assert not (tmp_path / "called").exists()
        assert "missing Debian packages: bubblewrap" in done.stdout
    makefile = (ROOT / "Makefile").read_text("utf-8")
    assert (
        "\ntest: $(VENV)/.dev  ##" in makefile
        and makefile.split("\ntest:")[1].splitlines()[1] == "\ttools/system-programs"
    )
    assert (ROOT / ".ci" / "run").read_text("utf-8").splitlines()[-1] == "make test"
