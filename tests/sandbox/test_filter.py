"""The filter of system calls, run step by step for both machines, and what ordinary programs do under it."""

from __future__ import annotations

import re
import struct
import sys
from pathlib import Path

import pytest

from ingot.sandbox.inside import kernel
from ingot.sandbox.pool import Pool
from ingot.sandbox.program import Limits, Program
from tests.slow import slow

HEADERS = {
    "x86_64": Path("/usr/include/x86_64-linux-gnu/asm/unistd_64.h"),
    "aarch64": Path("/usr/include/asm-generic/unistd.h"),
}
ALLOWED, KILLED = "allowed", "killed"
I386 = 0x40000003


def decide(machine: str, number: int, *arguments: int, architecture: int | None = None) -> str | int:
    """What the kernel's machine makes of a call: allowed, killed, or the number of an error."""
    column, own = kernel.MACHINES[machine]
    record = struct.pack("=IIQ6Q", number, architecture or own, 0, *(*arguments, *[0] * (6 - len(arguments))))
    steps = list(struct.iter_unpack("HBBI", kernel._program(column, own)))
    at = loaded = 0
    while True:
        code, if_true, if_false, value = steps[at]
        at += 1
        match code:
            case 0x20:  # load a word
                (loaded,) = struct.unpack_from("=I", record, value)
            case 0x54:  # and
                loaded &= value
            case 0x06:  # return
                kind = value & 0xFFFF0000
                return {0x7FFF0000: ALLOWED, 0x80000000: KILLED}.get(kind, value & 0xFFFF)
            case 0x15 | 0x35 | 0x45:  # equal, at least, any bit
                true = {0x15: loaded == value, 0x35: loaded >= value, 0x45: bool(loaded & value)}[code]
                at += if_true if true else if_false
            case _:
                raise AssertionError(f"{code:#x} is no step")


@pytest.fixture(params=["x86_64", "aarch64"])
def machine(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def numbers_of(machine: str) -> dict[str, int]:
    if not HEADERS[machine].exists():
        pytest.skip(f"{HEADERS[machine]} is not there: apt install linux-libc-dev")
    found = re.findall(r"#define __NR(?:3264)?_(\w+)\s+(\d+)\n", HEADERS[machine].read_text())
    return {name: int(number) for name, number in found}


def test_the_numbers_are_those_of_the_kernels_headers(machine: str) -> None:
    numbers, column = numbers_of(machine), kernel.MACHINES[machine][0]
    calls = kernel.REFUSED | kernel.ABSENT
    calls |= {name: getattr(kernel, name.upper()) for name in ("clone", "socket", "mmap", "fcntl", "setsockopt")}
    ours = {name: pair[column] for name, pair in calls.items() if pair[column] is not None}
    assert ours == {name: numbers[name] for name in ours}
    assert {name for name in calls if name not in ours} <= {"inotify_init"}


def test_calls_are_refused_and_all_others_allowed(machine: str) -> None:
    numbers = numbers_of(machine)
    refused = {name for name, number in numbers.items() if decide(machine, number) != ALLOWED}
    assert refused - {"socket"} == (kernel.REFUSED | kernel.ABSENT).keys() & numbers.keys()
    assert {decide(machine, numbers[name]) for name in ("ptrace", "mount", "bpf", "setns")} == {1}
    assert {decide(machine, numbers[name]) for name in ("memfd_create", "shmget", "flock", "vmsplice", "clone3")} == {
        38
    }


def test_calls_of_other_architectures_do_not_pass(machine: str) -> None:
    """Their numbers mean other calls: 319 of i386 is no memfd_create."""
    for other in (I386, *(number for _, number in kernel.MACHINES.values())):
        if other != kernel.MACHINES[machine][1]:
            assert decide(machine, 20, architecture=other) == KILLED
    if machine == "x86_64":
        assert [decide(machine, 0x40000000 + number) for number in (0, 39, 319, 520, 547)] == [38] * 5


def test_arguments_decide(machine: str) -> None:
    column = kernel.MACHINES[machine][0]
    socket, clone, mmap, fcntl, setsockopt = (
        getattr(kernel, name)[column] for name in ("SOCKET", "CLONE", "MMAP", "FCNTL", "SETSOCKOPT")
    )
    assert [decide(machine, socket, family) for family in (1, 2, 10, 16, 17, 38, 40)] == [ALLOWED] * 3 + [97] * 4
    assert decide(machine, clone, 0x11) == decide(machine, clone, 0x003D0F00) == ALLOWED  # fork, a thread
    assert {decide(machine, clone, 0x11 | flag) for flag in (0x10000000, 0x20000, 0x40000000, 0x80)} == {1}
    private, of_a_file, shared = 0x22, 0x01, 0x21
    assert [decide(machine, mmap, 0, 4096, 3, flags) for flags in (private, of_a_file, 0x4022)] == [ALLOWED] * 3
    assert {decide(machine, mmap, 0, 4096, 3, flags) for flags in (shared, 0x23, 0x40021, shared | 0x4000)} == {12}
    assert {decide(machine, fcntl, 3, command) for command in (0, 1, 2, 3, 4, 5, 6, 7, 1030, 1031)} == {ALLOWED}
    assert {decide(machine, fcntl, 3, command) for command in (1024, 1026, 1040)} == {1}
    assert {decide(machine, setsockopt, 3, 1, option) for option in (7, 8, 32, 33)} == {0}
    assert {decide(machine, setsockopt, 3, *one) for one in ((1, 2), (1, 15), (6, 1), (6, 7), (6, 8))} == {ALLOWED}


MULTIPROCESSING = """
import multiprocessing
from multiprocessing import shared_memory
def work(number, total, name):
    with total.get_lock(): total.value += number
    block = shared_memory.SharedMemory(name); block.buf[number] = number; block.close()
    return number * number
def initialise(*given): global shared; shared = given
def square(number): return work(number, *shared)
context = multiprocessing.get_context("fork")
total, block = context.Value("i", 0), shared_memory.SharedMemory(create=True, size=100_000)
with context.Pool(3, initialise, (total, block.name)) as workers: squares = workers.map(square, range(10))
queue = context.Queue(); child = context.Process(target=queue.put, args=("sent",)); child.start()
print(squares[-1], total.value, bytes(block.buf[:4]), queue.get(timeout=20)); child.join(); block.close(); block.unlink()
"""
ASYNCIO = """
import asyncio
async def serve(reader, writer):
    writer.write((await reader.readline()).upper()); await writer.drain(); writer.close()
async def ask(port, text):
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(text + b"\\n"); answer = await reader.readline(); writer.close(); return answer
async def main():
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    answers = await asyncio.gather(*(ask(port, b"n%d" % number) for number in range(40)))
    process = await asyncio.create_subprocess_exec("/bin/echo", "said", stdout=-1)
    print(len(answers), answers[7], (await process.communicate())[0])
asyncio.run(main())
"""
FILES = """
import fcntl, mmap, socket, sqlite3, subprocess, tempfile
base = sqlite3.connect("base.db"); base.execute("create table t (x)"); base.execute("insert into t values (4)"); base.commit()
with open("file", "w+b") as file:
    file.write(bytes(5000)); file.flush(); fcntl.lockf(file, fcntl.LOCK_EX)
    with mmap.mmap(file.fileno(), 0) as mapped: mapped[:2] = b"ab"
scratch = mmap.mmap(-1, 10, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS); scratch[:1] = b"z"
pair = socket.socketpair(); pair[0].setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 2**20); pair[0].send(b"x" * 100_000)
zeros = subprocess.run("head -c 3 /dev/zero | od -An -tx1; dd if=/dev/zero of=z bs=1k count=2 2>&1 | grep -c copied", shell=True,
                       capture_output=True, text=True).stdout.split()
print(list(base.execute("select x from t")), open("file", "rb").read(2), len(pair[1].recv(10**6)), zeros, scratch[:1])
"""
C = """
import subprocess
open("a.c", "w").write('#include <stdio.h>\\nint main() { puts("compiled"); }')
subprocess.run(["gcc", "-O2", "-o", "a", "a.c"], check=True)
print(subprocess.run(["./a"], capture_output=True, text=True).stdout.strip())
"""
PYTEST = """
import subprocess, sys
open("test_it.py", "w").write("import pytest\\ndef test(tmp_path): (tmp_path / 'x').touch()\\ndef test_no(): assert 1 == 2\\n")
done = subprocess.run([sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"], capture_output=True, text=True)
print(done.stdout.splitlines()[-1].split(" in ")[0], done.stderr[-500:])
"""
NUMPY = """
import numpy
from concurrent.futures import ThreadPoolExecutor
a = numpy.arange(10_000, dtype=float).reshape(100, 100)
m = numpy.memmap("m", dtype=float, mode="w+", shape=(100, 100)); m[:] = a @ a; m.flush()
with ThreadPoolExecutor(4) as threads: print(list(threads.map(lambda n: float(m[n, 0]), range(2))), numpy.linalg.matrix_rank(a))
"""
TAIL = """
import subprocess
open("log", "w").write("first\\n")
tail = subprocess.Popen(["tail", "-n", "1", "-s", "0.05", "-f", "log"], stdout=subprocess.PIPE, stderr=-3, text=True)
first = tail.stdout.readline()
with open("log", "a") as file: file.write("second\\n")
print(first.strip(), tail.stdout.readline().strip()); tail.kill()
"""
ORDINARY = {
    "multiprocessing": (MULTIPROCESSING, "81 45 b'\\x00\\x01\\x02\\x03' sent"),
    "asyncio": (ASYNCIO, "40 b'N7\\n' b'said\\n'"),
    "files": (FILES, "[(4,)] b'ab' 100000 ['00', '00', '00', '1'] b'z'"),
    "a C compiler": (C, "compiled"),
    "pytest": (PYTEST, "1 failed, 1 passed"),
    "numpy": (NUMPY, "[32835000.0, 82335000.0] 2"),
    "tail": (TAIL, "first second"),
}


@pytest.mark.parametrize("name", [slow(name) if name == "pytest" else name for name in ORDINARY])
def test_ordinary_programs_go_on_working(pool: Pool, name: str) -> None:
    source, said = ORDINARY[name]
    environment = {"PYTHONPATH": ":".join(path for path in sys.path if "site-packages" in path)}
    limits = Limits(60.0, memory=2**30, address_space=2**33, cpu=60)
    outcome = pool.run(Program(source=source, environment=environment | {"PATH": "/usr/bin:/bin"}), limits)
    assert (outcome.stdout.decode().strip(), outcome.exit) == (said, 0), outcome
