"""A look at the machine, and at a recipe, before time is spent: each check says ok, warn or fail, and what to do."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import platform
import shutil
import sys
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ingot.recipe.cost import stage_costs
from ingot.recipe.load import load_recipe
from ingot.recipe.plan import usable_cores
from ingot.recipe.read import Changes
from ingot.recipe.recipe import Recipe
from ingot.recipe.stages import STAGES, Table
from ingot.recipe.work import list_work
from ingot.workspace.errors import RecipeError

PYTHON_NEEDED = (3, 11)
PACKAGES = ("torch", "numpy", "safetensors", "tokenizers", "pydantic", "yaml", "typer", "rich", "jinja2", "pyarrow")
TORCH_TESTED = ((2, 11), (2, 14))
MEMORY_WANTED = 2 * 1024**3
DISK_WANTED = 2 * 1024**3
BF16_FLAGS = frozenset({"bf16", "avx512_bf16", "amx_bf16"})
CHECKPOINT_BYTES_PER_PARAMETER = 12  # float32 weights and two moments
CHECKPOINTS_HELD = 3  # two kept while the stage runs, one being written
GIB = 1024**3


@dataclass(frozen=True)
class Check:
    """One line of the doctor's report."""

    name: str
    status: str
    text: str
    fix: str | None = None

    def as_json(self) -> dict[str, Any]:
        """Plain values for `--json`."""
        return asdict(self)


def examine_machine(runs: Path = Path("runs")) -> list[Check]:
    """Everything about the machine that a run depends on."""
    checks: list[Callable[[], Check]] = [check_python, check_packages, check_torch, check_bf16, check_memory]
    return [*(check() for check in checks), check_disk(runs), check_chromium()]


def examine_recipe(path: Path, changes: Changes = (), runs: Path = Path("runs"), table: Table = STAGES) -> list[Check]:
    """Whether a recipe can run here: valid, its stages importable, enough memory and disk."""
    try:
        recipe = load_recipe(path, changes, table)
        works = list_work(recipe, runs, table)
    except RecipeError as error:
        return [Check("recipe", "fail", str(error), "put the recipe right")]
    left = [work for work in works if work.done is None]
    text = f"{recipe.name}: {len(works)} stages, {len(works) - len(left)} finished in {runs / recipe.name}"
    return [Check("recipe", "ok", text), check_stages(recipe, table), *check_needs(recipe, runs)]


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
        return Check("packages", "fail", f"missing: {', '.join(missing)}", "pip install ingot")
    return Check("packages", "ok", f"all {len(PACKAGES)} are there")


def check_torch() -> Check:
    """The version of torch, and what it computes on."""
    if importlib.util.find_spec("torch") is None:
        return Check("torch", "fail", "not installed", "pip install 'torch>=2.11,<2.14'")
    import torch

    devices = [torch.cuda.get_device_name(number) for number in range(torch.cuda.device_count())]
    where = ", ".join(devices) if devices else f"CPU, {torch.get_num_threads()} threads of {usable_cores()} cores"
    text = f"{torch.__version__} · {where}"
    version = tuple(int(part) for part in importlib.metadata.version("torch").split("+")[0].split(".")[:2])
    if TORCH_TESTED[0] <= version < TORCH_TESTED[1]:
        return Check("torch", "ok", text)
    return Check("torch", "warn", f"{text} (tested: 2.11 to 2.13)", "pip install torch==2.13.0")


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
    """The room below the runs folder, and whether it can be written."""
    place = existing_parent(runs)
    free = shutil.disk_usage(place).free
    text = f"{free / GIB:.1f} GiB free below {runs}"
    if not os.access(place, os.W_OK):
        return Check("disk", "fail", f"{place} cannot be written", "give another folder with --runs")
    if free >= DISK_WANTED:
        return Check("disk", "ok", text)
    return Check("disk", "warn", text, "make room, or give another folder with --runs")


def existing_parent(path: Path) -> Path:
    """The nearest folder above `path` that is there."""
    path = path.absolute()
    while not path.exists():
        path = path.parent
    return path


def check_chromium() -> Check:
    """The browser that the tests of the report use; nothing else needs it."""
    found = next((name for name in ("chromium", "chromium-browser", "google-chrome") if shutil.which(name)), None)
    if found is not None:
        return Check("chromium", "ok", f"{found} (only tests use it)")
    return Check("chromium", "warn", "not installed (only tests use it)", "apt install chromium")


def check_stages(recipe: Recipe, table: Table) -> Check:
    """Whether the code of every stage can be imported here."""
    for kind in dict.fromkeys(stage.kind for stage in recipe.stages):
        try:
            table[kind].stage()
        except ImportError as error:
            return Check("stages", "fail", f"{kind} cannot be imported: {error}", "install what is missing")
    return Check("stages", "ok", "the code of every stage can be imported")


def check_needs(recipe: Recipe, runs: Path) -> Iterable[Check]:
    """Memory and disk against what the recipe's models take."""
    costs = {name: cost for name, cost in stage_costs(recipe).items() if cost.parameters is not None}
    if not costs:
        return
    largest = max(costs, key=lambda name: costs[name].memory_bytes or 0)
    wanted, total = costs[largest].memory_bytes or 0, memory_bytes()
    text = f"{largest} takes about {wanted / GIB:.2f} GiB while it trains"
    if total is not None and wanted > total:
        fix = f"lower {largest}.micro_batch_tokens or the model's size (a GPU's memory is not looked at here)"
        yield Check("recipe memory", "warn", f"{text}, of {total / GIB:.1f}", fix)
    else:
        yield Check("recipe memory", "ok", text)
    room = sum(CHECKPOINT_BYTES_PER_PARAMETER * CHECKPOINTS_HELD * (cost.parameters or 0) for cost in costs.values())
    free = shutil.disk_usage(existing_parent(runs)).free
    text = f"checkpoints take about {room / GIB:.2f} GiB, {free / GIB:.1f} GiB are free"
    if room > free:
        yield Check("recipe disk", "fail", text, "make room, or give another folder with --runs")
    else:
        yield Check("recipe disk", "ok", text)
