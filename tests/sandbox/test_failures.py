"""Programs that would rather have failed than be wrong: none can make the sandbox fail, for a failed episode leaves its group."""

from __future__ import annotations

import pytest

from ingot.envs.verifiers.code.programs import LANGUAGES
from ingot.envs.verifiers.code.tests import Asserts, Calls, FunctionCall, InputOutput
from ingot.envs.verifiers.code.verify import verify
from ingot.sandbox.pool import Pool
from ingot.sandbox.program import Limits, Program
from ingot.workspace.errors import IngotError
from tests.slow import slow

LIMITS = Limits(5.0, memory=3 * 10**8, processes=30)
TESTS: dict[str, Calls | InputOutput | Asserts] = {
    "calls": Calls("f", [FunctionCall([3], 9)]),
    "asserts": Asserts("assert f(3) == 9"),
    "inputs": InputOutput([("3\n", "9")]),
}
ATTACKS = {
    "SIGUSR1 to the first process, and exit": """import os, signal
os.kill(1, signal.SIGUSR1); os._exit(0)""",
    "SIGUSR1 from a child that lives on": """import os, signal, time
signal.signal(signal.SIGINT, signal.SIG_IGN)
if os.fork() == 0:
    while True: os.kill(1, signal.SIGUSR1)
time.sleep(0.05); os._exit(0)""",
    "every signal to the first process": """import os
for n in range(1, 65):
    try: os.kill(1, n)
    except OSError: pass
os._exit(0)""",
    "SIGINT to the first process at once": """import os, signal
os.kill(1, signal.SIGINT); os._exit(0)""",
    "signals to all": """import os
for n in (10, 12, 15, 9):
    try: os.kill(-1, n)
    except OSError: pass
os._exit(0)""",
    "no memory for the first process": """import os, resource, signal
resource.prlimit(1, resource.RLIMIT_AS, (1, 1)); resource.prlimit(1, resource.RLIMIT_DATA, (1, 1))
signal.signal(signal.SIGINT, signal.SIG_IGN)
for _ in range(3000): os.kill(1, signal.SIGUSR1)
os._exit(0)""",
    "no processor time for the first process": """import os, resource, signal
resource.prlimit(1, resource.RLIMIT_CPU, (0, 0))
signal.signal(signal.SIGINT, signal.SIG_IGN)
for _ in range(30000): os.kill(1, signal.SIGUSR1)
os._exit(0)""",
    "no descriptors, files or stack for the first process": """import os, resource, signal
for kind in (resource.RLIMIT_NOFILE, resource.RLIMIT_FSIZE, resource.RLIMIT_NPROC, resource.RLIMIT_STACK):
    resource.prlimit(1, kind, (0, 0))
os._exit(0)""",
    "the first process waits for all others": """import os
os.sched_setscheduler(1, os.SCHED_IDLE, os.sched_param(0)); os.setpriority(os.PRIO_PROCESS, 1, 19)
for _ in range(8): os.fork()
while True: pass""",
    "all are stopped": """import os, signal
os.kill(-1, signal.SIGSTOP); os.kill(1, signal.SIGSTOP); os._exit(0)""",
    "every descriptor taken": """import os
kept = []
try:
    while True: kept.append(os.open('/dev/null', 0))
except OSError: pass
os._exit(0)""",
    "every descriptor closed": """import os
os.closerange(0, 300); os._exit(0)""",
    "garbage on every descriptor": """import os
for n in range(1, 100):
    try: os.write(n, b'error 1\\nstatus 0\\n' + os.urandom(3000))
    except OSError: pass
os._exit(0)""",
    "garbage in its own input": """import os
try:
    f = os.open('/proc/self/fd/0', os.O_WRONLY | os.O_NONBLOCK); os.write(f, b'k' * 60000)
except OSError: pass
os._exit(0)""",
    "it reads its own output": """import os, threading
try: r = os.open('/proc/self/fd/1', os.O_RDONLY | os.O_NONBLOCK)
except OSError: os._exit(0)
def read():
    while True:
        try: os.read(r, 65536)
        except OSError: pass
for _ in range(3): threading.Thread(target=read, daemon=True).start()
for _ in range(30000): os.write(1, b'x')
os._exit(0)""",
    "every process taken": """import os, time
try:
    while True:
        if os.fork() == 0: time.sleep(60)
except OSError: pass
os._exit(0)""",
    "an exit code like bubblewrap's": """import os
os._exit(1)""",
    "only a child is left": """import os
if os.fork(): os._exit(0)
os.setsid(); os.kill(1, 10); os.kill(1, 10)""",
    "namespaces in flight": """import os, socket, array
a, b = socket.socketpair()
for n in ('mnt', 'ipc', 'pid', 'net'):
    f = os.open(f'/proc/self/ns/{n}', 0)
    socket.send_fds(a, [b'x'], [f, a.fileno(), b.fileno()])
os._exit(0)""",
    "a program that is not UTF-8": "x = '\udc80'",
}


def check(pool: Pool, name: str, kind: str, times: int) -> None:
    for _ in range(times):
        verdict = verify(ATTACKS[name], TESTS[kind], pool, LIMITS)
        assert verdict.reward == 0.0 and verdict.problem, verdict


@pytest.mark.parametrize("name", ATTACKS)
def test_no_program_makes_the_sandbox_fail(pool: Pool, name: str) -> None:
    """Some are a race with the end of the program: one run in six failed."""
    check(pool, name, "calls", 1 if "all others" in name else 15 if "first process" in name else 2)


@pytest.mark.parametrize("kind", [slow(kind) for kind in TESTS])
@pytest.mark.parametrize("name", ATTACKS)
def test_no_program_makes_the_sandbox_fail_in_many_runs(pool: Pool, name: str, kind: str) -> None:
    check(pool, name, kind, 20 if "all others" in name else 50)


@pytest.mark.parametrize("language", [slow(one) if one == "java" else one for one in LANGUAGES])
def test_sources_that_are_no_text_are_wrong(pool: Pool, language: str) -> None:
    for source in ("\udc80", "\0", "\xff" * 100):
        try:
            verdict = verify(source, InputOutput([("3\n", "9")], language), pool, LIMITS)
        except IngotError as error:
            pytest.skip(error.problem)
        assert verdict.reward == 0.0 and verdict.problem, verdict


def test_what_is_compiled_to_more_than_its_folder_holds_is_wrong(pool: Pool) -> None:
    source = "char x[4000000] = {1};\nint main() { return x[0] - 1; }"
    limits = Limits(10.0, folder=10**6)
    verdict = verify(source, InputOutput([("", "")], "c"), pool, limits)
    assert (verdict.reward, verdict.problem) == (0.0, "its compiler is over the limit: output")
    assert verify(source, InputOutput([("", "")], "c"), pool, Limits(10.0)).reward == 1.0


def test_a_program_that_reads_its_own_output_is_an_outcome() -> None:
    """A pipe belongs to who made it: without isolation, or in a user namespace, the program may open its other end."""
    with Pool(2) as pool:
        limits = Limits(5.0, unsafe=True)
        for _ in range(3):
            outcome = pool.run(Program(source=ATTACKS["it reads its own output"]), limits, "process")
            assert (outcome.exit, outcome.ended_by) == (0, "exit")
