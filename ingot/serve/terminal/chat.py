"""Chat in the terminal: streams the answer, thinking dimmed, tool calls and their results in colour.

Ctrl-C stops an answer, Ctrl-D leaves. A message that begins with \"\"\" goes on over several lines to the next \"\"\".
When the input is not a terminal every line of it is a message.
"""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import closing, suppress

from rich.console import Console

from ingot.envs.tools.tool import Tool
from ingot.inference.sampling import Sampling
from ingot.serve.terminal.commands import run_command
from ingot.serve.terminal.conversation import ChatModel, Piece, TerminalConversation
from ingot.serve.terminal.printer import Printer
from ingot.tokens.chat import Message, ToolCall
from ingot.workspace.errors import IngotError

QUOTES = '"""'
PROMPT = "\001\033[1m\002> \001\033[0m\002"  # bold; the marks tell readline what takes no room on the line
FULL = 0.9  # the share of the context from which on the user is told


def chat(
    model: ChatModel,
    sampling: Sampling,
    *,
    prompt: str | None = None,
    system: str = "",
    thinking: bool = True,
    tools: Mapping[str, Tool] | None = None,
    ask: bool = True,
    console: Console | None = None,
) -> None:
    """Talk to `model`; with `prompt`, answer it once and return.

    Tools are offered only to a model that can call them. With `ask` the user allows each call of a tool that asks.
    """
    console = console or Console(highlight=False)
    if not model.calls_tools:
        tools = None
    typed = sys.stdin.isatty() and prompt is None
    conversation = TerminalConversation(
        model, sampling, tools, thinking, _make_allow(console, typed) if ask else _allow_all
    )
    conversation.system = system
    if typed:
        _, limit = model.tokens()
        console.print(
            f"{model.about}{f', {limit:,} tokens' if limit else ''}, /help for help", style="dim", markup=False
        )
    if prompt is not None:
        show(conversation.say(prompt), conversation, console)
        return
    for line in _typed_lines(console) if typed else _piped_lines():
        try:
            if not line.startswith("/"):
                show(conversation.say(line), conversation, console)
            elif not run_command(line, conversation, tools or {}, console, show):
                return
        except IngotError as error:
            console.print(f"error: {error}", style="red", markup=False, soft_wrap=True)
        except KeyboardInterrupt:  # between two messages, where no answer was being written
            console.print("(stopped)", style="dim")


def show(pieces: Generator[Piece | Message, None, None], conversation: TerminalConversation, console: Console) -> None:
    """Print an answer while it comes, and afterwards what is wrong with it. Ctrl-C stops it."""
    printer = Printer(console)
    try:
        with closing(pieces):
            for piece in pieces:
                printer.show(piece)
    except KeyboardInterrupt:
        printer.end()
        console.print("(stopped)", style="dim")
        return
    finally:
        printer.end()
    used, limit = conversation.model.tokens()
    full = limit is not None and used >= limit
    for problem in conversation.messages[-1].problems:
        fix = "; --max-new-tokens allows more" if "cut off" in problem and not full else ""
        console.print(f"({problem}{fix})", style="yellow", markup=False)
    if limit is not None and used > FULL * limit:
        console.print(f"({used:,} of {limit:,} tokens are used; /reset begins again)", style="yellow")


def _allow_all(call: ToolCall) -> bool:
    return True


def _make_allow(console: Console, typed: bool) -> Callable[[ToolCall], bool]:
    """Asks the user about a call; "a" allows every later call of that tool too. Without a user to ask, no."""
    always: set[str] = set()

    def allow(call: ToolCall) -> bool:
        if call.name in always:
            return True
        if not typed:
            console.print(f"({call.name} was not run: there is no user to ask; --yes allows it)", style="yellow")
            return False
        console.print(f"{call.name} wants to run:", style="bold")
        for name, value in call.arguments.items():
            text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
            console.print(
                f"  {name}: {text}" if "\n" not in text else f"  {name}:\n{text}", markup=False, soft_wrap=True
            )
        try:
            answer = input("run it? [y]es, [N]o, [a]lways: ").strip().lower()
        except EOFError:
            return False
        if answer in ("a", "always"):
            always.add(call.name)
        return answer in ("y", "yes", "a", "always")

    return allow


def _piped_lines() -> Iterator[str]:
    """The lines of an input that is no terminal, empty ones left out."""
    return filter(None, map(str.strip, sys.stdin))


def _typed_lines(console: Console) -> Iterator[str]:
    """The messages that the user types, until Ctrl-D."""
    with suppress(ImportError):  # editing and history of the line, where Python has it
        importlib.import_module("readline")
    while True:
        try:
            text = input(PROMPT).strip()
            while text.startswith(QUOTES) and not text.endswith(QUOTES, len(QUOTES)):
                text += "\n" + input("… ")
            if text := text.removeprefix(QUOTES).removesuffix(QUOTES).strip() if text.startswith(QUOTES) else text:
                yield text
        except EOFError:
            console.print()
            return
        except KeyboardInterrupt:
            console.print("\n(Ctrl-D or /exit leaves)", style="dim")
