"""How a model's chat format is found, named by hand, and declared in a file of one's own."""

from __future__ import annotations

from pathlib import Path

import pytest

from ingot.tokens.add_tokens import with_template
from ingot.tokens.chat import ChatFormat
from ingot.tokens.format_files import format_file, with_format
from ingot.tokens.message import Message, ToolCall
from ingot.tokens.syntax import Syntax, formats, read_formats
from ingot.tokens.template_files import template_text
from ingot.tokens.tokenizer import FORMAT_FILE, Tokenizer
from ingot.workspace.errors import ArtifactError, DataError, RecipeError
from tests.tokens.formats.wires import SPECIAL, make_tokenizer, sampled, template

OWN = """
mine:
  models: ours
  states:
    content: {"@think ": thinking, "@do ": name}
    thinking: {" @end": content}
    name: {" with ": arguments}
    arguments: {" @end": content}
"""
PYTHON = """
MINE = {
    "states": {
        "content": {"@think ": "thinking", "@do ": "name"},
        "thinking": {" @end": "content"},
        "name": {" with ": "arguments"},
        "arguments": {" @end": "content"},
    }
}
"""
TURN = '@think hm @endOne moment.@do look with {"at": "@end"} @end'
PLAIN = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"


def test_the_format_is_found_by_the_strings_of_the_template() -> None:
    chat = ChatFormat(make_tokenizer(SPECIAL["glm45"], template("glm45")))
    assert (chat.syntax.label, chat.syntax.origin) == ("glm45", "the chat template has <arg_key> and <tool_call>")
    plain = Syntax.of(PLAIN)
    assert (plain.label, plain.origin, plain.thinks, plain.calls) == ("plain", "no mark was found", False, False)
    assert Syntax.of(PLAIN, {"<think>": 1, "</think>": 2}).thinks  # a token counts even if the template prints none
    with pytest.raises(DataError, match=r"tools for a chat template that has no tool calls[\s\S]*--format"):
        ChatFormat(make_tokenizer([], PLAIN)).prompt([Message("user", "?")], [{"name": "f"}])


@pytest.mark.parametrize("written", ["yaml", "py"])
def test_a_format_of_ones_own(tmp_path: Path, written: str) -> None:
    """It goes into the model's folder, where every command finds it."""
    path = tmp_path / f"mine.{written}"
    path.write_text(OWN if written == "yaml" else PYTHON)
    named = with_format(make_tokenizer([], PLAIN), str(path) if written == "yaml" else f"{path}:MINE")
    named.save(tmp_path / "model")
    chat = ChatFormat(Tokenizer.load(tmp_path / "model"))
    assert (chat.syntax.label, chat.syntax.origin) == ("mine", "chat_format.yaml declares it")
    message = chat.parse([*sampled(chat, TURN), chat.turn_end])
    assert message == Message("assistant", "One moment.", "hm", [ToolCall("look", {"at": "@end"})])


def test_a_format_of_the_table_by_its_name() -> None:
    named = with_format(make_tokenizer([], PLAIN), "olmo3")
    assert named.files[FORMAT_FILE] == b"olmo3: {}\n"
    chat = ChatFormat(named)
    assert chat.syntax.states == formats()["olmo3"].states and chat.syntax.origin == "chat_format.yaml names it"
    assert FORMAT_FILE not in with_template(named, template_text("chatml")).files  # it was named for the old template


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("mine: {state: {}}", r"a chat format has no key 'state'[\s\S]*did you mean states"),
        ("mine: {states: {content: {x: thnking}}}", r"no state 'thnking'[\s\S]*did you mean thinking"),
        ("mine: {states: {value: {x: content}}}", "no mark leads to 'value'"),
        ("mine: {states: {content: {x: name}, name: {y: content}}, name: '('}", "is no regular expression"),
        ("mine: {bare: xml}", "bare is 'xml'"),
        ("mine: {bare: json, ids: '{nme}'}", "ids is '{nme}', which has no 'nme'"),
        ("a: {}\nb: {}", "not one chat format"),
        ("mine: {found: [[x]], bare: json}", "a format that is named is not looked for"),
        ("{", "not YAML"),
    ],
)
def test_what_is_wrong_with_a_format_is_named(tmp_path: Path, text: str, problem: str) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(text)
    with pytest.raises(ArtifactError, match=problem):
        format_file(str(path))


def test_an_unknown_name() -> None:
    with pytest.raises(
        RecipeError, match=r"no chat format 'glm_45'[\s\S]*did you mean glm45[\s\S]*or give a YAML file"
    ):
        format_file("glm_45")


def test_no_mark_begins_another() -> None:
    """In no state of the table: which of the two it is would depend on how the text is cut."""
    for label, syntax in formats().items():
        for marks in syntax.states.values():
            assert not [(one, two) for one in marks for two in marks if one != two and two.startswith(one)], label
    with pytest.raises(ArtifactError, match="begins another mark"):
        read_formats("mine: {states: {content: {'<a': thinking, '<ab': call}}}", "mine.yaml")


def test_tokens_of_the_template_are_structure() -> None:
    """DeepSeek's <｜User｜> is no special token in its files; text that spells it is text nevertheless. A word is a word."""
    plain = make_tokenizer([], None)
    backend = type(plain.backend).from_str(plain.backend.to_str())
    backend.add_tokens(["<｜User｜>", "/nothink", "<b>"])
    tokenizer = Tokenizer(backend, "{{ '<｜User｜>' }}{{ '/nothink' }}")
    assert "<｜User｜>" in tokenizer.special and not {"/nothink", "<b>"} & set(tokenizer.special)
    assert (
        tokenizer.special["<｜User｜>"] not in tokenizer.encode("<｜User｜>") and len(tokenizer.encode("/nothink")) == 1
    )


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match=r"no such file[\s\S]*ingot model formats") as refused:
        format_file(str(tmp_path / "none.yaml"))
    assert refused.value.place == str(tmp_path / "none.yaml")
