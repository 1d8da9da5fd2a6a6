"""Prints an answer while it is streamed: thinking, text and calls on separate lines, broken between words.

A terminal breaks lines anywhere, so a word is held back until it is complete. Where the output is no
terminal nothing is broken, and thinking and calls are between tags instead of in colour.
"""

from __future__ import annotations

import re

from rich.cells import cell_len
from rich.console import Console

from ingot.serve.terminal.conversation import Kind, Piece
from ingot.tokens.chat import Message

STYLES: dict[Kind, str] = {"thinking": "dim italic", "call": "cyan"}
TAGS: dict[Kind, tuple[str, str]] = {"thinking": ("<think>", "</think>"), "call": ("<tool_call>", "</tool_call>")}


class Printer:
    """One answer on its way to the console."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self._kind: Kind | None = None
        self._column = 0
        self._word = ""  # held back: more of it may come

    def show(self, piece: Piece | Message) -> None:
        """Print a piece of the answer, or a tool's result."""
        if isinstance(piece, Message):
            self._begin(None)
            style = "red" if piece.content.startswith("error:") else "green"
            self._print(f"→ {piece.content.rstrip()}\n", style)
            return
        self._begin(piece.kind if piece.text else None)
        text = piece.text
        if self._column == 0 and not self._word and piece.kind == "content":
            text = text.lstrip("\n")  # models put empty lines between a trace and the answer
        if self.console.is_terminal and piece.kind != "call":
            self._wrap(text, STYLES.get(piece.kind))
        else:
            self._print(text, STYLES.get(piece.kind))

    def end(self) -> None:
        """End the turn."""
        self._begin(None)

    def _begin(self, kind: Kind | None) -> None:
        if kind == self._kind:
            return
        if self._kind is not None:
            self._put(self._word, STYLES.get(self._kind))
            self._word = ""
            self._tag(self._kind, 1)
            if self._column:
                self._print("\n", None)
        if kind is not None:
            self._tag(kind, 0)
        self._kind = kind

    def _tag(self, kind: Kind, which: int) -> None:
        if kind in TAGS and not self.console.is_terminal:
            self._print(TAGS[kind][which], None)

    def _wrap(self, text: str, style: str | None) -> None:
        """Print the words that are complete; one that does not fit on this line begins the next."""
        *complete, self._word = re.split(r"(?<=\s)(?=\S)", self._word + text)
        if self._word and self._word[-1].isspace():
            complete, self._word = [*complete, self._word], ""
        for word in complete:
            self._put(word, style)

    def _put(self, word: str, style: str | None) -> None:
        width, size = self.console.width, cell_len(word.rstrip())
        if self._column and size < width < self._column + size:
            self._print("\n", None)
        if self._column + size == width:  # a blank behind it would begin a line by itself
            word = re.sub(r" +(?=\n|$)", "", word)
        self._print(word, style)

    def _print(self, text: str, style: str | None) -> None:
        if text:
            self.console.print(text, style=style, end="", markup=False, highlight=False, soft_wrap=True)
            _, newline, rest = text.rpartition("\n")
            self._column = cell_len(rest) if newline else self._column + cell_len(text)
