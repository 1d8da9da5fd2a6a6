"""Hostile programs, each at every level that works here: what a level promises holds."""

from __future__ import annotations

import os
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from ingot.sandbox import levels as all_levels
from ingot.sandbox.levels import Isolation
from ingot.sandbox.program import Limits, Outcome, Program
from ingot.sandbox.run import isolation, run
from ingot.workspace.errors import IngotError
from tests.making.processes import wait_until

LEVELS: tuple[Isolation, ...] = ("bubblewrap", "process")


def works(level: Isolation) -> bool:
    try:
        python("pass", level)
    except IngotError:
        return False
    return True


def python(source: str, level: Isolation | None = None, limits: Limits | None = None, stdin: bytes = b"") -> Outcome:
    limits = replace(limits or Limits(20.0), unsafe=True)
    return run(Program((sys.executable, "-I", "-c", source), stdin), limits, level)


@pytest.fixture(params=LEVELS)
def level(request: pytest.FixtureRequest) -> Isolation:
    found: Isolation = request.param
    if not works(found):
        pytest.skip(f"{found} does not work on this machine: install bubblewrap, allow user namespaces")
    return found


@pytest.fixture
def bubblewrap() -> Isolation:
    if not works("bubblewrap"):
        pytest.skip("bwrap is not installed, or user namespaces are refused")
    return "bubblewrap"


@pytest.fixture
def apart() -> Isolation:
    """The strongest level; skipped where it is an ordinary process."""
    if isolation() == "process":
        pytest.skip("bwrap is not installed, or user namespaces are refused")
    return isolation()


def test_a_program_has_its_input_files_environment_and_an_empty_folder(level: Isolation) -> None:
    source = (
        "import os, sys; print(sys.stdin.read(), open('a.txt').read(), sorted(os.listdir()), sorted(os.environ), "
        "os.getcwd() == os.environ['HOME']); print('wrong', file=sys.stderr); sys.exit(3)"
    )
    program = Program((sys.executable, "-I", "-c", source), "ü".encode(), {"a.txt": "é"}, {"KEY": "value"})
    outcome = run(program, Limits(20.0, unsafe=True), level)
    assert outcome.stdout.decode() == "ü é ['a.txt'] ['HOME', 'KEY', 'LC_ALL', 'PATH'] True\n"
    assert outcome.stderr == b"wrong\n"
    assert (outcome.exit, outcome.ended_by, outcome.isolation) == (3, "exit", level)


def test_the_strongest_level_is_chosen() -> None:
    assert python("pass").isolation == isolation() == next(level for level in LEVELS if works(level))


def test_without_bubblewrap_a_process_is_used_only_if_the_user_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    from ingot.sandbox import run as module

    monkeypatch.setattr(
        module, "levels", lambda: [all_levels.Level("bubblewrap", ("false",)), all_levels.Level("process")]
    )
    module._level.cache_clear()
    try:
        assert isolation() == python("pass").isolation == "process"
        with pytest.raises(IngotError, match=r"cannot be isolated on this machine[^§]*bubblewrap[^§]*--unsafe"):
            run(Program(source="pass"), Limits(20.0))
        with pytest.raises(IngotError, match="cannot be isolated by bubblewrap here"):
            python("pass", "bubblewrap")
    finally:
        module._level.cache_clear()


def test_large_input_and_output(level: Isolation) -> None:
    outcome = python("import sys; sys.stdout.write(sys.stdin.read())", level, stdin=b"x" * 3_000_000)
    assert outcome.stdout == b"x" * 3_000_000
    assert python("pass", level, stdin=b"x" * 3_000_000).exit == 0  # which it does not read


def test_a_program_that_takes_too_long(level: Isolation) -> None:
    outcome = python("print('begun', flush=True)\nimport time; time.sleep(60)", level, Limits(4.0))
    assert (outcome.ended_by, outcome.stdout) == ("time", b"begun\n")
    assert outcome.seconds < 20
    closed = python("import os, time; os.close(1); os.close(2); time.sleep(60)", level, Limits(1.0))
    assert closed.ended_by == "time"


def test_processor_time(level: Isolation) -> None:
    outcome = python("while True: pass", level, Limits(60.0, cpu=0))
    assert (outcome.ended_by, outcome.exit) == ("cpu", -24)


def test_a_signal_ends_a_program(level: Isolation) -> None:
    outcome = python("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", level)
    assert (outcome.ended_by, outcome.exit) == ("signal", -11)


def test_endless_output(level: Isolation) -> None:
    outcome = python("while True: print('x' * 1000)", level, Limits(30.0, output=100_000))
    assert (outcome.ended_by, len(outcome.stdout)) == ("output", 100_000)
    both = python("import os\nwhile True: os.write(2, b'x' * 1000)", level, Limits(30.0, output=100_000))
    assert (both.ended_by, len(both.stderr)) == ("output", 100_000)


def test_memory_bomb(level: Isolation) -> None:
    outcome = python("parts = []\nwhile True: parts.append(bytearray(10**7))", level, Limits(30.0, memory=2**28))
    assert outcome.exit == 1 and outcome.stderr.endswith(b"MemoryError\n")


def test_large_files(level: Isolation) -> None:
    outcome = python("open('large', 'wb').write(bytes(10**6))", level, Limits(20.0, file=10**5))
    assert outcome.stderr.endswith(b"File too large\n")


def test_many_files_fill_a_folder_in_memory_only(bubblewrap: Isolation) -> None:
    source = "for number in range(10**6):\n    open(f'{number}', 'wb').write(bytes(10**7))"
    assert python(source, bubblewrap, Limits(60.0, memory=2**30)).stderr.endswith(b"No space left on device\n")


def test_fork_bomb(bubblewrap: Isolation) -> None:
    """The number of processes is limited, and all of them are gone at the end."""
    mark = f"bomb-{os.getpid()}-{time.monotonic_ns()}"
    source = (
        f"import os, time; mark = {mark!r}; count = 0\n"
        "try:\n"
        "    while True:\n"
        "        if os.fork() == 0: time.sleep(60); os._exit(0)\n"
        "        count += 1\n"
        "except BlockingIOError: print(count)"
    )
    outcome = python(source, bubblewrap, Limits(60.0, processes=20))
    assert outcome.exit == 0 and 5 < int(outcome.stdout) < 20
    assert not running(mark)


def running(mark: str) -> list[str]:
    """The processes whose command line holds `mark`."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            text = path.read_bytes()
        except OSError:  # it has just ended
            continue
        if mark.encode() in text:
            found.append(path.parent.name)
    return found


def test_a_child_in_its_own_session_does_not_outlive_the_program(apart: Isolation) -> None:
    mark = f"daemon-{os.getpid()}-{time.monotonic_ns()}"
    source = f"import os, time; mark = {mark!r}\nif os.fork() == 0:\n    os.setsid()\n    time.sleep(60)"
    began = time.monotonic()
    assert python(source, apart, Limits(30.0)).ended_by == "exit"
    assert python(source + "\nelse: time.sleep(60)", apart, Limits(2.0)).ended_by == "time"
    assert time.monotonic() - began < 30
    wait_until(lambda: not running(mark))


def test_a_child_that_keeps_the_output_open_does_not_hold_the_program(level: Isolation) -> None:
    source = "import os, time\nif os.fork() == 0: time.sleep(60)\nelse: print('done')"
    outcome = python(source, level, Limits(30.0))
    assert (outcome.ended_by, outcome.stdout) == ("exit", b"done\n") and outcome.seconds < 20


@pytest.fixture
def port() -> Iterator[int]:
    """A port of this machine that accepts connections."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=lambda: server.accept(), daemon=True).start()
        yield server.getsockname()[1]
        with socket.create_connection(("127.0.0.1", server.getsockname()[1])):
            pass


def test_there_is_no_network(apart: Isolation, port: int) -> None:
    source = f"import socket; socket.create_connection(('127.0.0.1', {port}), timeout=5)"
    outcome = python(source, apart)
    assert outcome.exit == 1 and (b"unreachable" in outcome.stderr or b"refused" in outcome.stderr)


def test_the_environment_is_secret(level: Isolation, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET_KEY", "abc-123")
    assert b"abc-123" not in python("import os; print(os.environ)", level).stdout


def test_the_environment_of_the_parent_is_secret(apart: Isolation) -> None:
    source = (
        "import glob\n"
        "for path in glob.glob('/proc/[0-9]*/environ'):\n"
        "    try: print(open(path).read())\n"
        "    except OSError: pass"
    )
    shown = python(source, apart).stdout.decode("utf-8", "replace")
    assert "PYTEST_CURRENT_TEST" not in shown and "PWD=" not in shown


def test_homes_and_other_files_are_not_there(bubblewrap: Isolation) -> None:
    with tempfile.NamedTemporaryFile("w", dir=Path.home(), prefix=".ingot-secret-") as secret:
        for path in (secret.name, "/etc/passwd", "/etc/shadow", __file__, str(Path.cwd() / "pyproject.toml")):
            outcome = python(f"print(open({path!r}).read())", bubblewrap)
            assert outcome.exit == 1 and b"FileNotFoundError" in outcome.stderr, path


def test_nothing_outside_can_be_written(bubblewrap: Isolation, tmp_path: Path) -> None:
    for path in ("/usr/mine", "/bin/mine", "/mine", f"{sys.prefix}/mine", f"{sys.base_prefix}/mine", "/etc/mine"):
        outcome = python(f"open({path!r}, 'w')", bubblewrap)
        assert outcome.exit == 1, path
        assert not Path(path).exists()
    assert python(f"open({str(tmp_path / 'mine')!r}, 'w')", bubblewrap).exit == 1
    assert python("open('/tmp/mine', 'w').write('x')", bubblewrap).exit == 0  # its own folder
    assert not Path("/tmp/mine").exists()


def test_other_processes_cannot_be_killed(apart: Isolation) -> None:
    outcome = python(f"import os, signal; os.kill({os.getpid()}, signal.SIGTERM)", apart)
    assert outcome.exit == 1 and b"ProcessLookupError" in outcome.stderr


def test_a_program_has_no_privileges(bubblewrap: Isolation) -> None:
    shown = python("print(open('/proc/self/status').read())", bubblewrap).stdout.decode()
    lines = dict(line.split(":\t", 1) for line in shown.splitlines() if ":\t" in line)
    assert lines["CapEff"] == lines["CapPrm"] == "0000000000000000"
    assert lines["NoNewPrivs"] == "1"
    if os.getuid() == 0:
        assert int(lines["Uid"].split()[0]) >= all_levels.FIRST_USER


def test_programs_run_at_the_same_time(level: Isolation) -> None:
    outcomes: list[Outcome] = []
    threads = [
        threading.Thread(target=lambda number=number: outcomes.append(python(f"print({number})", level)))
        for number in range(6)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(int(outcome.stdout) for outcome in outcomes) == list(range(6))
