"""Which module imports which: rooms only import from rooms above them, and starting up imports nothing heavy."""

from __future__ import annotations

import ast
import os
import resource
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import ingot

PACKAGE = Path(ingot.__file__).parent
ROOMS = (
    "workspace",
    "sandbox",
    "data",
    "tokens",
    "kernels",
    "model",
    "checkpoints",
    "optim",
    "train",
    "inference",
    "envs",
    "post",
    "evals",
    "recipe",
    "planner",
    "lab",
    "report",
    "serve",
    "python",
    "cli",
)
HEAVY = ("torch", "numpy", "pyarrow", "tokenizers", "pydantic", "transformers", "jinja2", "yaml")
FILES = sorted(PACKAGE.rglob("*.py"))
SHARED_NAMES = 19  # class names that several modules define, such as Gsm8k, a task and a suite; it may only fall
START_UP_SECONDS = 1.0


def room_of(path: Path) -> str | None:
    """The room a file is in; None for the two files of the package itself."""
    parts = path.relative_to(PACKAGE).parts
    room = parts[0].removesuffix(".py")
    return None if room in ("__init__", "__main__") else room


def imported(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Every module of ours that a file imports, with the line: also inside functions and under TYPE_CHECKING."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names if alias.name.split(".")[0] == "ingot")
        elif isinstance(node, ast.ImportFrom) and node.level:
            yield node.lineno, "." * node.level + (node.module or "")
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "ingot":
            inside = (node.module or "").count(".") > 0
            yield from ((node.lineno, str(node.module) if inside else f"ingot.{a.name}") for a in node.names)


def wrong_imports(source: str, room: str | None) -> list[str]:
    """The imports in a file of `room` that it may not have."""
    wrong = []
    for line, module in imported(ast.parse(source)):
        parts = module.split(".")
        if module.startswith("."):
            wrong.append(f"line {line}: relative import {module}")
        elif room is None:  # the package's own file imports nothing heavy when it is imported
            continue
        elif len(parts) < 2 or parts[1] not in ROOMS:
            wrong.append(f"line {line}: {module} is in no room")
        elif ROOMS.index(parts[1]) > ROOMS.index(room):
            wrong.append(f"line {line}: {room} imports from {parts[1]}, which is below it")
    return wrong


def test_rooms_import_only_from_rooms_above() -> None:
    """All files in one test: a test for each of a thousand files costs more than to read them."""
    wrong = []
    for path in FILES:
        room, name = room_of(path), path.relative_to(PACKAGE)
        if room is not None and room not in ROOMS:
            wrong.append(f"{name} is in no room")
        else:
            wrong += [f"{name} {each}" for each in wrong_imports(path.read_text(encoding="utf-8"), room)]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    ("source", "room", "count"),
    [
        ("import ingot.post.sft", "train", 1),
        ("def f():\n    from ingot.recipe import flow", "data", 1),
        ("from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from ingot.report.build import build", "recipe", 1),
        ("from ingot import report", "recipe", 1),
        ("from . import sibling", "model", 1),
        ("import ingot", "model", 1),
        ("import ingot.nowhere", "cli", 1),
        ("from ingot import __version__", "recipe", 1),
        ("from ingot.workspace.files import PARTIAL\nfrom ingot.model import config\nimport numpy", "model", 0),
        ("from ingot.report.build import build", "cli", 0),
    ],
)
def test_the_check_itself(source: str, room: str, count: int) -> None:
    assert len(wrong_imports(source, room)) == count


def module_of(path: Path) -> str:
    """The name by which a file is imported."""
    return ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__")


def import_graph(sources: Mapping[str, str]) -> dict[str, set[str]]:
    """What each module imports of the others, also inside functions and under TYPE_CHECKING."""
    graph: dict[str, set[str]] = {}
    for module, source in sources.items():
        named: set[str] = set()
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.Import):
                named |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                whole = {f"{node.module}.{alias.name}" for alias in node.names}
                named |= whole & sources.keys() or {node.module}
        graph[module] = named & sources.keys() - {module}
    return graph


def circle(graph: Mapping[str, set[str]]) -> list[str]:
    """Modules that import each other in a circle, and those above it; none if there is no circle."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def test_no_modules_import_each_other() -> None:
    """A circle is one module in several files: neither is understood, tested or moved without the others."""
    found = circle(import_graph({module_of(path): path.read_text(encoding="utf-8") for path in FILES}))
    assert not found, " imports ".join(reversed(found))


@pytest.mark.parametrize(
    ("sources", "found"),
    [
        ({"a": "import b", "b": "def f():\n    from a import g"}, True),
        (
            {
                "a": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import b",
                "b": "import c",
                "c": "import a",
            },
            True,
        ),
        ({"a": "from a import b", "a.b": "import a"}, True),
        ({"a": "import b\nimport c", "b": "import c", "c": ""}, False),
        ({"a": "", "a.b": "from a import c", "a.c": "import a"}, False),
    ],
)
def test_the_search_for_circles_itself(sources: dict[str, str], found: bool) -> None:
    assert bool(circle(import_graph(sources))) == found


def test_a_class_name_means_one_thing() -> None:
    """In the whole package: a reader who meets a name need not ask which of several it is."""
    defined: dict[str, set[str]] = {}
    for path in FILES:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                defined.setdefault(node.name, set()).add(module_of(path))
    shared = {name: modules for name, modules in sorted(defined.items()) if len(modules) > 1}
    listed = "\n".join(f"{name}: {', '.join(sorted(modules))}" for name, modules in shared.items())
    assert len(shared) <= SHARED_NAMES, f"more names than {SHARED_NAMES} have several meanings:\n{listed}"


@pytest.mark.parametrize("room", ["kernels", "sandbox"])
def test_a_room_of_tools_imports_only_the_workspace(room: str) -> None:
    """Kernels know no model, programs in the sandbox no task: although other rooms are above them, too."""
    files = sorted((PACKAGE / room).rglob("*.py"))
    assert len(files) > 5
    found = {module.split(".")[1] for path in files for _, module in imported(ast.parse(path.read_text("utf-8")))}
    assert found == {"workspace", room}


def test_rooms_are_lazy() -> None:
    """The `__init__` of a room says what the room is, and imports nothing."""
    for room in ROOMS:
        path = PACKAGE / room / "__init__.py"
        if not path.parent.is_dir():
            continue
        tree = ast.parse(path.read_text(encoding="utf-8"))
        assert ast.get_docstring(tree), f"{path} has no docstring"
        top = [node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
        assert all(isinstance(node, ast.ImportFrom) and node.module == "__future__" for node in top), f"{path} imports"


def modules_after(code: str) -> tuple[set[str], float]:
    """The top-level modules that are loaded after `code` ran in a fresh interpreter, and the CPU time it took."""
    report = "\nimport sys\nsys.stderr.write(' '.join(sorted({name.split('.')[0] for name in sys.modules})))"
    began = cpu_seconds()
    done = subprocess.run(
        [sys.executable, "-c", code + report],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
        env=os.environ | {"PYTHONPATH": str(PACKAGE.parent)},
    )
    return set(done.stderr.split()), cpu_seconds() - began


def cpu_seconds() -> float:
    """CPU time of finished subprocesses: unlike the clock, it does not depend on what else the machine does."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


HELP = """
import sys
from ingot.cli import main
sys.argv = ["ingot", "--help"]
try:
    main()
except SystemExit as stop:
    assert stop.code == 0
"""


@pytest.mark.parametrize("code", ["import ingot", HELP], ids=["import ingot", "ingot --help"])
def test_starting_up_is_quick_and_imports_nothing_heavy(code: str) -> None:
    modules, seconds = modules_after(code)
    assert "ingot" in modules
    assert modules.isdisjoint(HEAVY), modules & set(HEAVY)
    seconds = min([seconds, *(modules_after(code)[1] for _ in range(2))])  # the quickest: other work on the machine
    assert seconds < START_UP_SECONDS


def test_config_modules_outside_the_model_import_nothing_heavy() -> None:
    """One after the other in one interpreter: what any of them imports is there after all of them.

    A part of the model and a data step declare their options beside their module, so reading a recipe with a model in it imports
    torch, and one with a step imports the step's kernels. All else of a recipe, and the code that reads it, does without.
    """
    rooms = ("", "mixers", "feed_forward", "positions")
    heavy = [PACKAGE / "model" / room / "config.py" for room in rooms]
    assert all(path.exists() for path in heavy)
    paths = sorted(set(PACKAGE.rglob("config.py")) - set(heavy) - set((PACKAGE / "data" / "steps").rglob("config.py")))
    assert len(paths) > 12
    names = [".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts) for path in paths]
    names += ["ingot.recipe.load", "ingot.recipe.flow", "ingot.planner.expected"]
    modules, _ = modules_after("\n".join(f"import {name}" for name in names))
    assert modules.isdisjoint({"torch", "numba", "tokenizers", "transformers"})


def test_the_version_is_that_of_the_project() -> None:
    project = PACKAGE.parent / "pyproject.toml"
    if not project.exists():
        pytest.skip("pyproject.toml is not there: the package is installed")
    assert tomllib.loads(project.read_text(encoding="utf-8"))["project"]["version"] == ingot.__version__
    assert (PACKAGE / "py.typed").exists()


def test_the_package_offers_its_functions_and_not_what_it_imports() -> None:
    public = [name for name in dir(ingot) if not name.startswith("_")]
    stages = [
        "curate",
        "distill",
        "evaluate",
        "fit",
        "merge",
        "prefer",
        "pretrain",
        "reward",
        "rl",
        "sft",
        "tokenize",
        "tokenizer",
    ]
    assert public == sorted(["export_model", "generate", "import_model", "load", "plan", "run", *stages])
    assert {getattr(ingot, name).__module__ for name in stages} == {"ingot.python.stages"}
    assert all(getattr(ingot, name).__module__ == "ingot" for name in public if name not in stages)
