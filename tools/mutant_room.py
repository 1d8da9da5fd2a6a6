"""Collects tests once, and runs some of them in forks of the process that did: there is nothing left to import.

In a fork, the functions of a file get the code of its mutant. What a plain assignment of code cannot change, the caller starts
anew: lines that importing the tests runs, and functions that numba compiles.
"""

from __future__ import annotations

import gc
import json
import os
import resource
import shutil
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import CodeType, FrameType, FunctionType
from typing import Any, NoReturn

MEMORY = 16 << 30  # bytes that one process may hold, and write to a file: a fault may do either without end
FILE = 4 << 30
PROCESSOR = 1800  # seconds; a fault that never ends does not outlive this tool for long, if it is killed
NOT_BEGUN = 97  # the exit code of a fork that could not make the mutant
STARTS_A_PROCESS = {
    "os.fork",
    "os.forkpty",
    "os.posix_spawn",
    "subprocess.Popen",
    "socket.connect",
}  # the last: a fork server


def pytest_in(slot: Path, tests: list[str], plugin: Callable[[Path], object]) -> NoReturn:
    """Become a process that runs pytest in the slot's copy of the tree, and leads a group with all that the tests start."""
    code = 1
    try:
        os.setsid()
        shutil.rmtree(slot / "tmp", ignore_errors=True)
        output = os.open(slot / "output", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        for stream, file in enumerate((os.open(os.devnull, os.O_RDONLY), output, output)):
            os.dup2(file, stream)
        for what, most in (
            (resource.RLIMIT_DATA, MEMORY),
            (resource.RLIMIT_FSIZE, FILE),
            (resource.RLIMIT_CPU, PROCESSOR),
        ):
            resource.setrlimit(what, (most, most))
        tree = slot / "tree"
        os.chdir(tree)
        sys.path.insert(0, str(tree))
        os.environ.update(PYTHONPATH=str(tree), XDG_CACHE_HOME=str(slot / "cache"))
        import pytest

        options = ["-x", "-m", "not slow", "-p", "no:cacheprovider", f"--basetemp={slot / 'tmp'}"]
        options += ["--hypothesis-seed=0"] if find_spec("hypothesis") else []
        code = pytest.main([*tests, *options], plugins=[plugin(tree), TorchWasImportedBefore()])
        sys.stdout.flush()
    finally:
        os._exit(int(code))


def exit_code(process: int) -> int | None:
    """Of a child that has ended."""
    found, status = os.waitpid(process, os.WNOHANG)
    return os.waitstatus_to_exitcode(status) if found else None


def kill(process: int) -> None:
    """End a process, and all that it left behind."""
    with suppress(ProcessLookupError):
        os.killpg(process, signal.SIGKILL)
    with suppress(ChildProcessError):
        os.waitpid(process, 0)


class TorchWasImportedBefore:
    """tests/conftest.py replaces a name of multiprocessing that torch takes when it is imported."""

    def pytest_collection(self) -> None:
        import multiprocessing

        if torchs := sys.modules.get("torch.multiprocessing"):
            vars(torchs)["get_context"] = multiprocessing.get_context


class Failed:
    """Notes which test fails."""

    def __init__(self, failed: Path) -> None:
        self.failed = failed

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.failed:
            self.failed.write_text(report.nodeid, encoding="utf-8")


class Only(Failed):
    """Runs some tests, and leaves the others out."""

    def __init__(self, tests: set[str], failed: Path) -> None:
        super().__init__(failed)
        self.tests = tests

    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        items[:] = [item for item in items if item.nodeid in self.tests]


class Timer:
    """Ends this process by SIGPROF when a test takes more seconds of processor time than it may."""

    def __init__(self, seconds: dict[str, float]) -> None:
        self.seconds = seconds

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        signal.setitimer(signal.ITIMER_PROF, self.seconds[nodeid])


class Lines:
    """Notes which lines of some files run in this process, while it is told to."""

    def __init__(self, tree: Path, files: list[str]) -> None:
        self.names = {str(tree / file): file for file in files}
        self.test = ""
        self.seen: set[tuple[str, str, int]] = set()

    def call(self, frame: FrameType, event: str, argument: object) -> Any:
        return self.line if frame.f_code.co_filename in self.names else None

    def line(self, frame: FrameType, event: str, argument: object) -> Any:
        self.seen.add((self.test, self.names[frame.f_code.co_filename], frame.f_lineno))
        return self.line

    def watch(self, test: str) -> None:
        self.test = test
        sys.settrace(self.call)
        threading.settrace(self.call)

    def stop(self) -> None:
        sys.settrace(None)
        threading.settrace(None)


class Room:
    """Collects, says what it found, and then serves one request after the other until nobody asks any more."""

    def __init__(self, slot: Path, files: list[str], asked: socket.socket) -> None:
        self.slot, self.tree, self.files, self.asked = slot, slot / "tree", files, asked
        self.broken: list[str] = []
        self.lines = Lines(self.tree, files)
        self.lines.watch("")

    def pytest_configure(self, config: Any) -> None:
        config.option.maxfail = 0

    def pytest_collectreport(self, report: Any) -> None:
        if report.failed:
            self.broken.append(report.nodeid)

    def pytest_runtestloop(self, session: Any) -> bool:
        self.lines.stop()
        items = {item.nodeid: item for item in session.items}
        functions = functions_of(self.lines.names)
        gc.collect()
        gc.freeze()  # no fork looks through all that was imported, which would copy it
        imported = sorted({(file, line) for _, file, line in self.lines.seen})
        self.say(tests=list(items), broken=self.broken, imported=imported)
        for line in self.asked.makefile("rb"):
            request = json.loads(line)
            for name in request["imports"]:
                with suppress(ImportError, AttributeError, ValueError, RuntimeError):  # made by code, not in a file
                    import_module(name)
            session.items[:] = [items[test] for test in request["tests"]]
            failed = self.slot / "failed"
            failed.unlink(missing_ok=True)
            shutil.rmtree(self.slot / "tmp", ignore_errors=True)
            process = os.fork()
            if not process:
                self.run(session, request, functions, failed)
            deadline = time.monotonic() + request["seconds"]
            while (code := exit_code(process)) is None and time.monotonic() < deadline:
                time.sleep(0.002)
            kill(process)
            code = None if code == -signal.SIGPROF else code
            self.say(code=code, failed=failed.read_text(encoding="utf-8") if failed.exists() else None)
        return True

    def say(self, **reply: Any) -> None:
        self.asked.sendall(json.dumps(reply).encode() + b"\n")

    def run(self, session: Any, request: dict[str, Any], functions: list[FunctionType], failed: Path) -> NoReturn:
        """In the fork: the code of the mutant, then the tests."""
        code = NOT_BEGUN
        try:
            os.setsid()
            from _pytest.main import pytest_runtestloop

            session.testsfailed, session.shouldfail = 0, False
            plugins = session.config.pluginmanager
            session.config.option.tbstyle = "no"
            if watch := request.get("watch"):
                plugins.register(Watch(self.tree, self.files, Path(watch)), "watch")
            else:
                session.config.option.maxfail = 1
                plugins.register(Failed(failed))
                plugins.register(Timer(request["processor"]))
            if "mutant" in request:
                replace_code(request["file"], request["original"], request["mutant"], functions)
            code = 1
            with suppress(session.Failed):
                pytest_runtestloop(session)
            code = int(session.testsfailed > 0)
            if watch:
                plugins.getplugin("watch").write()
        finally:
            os._exit(code)


def functions_of(names: dict[str, str]) -> list[FunctionType]:
    """All functions that stand in these files."""
    found = (each for each in gc.get_objects() if type(each) is FunctionType)
    return [function for function in found if function.__code__.co_filename in names]


def replace_code(file: str, original: str, mutant: str, functions: list[FunctionType]) -> None:
    """Give the functions of a file the code they have in its mutant."""
    old, new = (compile(source, file, "exec", dont_inherit=True) for source in (original, mutant))
    codes = dict(pairs(old, new))
    for function in functions:
        if function.__code__.co_filename.endswith(file) and (code := codes.get(function.__code__)):
            function.__code__ = code


def pairs(old: CodeType, new: CodeType) -> Iterator[tuple[CodeType, CodeType]]:
    """The code of each function in two versions of a file."""
    if old != new:
        yield old, new
    inner = [[const for const in code.co_consts if isinstance(const, CodeType)] for code in (old, new)]
    if len(inner[0]) == len(inner[1]):
        for one, other in zip(*inner, strict=True):
            yield from pairs(one, other)


class Watch:
    """Notes how long each test takes, which lines of some files it runs in this process, and whether it starts others."""

    def __init__(self, tree: Path, files: list[str], found: Path) -> None:
        self.found = found
        self.lines = Lines(tree, files)
        self.seconds: dict[str, float] = {}
        self.failed: set[str] = set()
        self.processes: set[str] = set()
        sys.addaudithook(self.heard)

    def heard(self, event: str, arguments: object) -> None:
        if event in STARTS_A_PROCESS:
            self.processes.add(self.lines.test.partition("::")[0])

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self.lines.watch(nodeid)

    def pytest_runtest_logreport(self, report: Any) -> None:
        self.seconds[report.nodeid] = self.seconds.get(report.nodeid, 0.0) + report.duration
        if not report.passed:
            self.failed.add(report.nodeid)

    def write(self) -> None:
        self.lines.stop()
        passed = {test: seconds for test, seconds in self.seconds.items() if test not in self.failed}
        here = str(Path.cwd())
        libraries = [
            name for name, module in sys.modules.items() if not str(getattr(module, "__file__", here)).startswith(here)
        ]
        found = [passed, sorted(self.lines.seen), sorted(self.failed), sorted(self.processes), libraries]
        self.found.write_text(json.dumps(found), encoding="utf-8")
