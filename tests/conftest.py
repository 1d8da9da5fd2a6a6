"""Fixtures for all rooms."""

from __future__ import annotations

import asyncio
import gc
import multiprocessing
import os
import sys
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import pytest
from hypothesis import settings

from tests.forking import forking, freeze

if TYPE_CHECKING:
    from ingot.sandbox.pool import Pool
from tests.untested import untested

# A slow machine is no fault of the code. `make test` tries 10 cases of each property, `make test-all` 500.
settings.register_profile("few", deadline=None, max_examples=10)
settings.register_profile("many", deadline=None, max_examples=500)
settings.load_profile("few")

# Read by OpenMP when torch is loaded. Threads that spin while they wait take the core from the other test process: a team of
# two that shares two cores with it would be ten times slower.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

# Also read then, and by programs that tests start: tiny products are slower on more threads.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# Where there is no GPU, kernels run in Triton's interpreter. Read when triton is first imported, which torch's compiler does too.
if not Path("/dev/nvidiactl").exists():
    os.environ.setdefault("TRITON_INTERPRET", "1")

# Compiled files are kept, also where the environment says otherwise: the test processes and the many programs that tests start
# would compile the same package, and pytest rewrite the same tests, each for itself.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# No test cuts the power: what was written is read again without waiting for the disk, thousands of times. Programs and
# processes that tests start do wait.
patch.object(os, "fsync", lambda file: os.fstat(file if isinstance(file, int) else file.fileno())).start()

# Workers and samplers that stages spawn are forked, from a server that has imported what each would import for seconds. Torch
# takes the name when it is imported, which is later. Programs that tests start do spawn them.
_usual_context = multiprocessing.get_context
patch.object(
    multiprocessing, "get_context", lambda method=None: forking() if method == "spawn" else _usual_context(method)
).start()

SHARED_DATA = Path(__file__).resolve().parents[1].parent / "shared" / "data"


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """While tests are imported everything stays, and collections of garbage would find nothing in a fifth of the time."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


def pytest_unconfigure() -> None:
    """Nor would they find anything at the end, when pytest and Python look through all that lives, and the process ends."""
    gc.freeze()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """The last words of a run: what was not tested, and for want of what."""
    skips = ((each.nodeid, each.longrepr[2]) for each in terminalreporter.stats.get("skipped", []))
    if lines := untested(skips):
        terminalreporter.section("NOT TESTED HERE", sep="!", red=True, bold=True)
        for line in lines[:-1]:
            terminalreporter.write_line(line)
        terminalreporter.write_line(lines[-1], red=True, bold=True)


@pytest.fixture(scope="module", autouse=True)
def _quick_collections() -> None:
    """Garbage collections pass over what lives already, the imported libraries above all.

    The trainer collects twice in every run; over the million objects of torch and transformers that takes half a second.
    """
    _pass_over_all()


@pytest.fixture(autouse=True)
def _quick_collections_after_imports() -> None:
    """Most tests of a module pass over what the first one imported, too."""
    if len(sys.modules) > _modules_passed_over:
        _pass_over_all()


_modules_passed_over = 0


def _pass_over_all() -> None:
    global _modules_passed_over
    gc.collect()
    freeze()
    _modules_passed_over = len(sys.modules)


@pytest.fixture
def spawning(monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes are spawned as in a program: for one test of each kind of them."""
    import torch.multiprocessing

    for module in (multiprocessing, torch.multiprocessing):
        monkeypatch.setattr(module, "get_context", _usual_context)


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of real data beside the repository."""
    if not SHARED_DATA.is_dir():
        pytest.skip("needs the real data in ../shared/data beside the repository")
    return SHARED_DATA


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """Debian's chromium, one for all tests of a process: playwright drives no second one beside it."""
    from tests.report.browsing import CHROMIUM, FLAGS

    playwright = pytest.importorskip("playwright.sync_api", reason="needs playwright (pip install playwright)")
    with playwright.sync_playwright() as driver:
        running = driver.chromium.launch(executable_path=CHROMIUM, args=FLAGS, timeout=60_000)
        yield running
        running.close()


@pytest.fixture(scope="module")
def pool() -> Iterator[Pool]:
    """Two workers of the sandbox as it is meant to be: without isolation there is nothing to attack."""
    from ingot.sandbox.pool import Pool
    from ingot.sandbox.run import isolation

    if isolation() == "process":
        pytest.skip("bwrap is not installed, or user namespaces are refused")
    with Pool(2) as pool:
        yield pool


@pytest.fixture(autouse=True)
def _no_running_loop(request: pytest.FixtureRequest) -> Iterator[None]:
    """The browser of earlier tests in this process leaves its event loop marked as running in this thread: `asyncio.run`
    would refuse. Tests that drive the browser need the mark."""
    if "browser" in request.fixturenames:
        yield
        return
    running = asyncio._get_running_loop()
    asyncio._set_running_loop(None)
    yield
    asyncio._set_running_loop(running)
