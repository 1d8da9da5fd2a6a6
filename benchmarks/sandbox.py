"""How fast trivial programs run: the warm pool beside a sandbox for each program, bare bubblewrap, and a plain subprocess.

    python benchmarks/sandbox.py --programs 400
    python benchmarks/sandbox.py --verifiers /path/to/venv/bin/python     # also the local runtime of `verifiers`, from that venv

Every contender runs `print(6 * 7)` from as many threads as there are processors and checks the output. Reported are programs
a second (the best of some rounds: the machine may be shared) and processor milliseconds a program, of this process and of all
that it started, which other work on the machine changes less. Processes that bubblewrap kills are counted nowhere by the kernel,
so contenders that start it each time have no such number. What a contender leaves out is in its line.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from ingot.sandbox import memory
from ingot.sandbox.pool import Pool
from ingot.sandbox.program import Limits, Program
from ingot.sandbox.run import isolation, run

SOURCE, OUTPUT = "print(6 * 7)", b"42\n"
LIMITS = Limits(20.0)
Execute = Callable[[], bytes]
VERIFIERS = """
import asyncio, json, os, resource, sys, time
from verifiers.v1.runtimes.subprocess import SubprocessConfig, SubprocessRuntime
count, width, rounds = map(int, sys.argv[1:4])
def used():
    return sum(sum(resource.getrusage(who)[:2]) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
async def one(runtime):
    result = await runtime.run([sys.executable, "-I", "-S", "-c", "print(6 * 7)"], {})
    assert result.stdout.strip() == "42", result
async def main():
    runtime = SubprocessRuntime(SubprocessConfig())
    await runtime.start()
    rates, before = [], used()
    gate = asyncio.Semaphore(width)
    async def limited():
        async with gate: await one(runtime)
    for _ in range(rounds):
        began = time.perf_counter()
        await asyncio.gather(*(limited() for _ in range(count)))
        rates.append(count / (time.perf_counter() - began))
    print(json.dumps([max(rates), 1000 * (used() - before) / (count * rounds)]))
    await runtime.stop()
asyncio.run(main())
"""


@contextlib.contextmanager
def warm_pool(width: int) -> Iterator[tuple[Execute, Callable[[], float]]]:
    """Our pool; the processor time of its workers is read from /proc, because they live on."""
    with Pool(width) as pool:
        yield lambda: pool.run(Program(source=SOURCE), LIMITS).stdout, lambda: sum(map(_used, _processes(pool)))


@contextlib.contextmanager
def started(execute: Execute, *, counted: bool = False) -> Iterator[tuple[Execute, Callable[[], float]]]:
    """A contender whose processes all end: their time, where it is counted, is that of this process's children."""
    yield execute, lambda: sum(resource.getrusage(resource.RUSAGE_CHILDREN)[:2]) if counted else float("nan")


def _processes(pool: Pool) -> list[int]:
    return [number for worker in pool._free for number in memory.descendants(worker.process.pid)]


def _used(number: int) -> float:
    """Processor seconds of a process and of its children that have ended."""
    fields = Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


def subprocess_output(*command: str) -> bytes:
    """What a command prints."""
    return subprocess.run(command, capture_output=True, check=True, timeout=60).stdout


def measure(
    contender: contextlib.AbstractContextManager[tuple[Execute, Callable[[], float]]],
    count: int,
    width: int,
    rounds: int,
) -> tuple[float, float]:
    """Programs a second in the best round, and processor milliseconds a program over all rounds."""
    with contender as (execute, used), ThreadPoolExecutor(width) as threads:
        assert all(threads.map(lambda _: execute() == OUTPUT, range(2 * width)))
        rates, before = [], used() + time.process_time()
        for _ in range(rounds):
            began = time.perf_counter()
            assert all(threads.map(lambda _: execute() == OUTPUT, range(count)))
            rates.append(count / (time.perf_counter() - began))
        return max(rates), 1000 * (used() + time.process_time() - before) / (count * rounds)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--programs", type=int, default=200, help="programs in a round")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--verifiers", metavar="PYTHON", help="a Python in which the package verifiers is installed")
    options = parser.parse_args()
    width = len(os.sched_getaffinity(0))
    python = (sys.executable, "-I", "-S", "-c", SOURCE)
    bubblewrap = (
        "bwrap", "--unshare-all", "--die-with-parent", "--new-session", "--ro-bind", "/", "/", "--proc", "/proc", "--dev", "/dev",
        "--tmpfs", "/tmp",
    )  # fmt: skip
    print(f"{width} processors, isolation {isolation()}, load {os.getloadavg()[0]:.1f}")
    print(f"{'':44} {'programs/s':>10} {'cpu ms':>8}")
    for name, contender in (
        ("pool of warm sandboxes", warm_pool(width)),
        ("a sandbox for each program", started(lambda: run(Program(source=SOURCE), LIMITS).stdout)),
        ("bare bubblewrap (no limits)", started(lambda: subprocess_output(*bubblewrap, *python))),
        ("plain subprocess (no isolation, no limits)", started(lambda: subprocess_output(*python), counted=True)),
    ):
        rate, cpu = measure(contender, options.programs, width, options.rounds)
        print(f"{name:44} {rate:10.1f} {'-' if math.isnan(cpu) else f'{cpu:.2f}':>8}", flush=True)
    if options.verifiers is None:
        print("verifiers: not measured (give --verifiers PYTHON)")
        return
    command = (options.verifiers, "-c", VERIFIERS, str(options.programs), str(width), str(options.rounds))
    rate, cpu = json.loads(subprocess_output(*command))
    print(f"{'verifiers, local runtime (no isolation)':44} {rate:10.1f} {cpu:8.2f}")


if __name__ == "__main__":
    main()
