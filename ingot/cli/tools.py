"""`--tools`: which tools a model may call, for `ingot chat` and `ingot ui`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ingot.workspace.errors import IngotError

if TYPE_CHECKING:
    from ingot.envs.tools.tool import Tool

ToolsOption = Annotated[
    str,
    typer.Option("--tools", metavar="LIST", help="Tools to offer: calculator, python, FILE.py (its functions), none."),
]
DeadlineOption = Annotated[
    float, typer.Option("--tool-seconds", metavar="SECONDS", min=0.1, help="Longest time for a tool call.")
]
UnsafeOption = Annotated[
    bool, typer.Option("--unsafe", help="Run the model's code also where nothing isolates it from your files.")
]


def choose_tools(text: str, deadline: float, *, unsafe: bool = False) -> dict[str, Tool]:
    """The tools that a list such as `calculator,python,my_tools.py` names."""
    tools: dict[str, Tool] = {}
    for name in filter(None, map(str.strip, text.split(","))):
        for tool in _named(name, deadline, unsafe=unsafe):
            if tool.name in tools:
                raise IngotError(f"two tools are called {tool.name}", place="--tools", fix="rename one of them")
            tools[tool.name] = tool
    return tools


def _named(name: str, deadline: float, *, unsafe: bool) -> list[Tool]:
    if name.endswith(".py"):
        from ingot.envs.tools.functions import load_functions

        return list(load_functions(Path(name), deadline).values())
    match name:
        case "none":
            return []
        case "calculator":
            from ingot.envs import calculator
            from ingot.envs.tools.tool import Tool

            return [Tool(calculator.SCHEMA, calculator.calculator, asks=False)]
        case "python":
            from ingot.envs.tools.python import python_tool

            return [python_tool(deadline, unsafe=unsafe)]
    raise IngotError(f"there is no tool {name}", place="--tools", fix="choose from calculator, python, FILE.py, none")
