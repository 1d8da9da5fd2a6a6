"""Plain prompts for base models: equal to transformers with the same text, read back, with the model's own end of a text."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import PreTrainedTokenizerFast

from ingot.tokens.chat import ChatFormat
from ingot.tokens.message import Message
from ingot.tokens.template_files import prompt_names, template_names, template_text
from ingot.tokens.tokenizer import Tokenizer
from tests.tokens.test_foreign import train

END = "<|eos|>"
TEXT = st.text(st.characters(exclude_characters="<>", exclude_categories=["Cs"]), max_size=12).filter(
    lambda text: text == text.strip()
)


@pytest.fixture(scope="module")
def tokenizer(rows: list[dict[str, object]]) -> Tokenizer:
    config = json.dumps({"eos_token": END}).encode()
    return Tokenizer(train([str(row["text"]) for row in rows[:30]], [END]), None, {"tokenizer_config.json": config})


def chat_of(tokenizer: Tokenizer, name: str) -> ChatFormat:
    return ChatFormat(Tokenizer(tokenizer.backend, template_text(name, {"end": END}), tokenizer.files))


@pytest.mark.parametrize("name", prompt_names())
def test_equal_to_transformers(tokenizer: Tokenizer, name: str) -> None:
    chat = chat_of(tokenizer, name)
    backend = type(tokenizer.backend).from_str(tokenizer.backend.to_str())
    peer = PreTrainedTokenizerFast(tokenizer_object=backend, eos_token=END)
    template = template_text(name, {"end": END})
    talk = [Message("user", "How much is 3 + 4?"), Message("assistant", "7"), Message("user", "And <|eos|> 5?")]
    for turns in (1, 3):
        given = [message.to_dict() for message in talk[:turns]]
        wanted = peer.apply_chat_template(
            given[:1], chat_template=template, add_generation_prompt=True, return_dict=False
        )
        assert chat.prompt(talk[:1]) == wanted
    whole = peer.apply_chat_template(
        [message.to_dict() for message in talk[:2]], chat_template=template, return_dict=False
    )
    tokens, mask = chat.conversation(talk[:2])
    assert tokens == whole and tokens[: mask.index(1)] == chat.prompt(talk[:1])
    assert chat.prompt(talk).count(tokenizer.special[END]) == 1, "a question cannot end the text"
    assert chat.turn_end == tokenizer.special[END]


@pytest.mark.parametrize(("name", "thinks"), [("plain", False), ("r1_zero", True)])
def test_what_is_written_is_read_back(tokenizer: Tokenizer, name: str, thinks: bool) -> None:
    chat = chat_of(tokenizer, name)

    @settings(max_examples=30)
    @given(content=TEXT, trace=TEXT if thinks else st.none())
    def check(content: str, trace: str | None) -> None:
        message = Message("assistant", content, trace)
        tokens, mask = chat.conversation([Message("user", "?"), message])
        assert chat.parse([token for token, one in zip(tokens, mask, strict=True) if one]) == message

    check()
    assert chat.syntax.thinks is thinks


def test_an_answer_without_its_tags_is_malformed(tokenizer: Tokenizer) -> None:
    chat = chat_of(tokenizer, "r1_zero")
    for text, content, fine in (
        (" <think> 3 + 4 </think> <answer> 7 </answer>", "7", True),
        (" <think> 3 + 4 </think> 7", "7", False),
        (" <think> 3 + 4 </think> <answer> 7", "<answer> 7", False),
    ):
        message = chat.parse([*tokenizer.encode(text), tokenizer.special[END]])
        assert (message.content.strip(), not message.problems) == (content, fine)
        assert message.thinking == "3 + 4"


def test_a_text_may_end_a_turn(tokenizer: Tokenizer) -> None:
    chat = chat_of(tokenizer, "plain")
    tokens = tokenizer.encode("seven\n\nQ: what")
    assert chat.parse(tokens).problems == [f"no {END}: the turn is cut off"]
    message = chat.parse(tokens, stops=("Q:", "\n\n"))
    assert (message.content, message.problems) == ("seven", [])
    assert chat.parse(tokens, stops=("never",)).problems
    ended = chat.parse([*tokenizer.encode("seven"), tokenizer.special[END]], stops=("\n\n",))
    assert (ended.content, ended.problems) == ("seven", [])


def test_prompts_are_no_chat_templates() -> None:
    assert not set(prompt_names()) & set(template_names())
