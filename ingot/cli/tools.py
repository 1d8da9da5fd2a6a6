"""`--tools`: which tools a model may call, for `ingot chat` and `ingot ui`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from ingot.envs.tools.tool import Tool

ToolsOption = Annotated[
    str,
    typer.Option(
        "--tools",
        metavar="LIST",
        help="Tools to offer: calculator, python, FILE.py (its functions), FILE.py:function, none.",
    ),
]
DeadlineOption = Annotated[
    float, typer.Option("--tool-seconds", metavar="SECONDS", min=0.1, help="Longest time for a tool call.")
]
UnsafeOption = Annotated[
    bool, typer.Option("--unsafe", help="Run the model's code also where nothing isolates it from your files.")
]


def choose_tools(text: str, deadline: float, *, unsafe: bool = False) -> dict[str, Tool]:
    """The tools that a list such as `calculator,python,my_tools.py` names."""
    from ingot.envs.tools.find import find_tools

    names = [name for name in map(str.strip, text.split(",")) if name not in ("", "none")]
    return find_tools(names, deadline, unsafe=unsafe)
