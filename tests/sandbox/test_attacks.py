"""Attacks on the sandbox and on the code verifier: none gets out, hurts a neighbour, outlives its run or earns a reward."""

from __future__ import annotations

import os
import re
import socket
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from ingot.envs.verifiers.code.tests import Asserts, Calls, FunctionCall
from ingot.envs.verifiers.code.verify import Reward, verify
from ingot.sandbox import memory
from ingot.sandbox.notebook import Notebook
from ingot.sandbox.pool import Pool
from ingot.sandbox.program import Limits, Program
from tests.sandbox.cheats import CHEATS, HONEST
from tests.sandbox.escapes import ESCAPES, HEAD

LIMITS = Limits(30.0, memory=3 * 10**8, folder=2 * 10**7, inodes=500, output=10**6, processes=30)
SOON = replace(LIMITS, seconds=1.2, cpu=0)  # for attacks that go on until they are stopped
OWN_PROCESSES = 2  # of a free worker: bubblewrap and the zygote


@pytest.fixture(scope="module")
def neighbour(pool: Pool) -> Iterator[Notebook]:
    """A session that runs beside the attacks, with a process, a file and a socket of its own."""
    with Notebook(Limits(20.0)) as notebook:
        notebook.run(
            "import socket, subprocess\n"
            "server = socket.socket(socket.AF_UNIX); server.bind('\\0neighbour'); server.listen()\n"
            "child = subprocess.Popen(['/bin/sleep', '1000'])\n"
            "open('mine', 'w').write('precious')\n"
            "def look(): return child.poll(), open('mine').read(), server.getsockname()"
        )
        yield notebook


@pytest.fixture(scope="module")
def machine() -> Iterator[dict[str, object]]:
    """Things of the machine that a program must not reach."""
    abstract = f"ingot-{os.getpid()}"
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.socket(socket.AF_UNIX) as unix,
        tempfile.NamedTemporaryFile("w", dir=Path.home(), prefix=".ingot-secret-") as secret,
    ):
        unix.bind(f"\0{abstract}")
        unix.listen()
        yield {"port": server.getsockname()[1], "abstract": abstract, "secret": secret.name, "pid": os.getpid()}


def fill_in(source: str, machine: dict[str, object]) -> str:
    for name, value in machine.items():
        source = source.replace(f"{{{name}}}", str(value))
    return source


def check_aftermath(pool: Pool, neighbour: Notebook) -> None:
    """The neighbour is well, and nothing is left of the program."""
    assert neighbour.run("look()").output == "(None, 'precious', b'\\x00neighbour')\n"
    for worker in pool._free:
        end = time.monotonic() + 10
        while len(left := memory.descendants(worker.process.pid)) > OWN_PROCESSES and time.monotonic() < end:
            time.sleep(0.02)
        assert len(left) == OWN_PROCESSES


@pytest.mark.parametrize("name", ESCAPES)
def test_no_escape(name: str, pool: Pool, neighbour: Notebook, machine: dict[str, object]) -> None:
    expected, source = ESCAPES[name]
    limits = SOON if "time" in expected else LIMITS
    outcome = pool.run(Program(source=HEAD + fill_in(source, machine)), limits)
    said = f"{outcome.ended_by} {outcome.exit} {outcome.stdout.decode('utf-8', 'replace')}".rstrip("\n")
    assert re.match(expected, said, re.DOTALL), (said[:300], outcome.stderr.decode("utf-8", "replace")[-1000:])
    check_aftermath(pool, neighbour)


def test_programs_leave_nothing_to_the_next_one(pool: Pool) -> None:
    leave = "for folder in ('.', '/tmp', '/dev/shm'): open(f'{folder}/left', 'w').write('x')\nprint(True)"
    find = "import os\nprint([os.path.exists(f'{folder}/left') for folder in ('.', '/tmp', '/dev/shm')])"
    assert pool.run(Program(source=leave), LIMITS).stdout == b"True\n"
    for _ in range(pool.workers):
        assert pool.run(Program(source=find), LIMITS).stdout == b"[False, False, False]\n"


def test_page_tables_count_where_addresses_are_many(pool: Pool) -> None:
    """Pages that are only read take no memory, and the tables that name them do: 4 KiB for each 2 MiB."""
    source = (
        "import ctypes\nlibrary = ctypes.CDLL(None)\nlibrary.mmap.restype = ctypes.c_void_p\n"
        "at = library.mmap(None, ctypes.c_size_t(2**38), 1, 0x4022, -1, ctypes.c_long(0))\n"
        "for number in range(2**17): ctypes.c_char.from_address(at + number * 2**21).value\nprint('all')"
    )
    outcome = pool.run(Program(source=source), Limits(20.0, memory=2**26, address_space=2**40))
    assert (outcome.ended_by, outcome.stdout) == ("memory", b"")


ASSERTS = Asserts("assert f(3) == 9\nassert f(-4) == 16\nassert all(map(f, [1, 2]))\nassert isinstance(f(5), int)")
CALLS = Calls("f", [FunctionCall([3], 9), FunctionCall([-4], 16)])
KINDS: tuple[tuple[Asserts | Calls, Reward], ...] = ((ASSERTS, "all"), (CALLS, "share"))


def test_an_honest_program_earns_its_reward(pool: Pool) -> None:
    for tests in (ASSERTS, CALLS):
        assert verify(HONEST, tests, pool, Limits(20.0)).reward == 1.0


@pytest.mark.parametrize("name", CHEATS)
def test_no_reward(name: str, pool: Pool, neighbour: Notebook) -> None:
    limits = Limits(2.0, memory=3 * 10**8, output=10**6)
    for tests, reward in KINDS:
        verdict = verify(CHEATS[name], tests, pool, limits, reward)
        assert verdict.reward == 0.0, verdict
    check_aftermath(pool, neighbour)
