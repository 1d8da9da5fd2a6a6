"""Finds tools by name: `calculator`, `python`, `my_tools.py` (all of its functions) or `my_tools.py:lookup`.

Recipes, `ingot chat` and `ingot ui` name tools in the same way and get the same objects.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator

from ingot.envs.tools.calculator import CALCULATOR
from ingot.envs.tools.children import Child, ToolFunction
from ingot.envs.tools.python import python_tool
from ingot.envs.tools.tool import DEADLINE, Tool, make_tool
from ingot.workspace.errors import ArtifactError, RecipeError
from ingot.workspace.kinds import wrong_kind
from ingot.workspace.nearest import suggestion
from ingot.workspace.outside import is_outside, load_outside

BUILT_IN: Mapping[str, Callable[[float, bool], Tool]] = {
    "calculator": lambda *_: CALCULATOR,
    "python": lambda deadline, unsafe: python_tool(deadline, unsafe=unsafe),
}


def find_tools(names: Iterable[str], deadline: float = DEADLINE, *, unsafe: bool = False) -> dict[str, Tool]:
    """The tools of these names, by the names that models call; a RecipeError if one is missing or two have the same name.

    `unsafe` allows `python` to run a model's code where nothing isolates it.
    """
    found: dict[str, Tool] = {}
    for name in names:
        for tool in find_tool(name, deadline, unsafe=unsafe):
            if tool.name in found:
                raise RecipeError(f"two tools are called {tool.name}", place=name, fix="rename one of them")
            found[tool.name] = tool
    return found


def find_tool(name: str, deadline: float = DEADLINE, *, unsafe: bool = False) -> list[Tool]:
    """The tools of a name: one, unless it is a file."""
    if name.endswith(".py"):
        return functions_of(Path(name), deadline)
    if is_outside(name):
        thing = load_outside(name)
        if isinstance(thing, Tool):
            return [thing]
        if not callable(thing) or isinstance(thing, type):
            raise RecipeError(f"{name} is not a tool", fix="write a function that returns a text")
        return [make_tool(thing, deadline=deadline)]
    if name not in BUILT_IN:
        fix = suggestion(name, BUILT_IN, "there are FILE.py, FILE.py:function and")
        raise RecipeError(f"there is no tool {name}", fix=fix)
    return [BUILT_IN[name](deadline, unsafe)]


def functions_of(path: Path, deadline: float = DEADLINE) -> list[Tool]:
    """A tool for every public function of a Python file, which only children load. A person is asked before each call."""
    if not path.is_file():
        raise ArtifactError("there is no such Python file", place=str(path), fix="give a file of functions")
    source, child = str(path.resolve()), Child(str(path.resolve()))
    try:
        schemas = child.describe()
    finally:
        child.kill()
    return [Tool(schema, ToolFunction(source, schema["name"]), deadline, asks=True) for schema in schemas]


def _checked(name: str) -> str:
    try:
        find_tool(name)
    except RecipeError as error:
        raise wrong_kind(error, "") from error
    return name


ToolName = Annotated[str, AfterValidator(_checked)]
