"""The doctor's checks of the machine: packages, Python, torch, memory, disk."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import platform
import shutil
import sys
from pathlib import Path

from ingot.planner.check import Check
from ingot.planner.hardware import GIB
from ingot.planner.plan import usable_cores
from ingot.train.hardware import cpu_name
from ingot.workspace.packages import install_extra, pip_install

PYTHON_NEEDED = (3, 11)
PACKAGES = ("torch", "numpy", "safetensors", "tokenizers", "pydantic", "yaml", "typer", "rich", "jinja2", "pyarrow")
TORCH_TESTED = ((2, 11), (2, 14))
MEMORY_WANTED = 2 * 1024**3
DISK_WANTED = 2 * 1024**3
BF16_FLAGS = frozenset({"bf16", "avx512_bf16", "amx_bf16"})


def check_python() -> Check:
    """The version of Python."""
    text = f"{platform.python_version()} on {platform.system()} {platform.machine()}"
    if sys.version_info >= PYTHON_NEEDED:
        return Check("python", "ok", text)
    return Check("python", "fail", text, "install Python {}.{} or newer".format(*PYTHON_NEEDED))


def check_packages() -> Check:
    """The packages that Ingot needs, looked up without importing them."""
    missing = [name for name in PACKAGES if importlib.util.find_spec(name) is None]
    if missing:
        return Check("packages", "fail", f"missing: {', '.join(missing)}", install_extra(""))
    return Check("packages", "ok", f"all {len(PACKAGES)} are there")


def check_torch() -> Check:
    """The version of torch, and what it computes on."""
    if importlib.util.find_spec("torch") is None:
        return Check("torch", "fail", "not installed", pip_install("torch>=2.11,<2.14"))
    import torch

    devices = [torch.cuda.get_device_name(number) for number in range(torch.cuda.device_count())]
    where = ", ".join(devices) if devices else f"{cpu_name()} of {usable_cores()} cores"
    text = f"{torch.__version__} · {where}"
    version = tuple(int(part) for part in importlib.metadata.version("torch").split("+")[0].split(".")[:2])
    if TORCH_TESTED[0] <= version < TORCH_TESTED[1]:
        return Check("torch", "ok", text)
    return Check("torch", "warn", f"{text} (tested: 2.11 to 2.13)", pip_install("torch==2.13.0"))


def check_bf16(cpuinfo: Path = Path("/proc/cpuinfo")) -> Check:
    """Whether the CPU multiplies bfloat16 numbers itself; emulated, it is a hundred times slower than float32."""
    flags: set[str] = set()
    if cpuinfo.exists():
        for line in cpuinfo.read_text(encoding="utf-8", errors="replace").split("\n"):
            if line.lower().startswith(("flags", "features")):
                flags |= set(line.partition(":")[2].split())
    found = sorted(flags & BF16_FLAGS)
    if found:
        return Check("bfloat16", "ok", f"the CPU has {', '.join(found)}")
    return Check("bfloat16", "ok", "the CPU has none (emulated, slow): float32 is used")


def check_memory() -> Check:
    """The memory of the machine."""
    total = memory_bytes()
    if total is None:
        return Check("memory", "warn", "cannot be read on this system")
    text = f"{total / GIB:.1f} GiB"
    if total >= MEMORY_WANTED:
        return Check("memory", "ok", text)
    return Check("memory", "warn", text, "the quickstart wants 2 GiB: lower micro_batch_tokens if it is killed")


def memory_bytes() -> int | None:
    """The memory this process may have: the machine's, or less in a container."""
    if not hasattr(os, "sysconf") or "SC_PHYS_PAGES" not in os.sysconf_names:
        return None
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limit = Path("/sys/fs/cgroup/memory.max")
    text = limit.read_text(encoding="utf-8").strip() if limit.exists() else "max"
    return min(total, int(text)) if text.isdecimal() else total


def check_disk(runs: Path) -> Check:
    """The free space below the runs folder, and whether it can be written."""
    folder = existing_parent(runs)
    free = shutil.disk_usage(folder).free
    text = f"{free / GIB:.1f} GiB free below {runs}"
    if not os.access(folder, os.W_OK):
        return Check("disk", "fail", f"{folder} cannot be written", "give another folder with --runs")
    if free >= DISK_WANTED:
        return Check("disk", "ok", text)
    return Check("disk", "warn", text, "make room, or give another folder with --runs")


def existing_parent(path: Path) -> Path:
    """The nearest folder above `path` that exists."""
    path = path.absolute()
    while not path.exists():
        path = path.parent
    return path


def check_chromium() -> Check:
    """The browser that the tests of the report use; nothing else needs it."""
    found = next((name for name in ("chromium-headless-shell", "chromium") if shutil.which(name)), None)
    if found is not None:
        return Check("chromium", "ok", f"{found} (only tests use it)")
    return Check("chromium", "warn", "not installed (only tests use it)", "apt install chromium")
