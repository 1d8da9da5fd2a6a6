"""flash-linear-attention as a peer in benchmarks/mixers.py: it tunes itself, and its kernels are compiled beforehand.

Triton compiles a kernel when it is first launched, a tuned one in all its configurations, one after the other: minutes for KDA.
Here programs of their own, one for each processor, go through the same calls, compile a share of the kernels into Triton's cache
on disk and launch nothing. Threads would wait for each other: half of the compiler is Python.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

from benchmarks.mixer_cases import FAILURES
from ingot.kernels.linear import fla_tuning

MODULES = (*fla_tuning.MODULES, "common.chunk_h", "common.fused_chunk", "simple_gla.chunk")
MOST_PROGRAMS = 16
SECONDS = 150  # what is not compiled by then is compiled when it is launched


@contextmanager
def as_published() -> Iterator[None]:
    """flash-linear-attention without the check of issue 640, its kernels tuned among all their configurations."""
    from fla.ops.common import chunk_o
    from triton.testing import do_bench

    from ingot.kernels.linear import delta_rule_kernel

    given = fla_tuning.all_configurations()
    kernels = fla_tuning.tuned_kernels(MODULES)
    before = {name: kernel.configs for name, kernel in kernels.items()}
    for name, kernel in kernels.items():
        kernel.configs = [config for config in given.get(name, kernel.configs) if fits_registers(config)]
        kernel.prune_configs = partial(compile_together, kernel)
        kernel.do_bench = partial(do_bench, warmup=5, rep=30)  # milliseconds a configuration; 125 unless told
    unchecked = patch.object(chunk_o, "IS_NVIDIA_HOPPER", False)
    unfixed = patch.object(delta_rule_kernel, "fix_configurations", lambda *_, **__: None)
    try:
        with unchecked, unfixed:
            yield
    finally:
        for name, kernel in kernels.items():
            kernel.configs = before[name]
            del kernel.prune_configs, kernel.do_bench


def fits_registers(config: Any) -> bool:
    """Whether a tile of sums takes at most half of its warps' registers (32 KB a warp).

    The library offers 128 × 128 sums to a single warp, too: that takes a minute to compile, and most of it is spilled.
    """
    sums = 4 * config.kwargs.get("BK", 1) * config.kwargs.get("BV", 1)
    return bool(sums <= config.num_warps * 2**14)


def tuning(name: str, tuned: bool) -> AbstractContextManager[None]:
    return as_published() if name == "fla" or tuned else nullcontext()


def compile_together(kernel: Any, given: dict[str, Any]) -> list[Any]:
    """The configurations that Triton's tuner is about to time, compiled by threads if they are not on the disk yet."""
    from triton.runtime._async_compile import AsyncCompileMode
    from triton.runtime.autotuner import Autotuner

    configs: list[Any] = Autotuner.prune_configs(kernel, given)
    rest = {name: value for name, value in given.items() if name != "warmup"}
    with ThreadPoolExecutor(os.cpu_count()) as threads, AsyncCompileMode(threads, ignore_errors=True):
        for config in configs:  # one that cannot be compiled fails again when it is timed, and is left out there
            kernel.fn.warmup(*kernel.nargs.values(), **rest, **config.all_kwargs())
    return configs


def chosen_configurations() -> dict[str, list[str]]:
    """What the tuners have chosen so far."""
    kernels = fla_tuning.tuned_kernels(MODULES)
    return {name: sorted({str(each) for each in kernel.cache.values()}) for name, kernel in kernels.items()}


def compile_beforehand(arguments: list[str]) -> None:
    """By programs of `benchmarks/mixers.py --compile i/n` with these arguments, at the same time."""
    began, count = time.perf_counter(), max(1, min(MOST_PROGRAMS, os.cpu_count() or 1))
    script = Path(__file__).with_name("mixers.py")
    command = [sys.executable, "-W", "ignore", str(script), *arguments, "--compile"]
    programs = [
        subprocess.Popen([*command, f"{number}/{count}"], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        for number in range(count)
    ]
    failures = []
    for program in programs:
        try:
            said = program.communicate(timeout=max(1.0, began + SECONDS - time.perf_counter()))[1]
        except subprocess.TimeoutExpired:
            program.kill()
            said = program.communicate()[1] + "\nout of time"
        if program.returncode:
            failures.append(said.strip()[-300:])
    took = time.perf_counter() - began
    print(f"compiled by {count} programs in {took:.0f} s, {len(failures)} failed {failures[:1] or ''}", flush=True)


@contextmanager
def only_compiling(number: int = 0, count: int = 1) -> Iterator[None]:
    """Triton launches nothing, and compiles every `count`-th kernel that it is asked for, a tuned one in all configurations."""
    from triton.runtime.autotuner import Autotuner
    from triton.runtime.jit import JITFunction

    compile_and_launch, seen = JITFunction.run, dict[str, int]()

    def compile_share(self: Any, *given: Any, grid: Any, warmup: bool, **options: Any) -> None:
        variable = {each.name for each in self.params if not each.is_constexpr}
        fixed = sorted((name, repr(value)) for name, value in options.items() if name not in variable)
        place = seen.setdefault(f"{self.fn.__module__}.{self.fn.__name__} {fixed}", len(seen))
        if place % count == number:
            try:
                compile_and_launch(self, *given, grid=grid, warmup=True, **options)
            except FAILURES:  # it fails again when it is launched
                return

    def try_all(self: Any, *given: Any, **options: Any) -> None:
        self.nargs = dict(zip(self.arg_names, given, strict=False))
        for config in Autotuner.prune_configs(self, options):
            self.fn.run(*given, **options, **config.all_kwargs())

    with patch.object(JITFunction, "run", compile_share), patch.object(Autotuner, "run", try_all):
        yield


def compile_by_threads(runs: list[Callable[[], object]]) -> None:
    """What these calls would launch; for a few kernels, where programs of their own would take longer to start."""
    from triton.runtime._async_compile import AsyncCompileMode

    with (
        ThreadPoolExecutor(os.cpu_count()) as threads,
        AsyncCompileMode(threads, ignore_errors=True),
        only_compiling(),
    ):
        for run in runs:
            run()
