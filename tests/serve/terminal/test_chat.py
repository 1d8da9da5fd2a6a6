"""The chat in the terminal: a model that knows three conversations by heart, a server with a script, and a keyboard."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from ingot.checkpoints.checkpoint import save_checkpoint
from ingot.envs.tools.tool import make_tool
from ingot.inference.client import Client
from ingot.inference.sampling import Sampling
from ingot.model.transformer import Transformer
from ingot.serve.terminal.chat import chat, show
from ingot.serve.terminal.conversation import Piece
from ingot.serve.terminal.local_model import LONGEST, load_local_model
from ingot.serve.terminal.printer import Printer
from ingot.serve.terminal.server_model import ServerModel
from ingot.workspace.errors import ArtifactError
from tests.inference.conftest import tiny_model
from tests.inference.fake_server import Reply, calls, fake_server, text
from tests.serve.speaker import FAREWELL, GREETING, QUESTION, SCHEMA, trained_speaker

CALL = '<tool_call>{"name": "times", "arguments": {"a": 12, "b": 34}}</tool_call>'
ANSWER = f"<think>call it</think>\n{CALL}\n→ 408\n<think>done</think>\nIt is 408 — ja.\n"
TOOLS = {"times": make_tool(lambda a, b: str(a * b), schema=SCHEMA, asks=False, here=True)}
Typed = str | type[BaseException]


@pytest.fixture(scope="module")
def speaker() -> Transformer:
    return trained_speaker()


@pytest.fixture(scope="module")
def checkpoint(speaker: Transformer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("chat") / "checkpoint"
    save_checkpoint(path, speaker)
    return path


def talk(path: Path | str, lines: str, monkeypatch: pytest.MonkeyPatch, **options: Any) -> str:
    """What the chat prints for lines that are not typed at a terminal."""
    monkeypatch.setattr(sys, "stdin", io.StringIO(lines))
    output = io.StringIO()
    options = {"tools": TOOLS, **options}
    who = load_local_model(path) if isinstance(path, Path) else ServerModel(Client(path))
    sampling = Sampling(max_new_tokens=100, temperature=0.0)
    chat(who, sampling, console=Console(file=output, width=200), **options)
    return output.getvalue()


@pytest.fixture
def keyboard(monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """Talks at a terminal: types the lines (or presses the keys that raise an exception); what is on the screen."""

    def at_terminal(path: Path | str, *typed: Typed, **options: Any) -> str:
        keys: Iterator[Typed] = iter([*typed, EOFError])

        def read(prompt: str = "") -> str:
            output.write(prompt)
            value = next(keys)
            if isinstance(value, str):
                return value
            raise value

        monkeypatch.setattr("builtins.input", read)
        monkeypatch.setattr(sys.stdin, "isatty", lambda: True, raising=False)
        output = io.StringIO()
        terminal = Console(file=output, width=200, force_terminal=True, color_system="standard", highlight=False)
        who = load_local_model(path) if isinstance(path, Path) else ServerModel(Client(path))
        chat(who, Sampling(max_new_tokens=100, temperature=0.0), **{"tools": TOOLS, "console": terminal, **options})
        return output.getvalue()

    return at_terminal


def test_a_prompt_is_answered_once(checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert talk(checkpoint, "never read", monkeypatch, prompt=QUESTION) == ANSWER
    assert talk(checkpoint, "", monkeypatch, prompt=GREETING, thinking=False) == "Good day\n"


def test_lines_of_the_input_are_messages_and_commands(checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = [QUESTION, "", FAREWELL, "/reset", "/think", GREETING, "/nonsense", "/exit", QUESTION]
    assert talk(checkpoint, "\n".join(lines), monkeypatch) == (
        ANSWER
        + "See you\n(236 of 256 tokens are used; /reset begins again)\n"
        + "(the conversation begins again)\n(thinking is off)\nGood day\n"
        + "error: there is no command /nonsense\n  fix: /help lists them; a message must not begin with /\n"
    )


@pytest.mark.parametrize(
    ("used", "expected"),
    [
        (100, "(the turn is cut off; --max-new-tokens allows more)\n"),
        (512, "(the turn is cut off)\n(512 of 512 tokens are used; /reset begins again)\n"),
    ],
)
def test_what_helps_when_an_answer_is_cut_off(used: int, expected: str) -> None:
    """More tokens for the answer, or a new conversation where this one is full."""
    said = SimpleNamespace(problems=("the turn is cut off",))
    conversation: Any = SimpleNamespace(messages=[said], model=SimpleNamespace(tokens=lambda: (used, 512)))
    output = io.StringIO()

    def nothing_more() -> Generator[Piece, None, None]:
        yield from ()

    show(nothing_more(), conversation, Console(file=output, width=200))
    assert output.getvalue() == expected


def test_a_terminal_is_asked_until_control_d(checkpoint: Path, keyboard: Callable[..., str]) -> None:
    said = keyboard(checkpoint, KeyboardInterrupt, "", "/help", GREETING, thinking=False)
    for part in (
        "M parameters, chat format tags, 256 tokens, /help for help",
        "Ctrl-D or /exit leaves",
        "/temperature X",
        "/save FILE",
        "Ctrl-C stops an answer",
        "Good day",
    ):
        assert part in said
    assert "<think>" not in said  # colours say it


def test_thinking_is_dimmed_and_calls_are_coloured_on_a_terminal(
    checkpoint: Path, keyboard: Callable[..., str]
) -> None:
    said = keyboard(checkpoint, QUESTION)
    dim, cyan, green, end = "\x1b[2;3m", "\x1b[36m", "\x1b[32m", "\x1b[0m"
    shown = said.replace(end + dim, "").replace(end + cyan, "")  # one run of each style
    assert f"{dim}call it{end}\n{cyan}{{" in shown.replace(f" {end}", end) and f"{green}→ 408" in shown
    assert dim not in said[said.index("It ") :] and "It is 408 — ja." in said


def test_a_message_of_several_lines(keyboard: Callable[..., str]) -> None:
    with fake_server(lambda body: text("ok")) as server:
        keyboard(server.url, '"""one', "two", 'three"""', '"""four"""')
    assert [message["content"] for message in server.bodies[1]["messages"]] == ["one\ntwo\nthree", "ok", "four"]


def test_control_c_stops_an_answer_and_the_talk_goes_on(
    keyboard: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    shown: list[Any] = []
    inner = Printer.show

    def show(printer: Printer, piece: Any) -> None:
        inner(printer, piece)
        shown.append(piece)
        if len(shown) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(Printer, "show", show)
    with fake_server(lambda body: text("one ", "two ", "more ", endless=not body["messages"][1:])) as server:
        said = keyboard(server.url, "count", "and now?", "/exit")
        assert server.left.wait(timeout=10)  # hanging up is what stops a server
    assert "one two \n\x1b[2m(stopped)" in said
    assert server.bodies[1]["messages"] == [
        {"role": "user", "content": "count"},
        {"role": "assistant", "content": "one two "},
        {"role": "user", "content": "and now?"},
    ]


def test_what_goes_wrong_is_red_and_nothing_is_lost(keyboard: Callable[..., str]) -> None:
    replies = iter(
        [
            Reply(status=429, error={"message": "40 requests wait"}, headers={"Retry-After": "3"}),
            text("half an ans", breaks=True),
            text("whole"),
            Reply(status=400, error={"message": "the model's context is 100 tokens, the prompt has 120"}),
        ]
    )
    with fake_server(lambda body: next(replies)) as server:
        said = keyboard(server.url, "hello", "/retry", "/retry", "more", "/tokens")
    assert "\x1b[31merror: " in said and "40 requests wait (HTTP 429)" in said and "try again in 3 seconds" in said
    assert "half an ans" in said and "ended in the middle" in said and "whole" in said
    assert "scripted-1 at http://127.0.0.1:" in said and "begin again with /reset" in said
    assert "(32 of 4,096 (1%) tokens after the last answer)" in said
    sent = [[message["content"] for message in body["messages"]] for body in server.bodies]
    assert sent == [["hello"], ["hello"], ["hello"], ["hello", "whole", "more"]]


def test_save_load_system_temperature_and_retry(
    tmp_path: Path, keyboard: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "talk.json"

    def script(body: dict[str, Any]) -> Reply:
        if body["messages"][-1]["role"] == "tool":
            return Reply([{"reasoning_content": "easy"}, {"content": "It is 408."}])
        return calls("times", '{"a": 12,', ' "b": 34}', thinking="call it")

    with fake_server(script) as server:
        first = keyboard(server.url, "/system Be short.", "/temperature 0.25", "What is 12*34?", f"/save {file}")
        saved = json.loads(file.read_text())
        assert saved["messages"] == server.bodies[1]["messages"] + [
            {"role": "assistant", "content": "It is 408.", "reasoning_content": "easy"}
        ]
        assert saved["messages"][2]["tool_calls"][0]["function"] == {"name": "times", "arguments": '{"a": 12, "b": 34}'}
        assert saved["messages"][3] == {"role": "tool", "content": "408", "tool_call_id": "call_0"}
        assert server.bodies[0]["temperature"] == 0.25 and server.bodies[0]["messages"][0]["content"] == "Be short."
        assert server.bodies[0]["tools"] == [{"type": "function", "function": SCHEMA}]
        said = keyboard(server.url, f"/load {file}", "/think", "/tools", "/retry", "/temperature x", "/load nowhere")
    assert "times \x1b[0m\x1b[36m{" in first and "→ 408" in first
    assert server.bodies[2]["messages"] == saved["messages"][:2]  # all that followed the question is dropped
    assert server.bodies[2]["chat_template_kwargs"] == {"enable_thinking": False} and "tools" not in server.bodies[2]
    assert "'x' is not a number" in said and "/load: " in said and "(5 messages)" in said
    seeds = [body["seed"] for body in server.bodies]
    assert seeds[:2] == [0, 1]


@pytest.mark.parametrize(
    ("answer", "results", "runs"), [("y", ["408"], 1), ("n", ["error: the user did not allow this call"], 0)]
)
def test_a_tool_that_asks_runs_when_the_user_says_so(
    keyboard: Callable[..., str], answer: str, results: list[str], runs: int
) -> None:
    ran: list[dict[str, Any]] = []

    def run(**arguments: Any) -> str:
        ran.append(arguments)
        return "408"

    asking = {"times": make_tool(run, schema=SCHEMA, here=True)}
    script = lambda body: text("done") if body["messages"][-1]["role"] == "tool" else calls("times", '{"a": 1}')  # noqa: E731
    with fake_server(script) as server:
        said = keyboard(server.url, "go", answer, tools=asking)
    assert [message["content"] for message in server.bodies[1]["messages"] if message["role"] == "tool"] == results
    assert len(ran) == runs and "times wants to run" in said and "  a: 1" in said


def test_always_is_remembered_and_nobody_to_ask_means_no(
    keyboard: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    asking = {"times": make_tool(lambda **given: "408", schema=SCHEMA, here=True)}
    script = lambda body: text("done") if body["messages"][-1]["role"] == "tool" else calls("times", '{"a": 1}')  # noqa: E731
    with fake_server(script) as server:
        said = keyboard(server.url, "go", "a", "go again", tools=asking)
        assert said.count("wants to run") == 1 and said.count("→ 408") == 2
        piped = talk(server.url, "go\n", monkeypatch, tools=asking)
        assert "--yes allows it" in piped and "→ 408" not in piped
        assert "→ 408" in talk(server.url, "go\n", monkeypatch, tools=asking, ask=False)


@pytest.mark.parametrize(("context", "length"), [(131_072, LONGEST), (300, 300)])
def test_the_cache_of_a_long_context_is_bounded(
    speaker: Transformer, context: int, length: int, tmp_path: Path
) -> None:
    """A cache for all of a long context would take gigabytes before the first word."""
    long = Transformer(speaker.config.model_copy(update={"context": context}))
    long.load_state_dict(speaker.state_dict())
    long.tokenizer = speaker.tokenizer
    save_checkpoint(tmp_path / "long", long)
    assert load_local_model(tmp_path / "long").tokens() == (0, length)


def test_a_checkpoint_without_a_tokenizer_is_refused(tmp_path: Path) -> None:
    save_checkpoint(tmp_path / "bare", tiny_model())
    with pytest.raises(ArtifactError, match="no tokenizer"):
        load_local_model(tmp_path / "bare")


def test_text_is_no_markup_and_kinds_stand_on_lines_of_their_own() -> None:
    output = io.StringIO()
    printer = Printer(Console(file=output, width=200))
    pieces = [
        ("thinking", "a"),
        ("thinking", "b\n"),
        ("content", "\n\n[bold]x"),
        ("call", "f 1"),
        ("call", ""),
        ("call", "g"),
    ]
    for kind, piece in pieces:
        printer.show(Piece(kind, piece))  # type: ignore[arg-type]
    printer.end()
    assert output.getvalue() == ("<think>ab\n</think>\n[bold]x\n<tool_call>f 1</tool_call>\n<tool_call>g</tool_call>\n")


@pytest.mark.parametrize("cut", [1, 3, 100])
def test_a_terminal_breaks_lines_between_words(cut: int) -> None:
    words = (
        "a line of 20 letters to be broken: the quick brown fox — jumps over 漢字漢字 and\n    an indented line that is long\n"
        + "x" * 30
    )
    output = io.StringIO()
    printer = Printer(Console(file=output, width=20, force_terminal=True, color_system=None))
    for start in range(0, len(words), cut):
        printer.show(Piece("content", words[start : start + cut]))
    printer.end()
    lines = [line.rstrip() for line in output.getvalue().split("\n")]
    assert lines == [
        "a line of 20 letters",
        "to be broken: the",
        "quick brown fox —",
        "jumps over 漢字漢字",
        "and",
        "    an indented line",
        "that is long",
        "x" * 30,
        "",
    ]
