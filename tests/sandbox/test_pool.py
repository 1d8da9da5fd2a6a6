"""The pool: many programs from many threads, workers that wear out and die, and the same results as a sandbox for each."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from ingot.envs.verifiers.code.tests import Asserts, Calls, FunctionCall, InputOutput
from ingot.envs.verifiers.code.verify import verify
from ingot.envs.verifiers.errors import VerifierError
from ingot.sandbox import memory
from ingot.sandbox import pool as pool_module
from ingot.sandbox.pool import Pool
from ingot.sandbox.program import Limits, Outcome, Program
from ingot.sandbox.run import isolation, run
from ingot.sandbox.worker import SandboxError
from ingot.workspace.errors import IngotError
from tests.making.processes import alive, wait_until

LIMITS = Limits(20.0)


@pytest.fixture
def pool() -> Iterator[Pool]:
    if isolation() == "process":
        pytest.skip("bwrap is not installed, or user namespaces are refused")
    with Pool(2) as pool:
        yield pool


def python(source: str) -> Program:
    return Program(source=source)


def test_many_threads(pool: Pool) -> None:
    with ThreadPoolExecutor(8) as threads:
        outcomes = list(threads.map(lambda number: pool.run(python(f"print({number})"), LIMITS), range(40)))
    assert [int(outcome.stdout) for outcome in outcomes] == list(range(40))
    assert len(pool._free) == 2


PROGRAMS = [
    "import sys; print(sys.stdin.read(), end=''); print('error', file=sys.stderr); sys.exit(3)",
    "import sys; sys.exit('message')",
    "import atexit; atexit.register(print, 'at exit'); print('first')",
    "import threading, time\nthreading.Thread(target=lambda: (time.sleep(0.1), print('thread'))).start()",
    "def f(): raise ValueError('wrong')\nf()",
    "raise KeyError('a') from ValueError('b')",
    "x = (",
    "import sys, __main__; x = 1; print(__main__.x, sys.argv[0] != '', __name__)",
    "import os; print(sorted(os.environ), os.getcwd() == os.environ['HOME'], os.listdir())",
    "import dataclasses\n@dataclasses.dataclass\nclass A:\n    x: int\nimport pickle; print(pickle.loads(pickle.dumps(A(1))))",
    "print('ü', '\\udc80'.encode('utf-8', 'surrogateescape'))",
    "import os; os.write(3, b'data'); os.abort()",
    "import signal, os; os.kill(os.getpid(), signal.SIGTERM)",
]


@pytest.mark.parametrize("source", PROGRAMS)
def test_a_warm_interpreter_does_as_a_new_one(pool: Pool, source: str) -> None:
    """The same status, output, errors and data as `python -I -c` in the same kind of cell."""
    warm = pool.run(Program(source=source, stdin=b"input"), LIMITS)
    cold = pool.run(Program((sys.executable, "-I", "-X", "utf8", "-c", source), stdin=b"input"), LIMITS)
    assert (warm.exit, warm.stdout, warm.result, warm.ended_by) == (cold.exit, cold.stdout, cold.result, cold.ended_by)
    assert warm.stderr.replace(b"program.py", b"<string>").splitlines()[-1:] == cold.stderr.splitlines()[-1:]
    assert warm.stderr.count(b"File ") == cold.stderr.count(b"File ")


def test_workers_are_replaced_when_they_wear_out_or_die(pool: Pool) -> None:
    pool.most_programs = 3
    for _ in range(7):
        assert pool.run(python("print(1)"), LIMITS).stdout == b"1\n"
    (worker,) = pool._free
    assert worker.programs == 1
    os.kill(worker.process.pid, signal.SIGKILL)
    worker.process.wait(10)
    assert pool.run(python("print(2)"), LIMITS).stdout == b"2\n"


def test_workers_outlive_the_thread_that_started_them(pool: Pool) -> None:
    thread = threading.Thread(target=pool.run, args=(python("pass"), LIMITS))
    thread.start()
    thread.join(20)
    time.sleep(0.2)
    (worker,) = pool._free
    assert worker.alive and pool.run(python("print(4)"), LIMITS).stdout == b"4\n"
    assert pool._free == [worker]


def test_nothing_outlives_a_parent_that_is_killed(pool: Pool) -> None:
    source = (
        "import os, threading, time\nfrom ingot.sandbox import memory\nfrom ingot.sandbox.pool import Pool\n"
        "from ingot.sandbox.program import Limits, Program\nprogram = Program(source='while True: pass')\n"
        "threading.Thread(target=Pool(2).run, args=(program, Limits(100)), daemon=True).start()\n"
        "while len(found := memory.descendants(os.getpid())) < 5: time.sleep(0.05)\n"
        "print(*found[1:], flush=True)\ntime.sleep(100)"
    )
    environment = os.environ | {"PYTHONPATH": str(Path(pool_module.__file__).parents[2])}
    with subprocess.Popen([sys.executable, "-c", source], stdout=subprocess.PIPE, text=True, env=environment) as parent:
        assert parent.stdout is not None
        numbers = list(map(int, parent.stdout.readline().split()))
        parent.kill()
    assert len(numbers) == 4
    wait_until(lambda: not any(map(alive, numbers)))


def sleep_while_the_zygote_gets(pool: Pool, number: int, seconds: float) -> Outcome:
    pool.run(python("pass"), LIMITS)
    (worker,) = pool._free
    timer = threading.Timer(0.3, os.kill, (memory.descendants(worker.process.pid)[-1], number))
    timer.start()
    try:
        return pool.run(python("import time; time.sleep(60)"), Limits(seconds))
    finally:
        timer.join()


def test_a_zygote_that_dies_is_an_error_and_not_an_outcome(pool: Pool) -> None:
    with pytest.raises(SandboxError, match="does not answer"):
        sleep_while_the_zygote_gets(pool, signal.SIGKILL, 20.0)
    assert pool.run(python("print(3)"), LIMITS).stdout == b"3\n"


def test_a_program_over_its_limit_that_cannot_be_ended_in_time_is_an_outcome(
    pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its limit is known; its worker is ended, and all that is in it."""
    monkeypatch.setattr("ingot.sandbox.running.KILL_SECONDS", 0.5)
    outcome = sleep_while_the_zygote_gets(pool, signal.SIGSTOP, 1.0)
    assert (outcome.ended_by, outcome.exit) == ("time", -signal.SIGKILL)
    assert not pool._free and pool.run(python("print(3)"), LIMITS).stdout == b"3\n"


def test_a_machine_without_a_free_process_is_an_error_of_the_sandbox(
    pool: Pool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Nothing of the program has run, and nothing is left: the pool works once there is one again."""

    def refuse(*_: object, **__: object) -> None:
        raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")

    before = len(list(Path("/proc/self/fd").iterdir()))
    with monkeypatch.context() as patched:
        patched.setattr(subprocess, "Popen", refuse)
        patched.setattr(tempfile, "tempdir", str(tmp_path))
        for tests in (Calls("f", [FunctionCall([], 1)]), Asserts("assert f() == 1"), InputOutput([("", "")])):
            with pytest.raises(VerifierError, match=r"the sandbox does not start: .*Resource temporarily unavailable"):
                verify("def f(): return 1", tests, pool, LIMITS)
    assert len(list(Path("/proc/self/fd").iterdir())) == before and not list(tmp_path.iterdir())
    assert pool.run(python("print(5)"), LIMITS).stdout == b"5\n"


def test_programs_that_talk(pool: Pool) -> None:
    there, back = os.pipe(), os.pipe()
    first = Program(source="import os; os.write(5, os.read(4, 9)[::-1])", links=(there[0], back[1]))
    second = Program(source="import os; os.write(5, b'abc'); print(os.read(4, 9))", links=(back[0], there[1]))
    outcomes = pool.run_together([first, second], [LIMITS, LIMITS])
    assert outcomes[1].stdout == b"b'cba'\n"
    with pytest.raises(IngotError, match="3 programs at once in a pool of 2"):
        pool.run_together([python("pass")] * 3, [LIMITS] * 3)


def test_a_pool_waits_no_longer_than_its_deadline(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool_module, "WAIT_SECONDS", 0.2)
    with ThreadPoolExecutor(2) as threads:
        busy = [threads.submit(pool.run, python("import time; time.sleep(2)"), LIMITS) for _ in range(2)]
        while pool._taken < 2:
            time.sleep(0.01)
        with pytest.raises(SandboxError, match="no free worker"):
            pool.run(python("pass"), LIMITS)
        assert [one.result().exit for one in busy] == [0, 0]


def test_a_closed_pool_leaves_nothing(pool: Pool) -> None:
    pool.run(python("pass"), LIMITS)
    numbers = [number for worker in pool._free for number in memory.descendants(worker.process.pid)]
    folders = [Path(worker._folder.name) for worker in pool._free]
    assert numbers and all(folder.exists() for folder in folders)
    pool.close()
    assert not any(Path(f"/proc/{number}").exists() for number in numbers)
    assert not any(folder.exists() for folder in folders)
    with pytest.raises(SandboxError, match="the pool is closed"):
        pool.run(python("pass"), LIMITS)


def test_files_are_written_as_they_are_given(pool: Pool) -> None:
    files: dict[str, str | bytes] = {"a/b.txt": "é", "tool": b"#!/bin/sh\necho $1\n"}
    source = (
        "import subprocess; print(open('a/b.txt').read(), subprocess.run(['./tool', 'x'], capture_output=True).stdout)"
    )
    assert pool.run(Program(source=source, files=files), LIMITS).stdout == "é b'x\\n'\n".encode()


def test_without_isolation_the_pool_works_too() -> None:
    with Pool(2) as pool:
        with pytest.raises(IngotError, match="cannot be isolated"):
            pool.run(python("print(1)"), LIMITS, "process")
        unsafe = replace(LIMITS, unsafe=True)
        assert pool.run(python("print(1)"), unsafe, "process").stdout == b"1\n"
        stopped = pool.run(
            python("import os, time; os.fork(); time.sleep(60)"), replace(unsafe, seconds=0.5), "process"
        )
        assert stopped.ended_by == "time"
        (worker,) = pool._free
        assert len(memory.descendants(worker.process.pid)) == 1


def test_it_works_for_other_users_than_root() -> None:
    """The way by user namespaces, which root does not take: as nobody, with the Python of the system."""
    setpriv, python3 = shutil.which("setpriv"), "/usr/bin/python3"
    package = Path(pool_module.__file__).parents[2]
    if os.getuid() != 0 or setpriv is None or not os.access(python3, os.X_OK) or isolation() == "process":
        pytest.skip("needs root, setpriv, bubblewrap and the Python of the system")
    source = (
        f"import sys; sys.path.insert(0, {str(package)!r})\n"
        "from ingot.sandbox.run import run\nfrom ingot.sandbox.program import Limits, Program\n"
        'source = \'import os\\nprint(os.getuid(), open("/proc/self/status").read().count("\\t0000000000000000"))\\n'
        'try: open("/mine", "w")\\nexcept OSError as error: print(error.errno)\\n'
        "try:\\n    while True: os.fork() or os._exit(os.wait)\\nexcept OSError as error: print(error.errno)'\n"
        "outcome = run(Program(source=source), Limits(20, processes=20))\n"
        "print(outcome.isolation, outcome.stdout, outcome.stderr)"
    )
    user = [setpriv, "--reuid", "65534", "--regid", "65534", "--clear-groups"]
    probe = subprocess.run(
        [*user, python3, "-c", f"import os; os.stat({str(package / 'ingot')!r})"], capture_output=True, timeout=60
    )
    if probe.returncode != 0:
        pytest.skip("nobody may not read the package")
    done = subprocess.run([*user, python3, "-B", "-c", source], capture_output=True, text=True, timeout=60)
    assert done.stdout.startswith("bubblewrap b'65534 "), done
    assert "\\n30\\n" in done.stdout, done


def test_a_pool_gives_what_a_run_gives(pool: Pool) -> None:
    program = Program(source="print(sum(range(10)))")
    one, other = run(program, LIMITS), pool.run(program, LIMITS)
    assert replace(one, seconds=0) == replace(other, seconds=0)
