"""Chat in the terminal: streams the answer, thinking dimmed, tool calls and their results in colour.

Ctrl-C stops an answer, Ctrl-D leaves. When the input is not a terminal every line of it is a message.
"""

from __future__ import annotations

import codecs
import sys
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path

from rich.console import Console

from ingot.inference.conversation import Conversation, Tool
from ingot.inference.engine import Engine
from ingot.inference.sampling import Sampling
from ingot.model.checkpoint import load_model
from ingot.tokens.chat import ChatFormat, Message
from ingot.tokens.tokenizer import THINK_END, THINK_START, TOOL_CALL_END, TOOL_CALL_START, Tokenizer
from ingot.train.device import choose_device
from ingot.workspace.errors import ArtifactError, IngotError

HELP = """/think   let the model think first, or not any more
/reset   forget the conversation
/exit    leave (also Ctrl-D); Ctrl-C stops an answer"""
LONGEST = 16_384  # tokens of a conversation: a cache for the whole of a long context would take gigabytes at once
STYLES = {THINK_START: "dim", TOOL_CALL_START: "cyan"}


def chat(
    path: Path,
    *,
    prompt: str | None = None,
    thinking: bool = True,
    temperature: float = 0.7,
    seed: int = 0,
    max_new_tokens: int = 256,
    tools: Mapping[str, Tool] | None = None,
    console: Console | None = None,
) -> None:
    """Talk to the model at `path` (a checkpoint or a stage's folder); with `prompt`, answer it once and return.

    `tools` maps a tool's name to its schema and its function from arguments to text; they are offered only to a model
    that has the tokens to call them.
    """
    console = console or Console(highlight=False)
    model = load_model(path, device=choose_device("auto"))
    if model.tokenizer is None:
        raise ArtifactError("the checkpoint has no tokenizer", place=str(path), fix="use a checkpoint that Ingot wrote")
    if TOOL_CALL_START not in model.tokenizer.special:
        tools = None
    sampling = Sampling(max_new_tokens=max_new_tokens, temperature=temperature, seed=seed)
    length = min(model.config.context, LONGEST)
    engine = Engine(model, slots=1, length=length)
    conversation = Conversation(engine, ChatFormat(model.tokenizer), sampling, tools, thinking)
    if prompt is not None:
        answer(conversation, prompt, console)
        return
    if sys.stdin.isatty():
        parameters = sum(parameter.numel() for parameter in model.parameters())
        room = f"a conversation of up to {length:,} tokens"
        console.print(f"[bold]{parameters / 1e6:.1f}M parameters[/bold], {room}, /help for help")
    for line in _lines(console):
        if not _command(line, conversation, console):
            return


def answer(conversation: Conversation, text: str, console: Console) -> None:
    """Print what the model says to `text` while it is sampled."""
    printer = Printer(conversation.chat.tokenizer, console)
    try:
        with closing(conversation.say(text)) as pieces:
            for piece in pieces:
                printer.show(piece)
    except KeyboardInterrupt:
        printer.end()
        console.print("(stopped)", style="dim")
        return
    printer.end()


class Printer:
    """Prints tokens as they come: bytes become text when a character is complete, tags change the style."""

    def __init__(self, tokenizer: Tokenizer, console: Console) -> None:
        self.tokenizer, self.console = tokenizer, console
        self.names = {id: name for name, id in tokenizer.special.items()}
        self.style: str | None = None
        self.decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def show(self, piece: int | Message) -> None:
        """Print one sampled token, or one tool result on a line of its own."""
        if isinstance(piece, Message):
            self.end()
            self._print(f"→ {piece.content}\n", "green")
        elif piece not in self.names:
            self._print(self.decoder.decode(self.tokenizer.decode_bytes((piece,))), self.style)
        else:
            self._tag(self.names[piece])

    def end(self) -> None:
        """End the turn."""
        self._flush()
        self._print("\n", None)
        self.style = None

    def _tag(self, name: str) -> None:
        self._flush()
        if name in STYLES:
            self.style = STYLES[name]
            self._print(name, self.style)
        elif name in (THINK_END, TOOL_CALL_END):
            self._print(name + "\n", self.style)
            self.style = None

    def _flush(self) -> None:
        self._print(self.decoder.decode(b"", final=True), self.style)
        self.decoder.reset()

    def _print(self, text: str, style: str | None) -> None:
        if text:
            self.console.print(text, style=style, end="", markup=False, highlight=False, soft_wrap=True)


def _command(line: str, conversation: Conversation, console: Console) -> bool:
    """Do what one line asks for; false to leave."""
    match line.strip():
        case "":
            pass
        case "/exit":
            return False
        case "/help":
            console.print(HELP)
        case "/reset":
            conversation.reset()
            console.print("(the conversation begins again)", style="dim")
        case "/think":
            conversation.thinking = not conversation.thinking
            console.print(f"(thinking is {'on' if conversation.thinking else 'off'})", style="dim")
        case text if text.startswith("/"):
            console.print(f"there is no command {text}\n{HELP}", markup=False)
        case text:
            try:
                answer(conversation, text, console)
            except IngotError as error:
                console.print(str(error), style="red", markup=False)
    return True


def _lines(console: Console) -> Iterator[str]:
    """What the user types, line by line, until Ctrl-D or the end of the input."""
    if not sys.stdin.isatty():
        yield from sys.stdin
        return
    while True:
        try:
            yield console.input("[bold]> [/bold]")
        except EOFError:
            console.print()
            return
        except KeyboardInterrupt:
            console.print("(Ctrl-D or /exit leaves)", style="dim")
