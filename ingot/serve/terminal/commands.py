"""The commands of a chat (lines that begin with /): one function each, named in `COMMANDS` with its help."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NoReturn

from rich.console import Console

from ingot.envs.tools.tool import Tool
from ingot.serve.terminal.conversation import Piece, TerminalConversation
from ingot.tokens.chat import Message
from ingot.tokens.openai_messages import from_openai, to_openai
from ingot.workspace.errors import IngotError
from ingot.workspace.files import read_json, write_json

Show = Callable[[Generator[Piece | Message, None, None], TerminalConversation, Console], None]


@dataclass
class ChatState:
    """The state of the chat that a command can change. `tools` are those of the start, also while they are off."""

    conversation: TerminalConversation
    tools: Mapping[str, Tool]
    console: Console
    show: Show

    def note(self, text: str) -> None:
        """Print what a command did."""
        self.console.print(f"({text})", style="dim", markup=False, highlight=False)


def run_command(
    line: str, conversation: TerminalConversation, tools: Mapping[str, Tool], console: Console, show: Show
) -> bool:
    """Do what a line asks for; false to leave."""
    name, _, rest = line.partition(" ")
    if name == "/exit":
        return False
    if name not in COMMANDS:
        raise IngotError(f"there is no command {name}", fix="/help lists them; a message must not begin with /")
    COMMANDS[name][1](ChatState(conversation, tools, console, show), rest.strip())
    return True


def _help(chat: ChatState, _: str) -> None:
    lines = [*((f"{name} {parameter}", text) for name, (parameter, _, text) in COMMANDS.items()), ("/exit", "leave")]
    for usage, text in lines:
        chat.console.print(f"{usage:<16}{text}", markup=False, highlight=False)
    chat.console.print('Ctrl-C stops an answer, Ctrl-D leaves; """ begins and ends a message of several lines')


def _reset(chat: ChatState, _: str) -> None:
    chat.conversation.reset()
    chat.note("the conversation begins again")


def _think(chat: ChatState, _: str) -> None:
    chat.conversation.thinking = not chat.conversation.thinking
    chat.note(f"thinking is {'on' if chat.conversation.thinking else 'off'}")


def _tools(chat: ChatState, _: str) -> None:
    if not chat.tools:
        able = chat.conversation.model.calls_tools
        fix = "start with --tools calculator,python,FILE.py" if able else "this model has no tokens to call tools with"
        raise IngotError("there are no tools", place="/tools", fix=fix)
    chat.conversation.tools = None if chat.conversation.tools else chat.tools
    chat.note(f"tools are {'on' if chat.conversation.tools else 'off'}: {', '.join(chat.tools)}")


def _system(chat: ChatState, text: str) -> None:
    chat.conversation.system = text
    chat.note("the system prompt is set" if text else "there is no system prompt")


def _temperature(chat: ChatState, text: str) -> None:
    try:
        changed = replace(chat.conversation.sampling, temperature=float(text))
    except ValueError:
        raise IngotError(f"{text!r} is not a number", place="/temperature", fix="write /temperature 0.7") from None
    chat.conversation.sampling = changed
    chat.note(f"the temperature is {changed.temperature:g}")


def _retry(chat: ChatState, _: str) -> None:
    chat.show(chat.conversation.retry(), chat.conversation, chat.console)


def _save(chat: ChatState, text: str) -> None:
    path = _path(text, "/save")
    value = {"messages": to_openai(chat.conversation.messages)}
    try:
        write_json(path, value)
    except (OSError, ValueError) as error:
        _refuse(error, "/save")
    chat.note(f"{len(chat.conversation.messages)} messages are in {path}")


def _load(chat: ChatState, text: str) -> None:
    path = _path(text, "/load")
    try:
        messages = from_openai(read_json(path), str(path))
    except (OSError, ValueError) as error:
        _refuse(error, "/load")
    chat.conversation.load(messages)
    waits = messages[-1:] and messages[-1].role == "user"
    chat.note(f"{len(messages)} messages" + ("; /retry answers the last" if waits else ""))


def _tokens(chat: ChatState, _: str) -> None:
    used, limit = chat.conversation.model.tokens()
    room = f" of {limit:,} ({used / limit:.0%})" if limit else ""
    chat.note(f"{used:,}{room} tokens after the last answer")


def _path(text: str, place: str) -> Path:
    if not text:
        raise IngotError("no file", place=place, fix=f"write {place} FILE")
    return Path(text).expanduser()


def _refuse(error: Exception, place: str) -> NoReturn:
    raise IngotError(str(error), place=place, fix="give the path of another file") from None


COMMANDS: dict[str, tuple[str, Callable[[ChatState, str], None], str]] = {
    "/help": ("", _help, "this list"),
    "/reset": ("", _reset, "forget the conversation, not the system prompt"),
    "/retry": ("", _retry, "another answer to the last message; or send again what could not be sent"),
    "/think": ("", _think, "let the model think first, or not any more"),
    "/tools": ("", _tools, "let the model call tools, or not any more"),
    "/system": ("TEXT", _system, "set the system prompt; without TEXT, none"),
    "/temperature": ("X", _temperature, "0 takes the likeliest token"),
    "/tokens": ("", _tokens, "how full the context is"),
    "/save": ("FILE", _save, "write the conversation as JSON, in OpenAI's shape"),
    "/load": ("FILE", _load, "go on with a conversation from such a file"),
}
