"""`ingot new NAME`: write a small project folder that runs as it is.

Its files are in project/, where PROJECT stands for the name.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ingot.cli.show import command_line
from ingot.workspace.errors import RecipeError

TEMPLATE = Path(__file__).parent / "project"
PLACEHOLDER = "PROJECT"


def new_command(
    folder: Annotated[Path, typer.Argument(metavar="NAME", help="The folder to make.", show_default=False)],
) -> None:
    """Write a project folder that runs as it is: a recipe, a task, conversations, a data folder, a README."""
    for path in write_project(folder):
        typer.echo(f"  {path}")
    typer.echo(f"next:\n  {command_line('cd', folder)} && ingot run recipe.yaml")


def write_project(folder: Path) -> list[Path]:
    """Write the project; returns its files. The folder must be absent or empty."""
    from ingot.recipe.load import RECIPE_NAME

    name = folder.resolve().name
    if not RECIPE_NAME.fullmatch(name):
        raise RecipeError(f"{name} cannot be a recipe's name", fix="use letters, digits, . _ and -")
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise RecipeError(f"{folder} is there already", fix="choose another name, or move it away")
    written = []
    for source in sorted(path for path in TEMPLATE.rglob("*") if path.is_file() and "__pycache__" not in path.parts):
        path = folder / source.relative_to(TEMPLATE)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(source.read_text(encoding="utf-8").replace(PLACEHOLDER, name), encoding="utf-8")
        written.append(path)
    return written
