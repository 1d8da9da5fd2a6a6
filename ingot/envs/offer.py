"""The tools that a stage offers to its tasks, by name: `tools: [calculator, my_tools.py:lookup]`.

A task says which tools it may use by their schemas (envs/task.py); what answers a call of that name comes from here. A tool from
outside is a function: its parameters are the arguments of a call, and what it returns, as text, is the answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Annotated, Any

from pydantic import AfterValidator

from ingot.envs import calculator
from ingot.workspace.errors import RecipeError
from ingot.workspace.kinds import wrong_kind
from ingot.workspace.nearest import suggestion
from ingot.workspace.outside import is_outside, load_outside

Answer = Callable[[Mapping[str, Any]], str]
BUILT_IN: Mapping[str, Answer] = {calculator.NAME: calculator.calculator}


def find_tool(name: str) -> tuple[str, Answer]:
    """A tool and the name by which a model calls it; a RecipeError if there is none."""
    if not is_outside(name):
        if name not in BUILT_IN:
            raise RecipeError(f"there is no tool {name}", fix=suggestion(name, BUILT_IN, "there are file.py:name and"))
        return name, BUILT_IN[name]
    function = load_outside(name)
    if not callable(function) or isinstance(function, type):
        raise RecipeError(f"{name} is no tool", fix="write a function that returns a text")
    return name.rpartition(":")[2], lambda arguments: str(function(**arguments))


def find_tools(names: Iterable[str]) -> dict[str, Answer]:
    """The tools of a stage, by the names that models call."""
    return dict(find_tool(name) for name in names)


def _checked(name: str) -> str:
    try:
        find_tool(name)
    except RecipeError as error:
        raise wrong_kind(error, "") from error
    return name


ToolName = Annotated[str, AfterValidator(_checked)]
