"""How `ingot model formats` shows chat formats: the table, or the one of a model with its marks and how it was found."""

from __future__ import annotations

from pathlib import Path

from rich.table import Table
from rich.text import Text

from ingot.checkpoints.checkpoint import open_model
from ingot.cli.show import console
from ingot.tokens.chat import ChatFormat
from ingot.tokens.syntax import Next, Syntax, formats
from ingot.tokens.tokenizer import TOKENIZER_FILE, Tokenizer
from ingot.workspace.errors import ArtifactError
from ingot.workspace.runs import find_checkpoint


def show_formats() -> None:
    """Every format with the models that write it."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("format", "thinking", "tool calls", "models"):
        table.add_column(column, no_wrap=column == "format", overflow="fold")  # of a long call no part is left out
    for label, syntax in formats().items():
        table.add_row(*(Text(cell) for cell in (label, thinking(syntax), syntax.example, syntax.models)))
    console().print(table)


def show_format(model: str) -> None:
    """The format of a model, mark by mark."""
    chat = ChatFormat(_tokenizer(model))
    syntax, special = chat.syntax, chat.tokenizer.special
    console().print(Text(f"{syntax.label}: {syntax.origin}"))
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("in", "mark", "begins", "mark is"):
        table.add_column(column)
    for state, marks in syntax.states.items():
        for mark, next in marks.items():
            kind = "a special token" if mark in special else "text"
            table.add_row(*(Text(cell) for cell in (state, repr(mark)[1:-1], _target(next), kind)))
    if syntax.states:
        console().print(table)
    if syntax.bare:
        console().print(Text(f"a turn that begins like a call in {syntax.bare} is one"))
    ends = ", ".join(chat.tokenizer.piece(end) for end in chat.turn_ends)
    console().print(Text(f"a turn ends with {ends}"))
    if not syntax.calls:
        console().print(Text("no tool calls; if it has some: ingot model template MODEL FOLDER --format FORMAT"))


def thinking(syntax: Syntax) -> str:
    """How a format writes a trace."""
    if syntax.channels:
        return "analysis channel"
    return "…".join(syntax.think) if syntax.think else "none"


def _target(next: Next) -> str:
    return (
        next
        if isinstance(next, str)
        else ", ".join(f"{state} ({pattern})" if pattern else state for pattern, state in next)
    )


def _tokenizer(model: str) -> Tokenizer:
    path = Path(model)
    if (path / TOKENIZER_FILE).is_file():
        return Tokenizer.load(path)
    found = open_model(find_checkpoint(path)).tokenizer()
    if found is None:
        raise ArtifactError("the model has no tokenizer", place=model, fix="import the model with its tokenizer")
    return found
