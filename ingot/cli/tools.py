"""`--tools`: which tools a model may call, for `ingot chat` and `ingot ui`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from ingot.cli.given import refuse_given

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


def check_tools(context: typer.Context, text: str) -> None:
    """Refuse options of tools that are not offered."""
    names = _names(text)
    if not names:
        refuse_given(context, ("tool_seconds", "yes"), f"with --tools {text}")
    if "python" not in names:
        refuse_given(context, ("unsafe",), "without the tool python", "offer it: --tools python")


def choose_tools(text: str, deadline: float, *, unsafe: bool = False) -> dict[str, Tool]:
    """The tools that a list such as `calculator,python,my_tools.py` names."""
    from ingot.envs.tools.find import find_tools

    return find_tools(_names(text), deadline, unsafe=unsafe)


def _names(text: str) -> list[str]:
    return [name for name in map(str.strip, text.split(",")) if name not in ("", "none")]
