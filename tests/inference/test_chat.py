"""The chat with a model that knows its lines: tools, thinking, commands, interruption."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from ingot.inference.chat import LONGEST, Printer, answer, chat
from ingot.inference.conversation import CALL_ROUNDS, Conversation, Tool
from ingot.inference.engine import Engine
from ingot.inference.sampling import Sampling
from ingot.model.checkpoint import save_checkpoint
from ingot.model.transformer import Transformer
from ingot.tokens.chat import ChatFormat, Message
from ingot.workspace.errors import ArtifactError, IngotError
from tests.inference.conftest import tiny_model
from tests.inference.speaker import (
    FAREWELL,
    GREETING,
    QUESTION,
    SCHEMA,
    conversations,
    train_small_tokenizer,
    train_speaker,
)

CALL = '<tool_call>{"name": "times", "arguments": {"a": 12, "b": 34}}</tool_call>'
ANSWER = f"<think>call it</think>\n{CALL}\n\n→ 408\n<think>done</think>\nIt is 408 — ja.\n"


def times(arguments: dict[str, Any]) -> str:
    return str(arguments["a"] * arguments["b"])


TOOLS: dict[str, Tool] = {"times": (SCHEMA, times)}


@pytest.fixture(scope="module")
def speaker() -> Transformer:
    return train_speaker(train_small_tokenizer())


@pytest.fixture(scope="module")
def checkpoint(speaker: Transformer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("chat") / "checkpoint"
    save_checkpoint(path, speaker)
    return path


def make_conversation(model: Transformer, tools: dict[str, Tool] = TOOLS, length: int = 256) -> Conversation:
    assert model.tokenizer is not None
    sampling = Sampling(max_new_tokens=100, temperature=0.0)
    return Conversation(Engine(model, slots=1, length=length), ChatFormat(model.tokenizer), sampling, tools)


def talk(path: Path, lines: str, monkeypatch: pytest.MonkeyPatch, **options: Any) -> str:
    """What the chat prints for lines that are not typed at a terminal."""
    monkeypatch.setattr(sys, "stdin", io.StringIO(lines))
    output = io.StringIO()
    chat(path, temperature=0.0, tools=TOOLS, console=Console(file=output, width=200), **options)
    return output.getvalue()


def test_a_prompt_is_answered_once(checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert talk(checkpoint, "never read", monkeypatch, prompt=QUESTION) == ANSWER
    assert talk(checkpoint, "", monkeypatch, prompt=GREETING, thinking=False) == "Good day\n"


def test_lines_of_the_input_are_messages_and_commands(checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = [QUESTION, "", FAREWELL, "/reset", "/think", GREETING, "/nonsense", "/exit", QUESTION]
    said = talk(checkpoint, "\n".join(lines), monkeypatch)
    assert said.startswith(
        ANSWER
        + "<think></think>\nSee you\n"
        + "(the conversation begins again)\n(thinking is off)\nGood day\nthere is no command /nonsense\n"
    )
    assert "Ctrl-C stops an answer" in said
    assert said.count("408") == ANSWER.count("408")


def test_sampled_tokens_are_kept_as_they_are(speaker: Transformer) -> None:
    conversation = make_conversation(speaker)
    for text in (QUESTION, FAREWELL):
        list(conversation.say(text))
    expected = conversations(conversation.chat)[0]
    assert conversation.tokens == expected[: len(conversation.tokens)]
    assert len(expected) - len(conversation.tokens) <= 1  # the line end after the last turn


def test_an_answer_that_is_stopped_is_ended_and_the_talk_goes_on(
    speaker: Transformer, monkeypatch: pytest.MonkeyPatch
) -> None:
    conversation = make_conversation(speaker)
    output = io.StringIO()
    console = Console(file=output, width=200)
    shown: list[int | Message] = []
    inner = Printer.show

    def show(printer: Printer, piece: int | Message) -> None:
        shown.append(piece)
        if len(shown) == 5:
            raise KeyboardInterrupt
        inner(printer, piece)

    monkeypatch.setattr(Printer, "show", show)
    answer(conversation, QUESTION, console)
    special = conversation.chat.tokenizer.special
    assert conversation.tokens[-6:] == [*shown, special["<|im_end|>"]]
    assert output.getvalue().endswith("\n(stopped)\n")
    monkeypatch.undo()
    answer(conversation, FAREWELL, console)
    assert conversation.tokens.count(special["<|im_end|>"]) == 5  # system, user, assistant, user, assistant


def test_a_terminal_is_asked_until_control_d(checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    typed: Iterator[str | type[BaseException]] = iter([KeyboardInterrupt, "/help", GREETING, EOFError])

    class Terminal(Console):
        def input(self, *args: Any, **options: Any) -> str:
            value = next(typed)
            if isinstance(value, str):
                return value
            raise value

    monkeypatch.setattr(sys.stdin, "isatty", lambda: True, raising=False)
    output = io.StringIO()
    terminal = Terminal(file=output, width=200, force_terminal=True, color_system="standard", highlight=False)
    chat(checkpoint, temperature=0.0, thinking=False, tools=TOOLS, console=terminal)
    said = output.getvalue()
    for text in ("M parameters, a conversation of up to", "/reset", "Ctrl-D or /exit leaves", "Good day"):
        assert text in said.replace("\x1b[0m", "")


@pytest.mark.parametrize(("context", "length"), [(131_072, LONGEST), (300, 300)])
def test_the_cache_of_a_long_context_is_bounded(
    speaker: Transformer, context: int, length: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cache for all of a long context would take gigabytes before the first word."""
    long = Transformer(speaker.config.model_copy(update={"context": context}))
    long.load_state_dict(speaker.state_dict())
    long.tokenizer = speaker.tokenizer
    save_checkpoint(tmp_path / "long", long)
    lengths: list[int] = []
    make = Transformer.make_caches

    def make_caches(model: Transformer, slots: int, length: int) -> Any:
        lengths.append(length)
        return make(model, slots, length)

    monkeypatch.setattr(Transformer, "make_caches", make_caches)
    assert talk(tmp_path / "long", "", monkeypatch, prompt=GREETING, thinking=False) == "Good day\n"
    assert lengths == [length]


def test_thinking_is_dimmed_on_a_terminal(checkpoint: Path) -> None:
    output = io.StringIO()
    terminal = Console(file=output, width=200, force_terminal=True, color_system="standard", highlight=False)
    chat(checkpoint, prompt=FAREWELL, temperature=0.0, tools=TOOLS, console=terminal)
    assert "\x1b[2m<think>\x1b[0m" in output.getvalue()
    assert "See you" in "".join(output.getvalue().split("\x1b[0m")[-1:])


def test_a_tool_that_is_not_there_is_named_to_the_model(speaker: Transformer) -> None:
    other: dict[str, Tool] = {"other": (SCHEMA, times)}  # the model reads the schema it knows and calls "times"
    results = [piece for piece in make_conversation(speaker, other).say(QUESTION) if isinstance(piece, Message)]
    assert results[0] == Message("tool", "error: there is no tool times")


def test_calls_without_end_are_ended(speaker: Transformer, monkeypatch: pytest.MonkeyPatch) -> None:
    conversation = make_conversation(speaker, length=2000)
    turn = conversations(conversation.chat)[0]
    call = conversation.chat.tokenizer.special["<tool_call>"]
    end = conversation.chat.tokenizer.special["<|im_end|>"]
    start = turn.index(call)
    script = turn[start : turn.index(end, start) + 1]
    monkeypatch.setattr(Engine, "stream", lambda engine, prompt, sampling: (token for token in script))
    results = [piece for piece in conversation.say(QUESTION) if isinstance(piece, Message)]
    assert results == [Message("tool", "408")] * CALL_ROUNDS


def test_a_conversation_longer_than_the_context_says_so(speaker: Transformer) -> None:
    conversation = make_conversation(speaker, length=100)
    with pytest.raises(IngotError, match="the model holds 100"):
        list(conversation.say("1" * 100))
    assert conversation.tokens == []


def test_a_checkpoint_without_a_tokenizer_is_refused(tmp_path: Path) -> None:
    save_checkpoint(tmp_path / "bare", tiny_model())
    with pytest.raises(ArtifactError, match="no tokenizer"):
        chat(tmp_path / "bare", prompt="Hello")


def test_characters_are_printed_when_they_are_complete(speaker: Transformer) -> None:
    assert speaker.tokenizer is not None
    output = io.StringIO()
    printer = Printer(speaker.tokenizer, Console(file=output, width=200))
    dash = speaker.tokenizer.encode("—")
    assert len(dash) == 3
    for token in dash[:2]:
        printer.show(token)
    assert output.getvalue() == ""
    printer.show(dash[2])
    assert output.getvalue() == "—"
    for token in (*dash[:1], *speaker.tokenizer.encode("[bold]x")):
        printer.show(token)
    printer.end()
    assert output.getvalue() == "—\N{REPLACEMENT CHARACTER}[bold]x\n"
