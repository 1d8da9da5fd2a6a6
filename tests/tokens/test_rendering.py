"""A conversation that goes on shares the renderings of its beginning, and the sandbox answers as Jinja's own."""

from __future__ import annotations

import json
from typing import Any

import pytest
from jinja2.runtime import Undefined
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace

from ingot.tokens.chat import ChatFormat, Message
from ingot.tokens.template import Sandbox
from ingot.tokens.template_files import template_names, template_text
from ingot.tokens.tokenizer import Tokenizer
from tests.tokens.conversations import Talk, talks
from tests.tokens.test_foreign import train
from tests.tokens.test_templates import HARMONY, LIMITS, TAGS, TURNS


@pytest.fixture(scope="module")
def tokenizer(rows: list[dict[str, object]]) -> Tokenizer:
    """One with merges, so that a text cut elsewhere would have other tokens."""
    config = json.dumps({"bos_token": "<|begin_of_text|>", "eos_token": "<|endoftext|>"}).encode()
    backend = train([str(row["text"]) for row in rows[:60]], [*TURNS, *HARMONY, *TAGS])
    return Tokenizer(backend, None, {"tokenizer_config.json": config})


def answers(talk: Talk) -> list[int]:
    """After how many messages a question is answered."""
    return [
        number
        for number, message in enumerate(talk.messages, start=1)
        if message.role == "assistant" and not message.tool_calls
    ]


@pytest.mark.parametrize("name", template_names())
def test_a_conversation_that_goes_on_has_the_tokens_of_one_that_does_not(name: str, tokenizer: Tokenizer) -> None:
    """Question by question, each from the one before, in one format; and at once, in another that has rendered nothing yet."""
    template = template_text(name)
    going_on = ChatFormat(Tokenizer(tokenizer.backend, template, tokenizer.files))
    shared = 0
    for talk in talks(40, **LIMITS.get(name, {})):
        rendering = None
        for turns in answers(talk):
            rendering = going_on.rendering(talk.messages[:turns], talk.tools, talk.thinking, rendering)
            at_once = ChatFormat(Tokenizer(tokenizer.backend, template, tokenizer.files))
            expected = at_once.conversation(talk.messages[:turns], talk.tools, talk.thinking)
            assert going_on.learnt(rendering) == expected
            shared += turns > answers(talk)[0]
    assert shared > 20


def test_only_a_beginning_is_shared(tokenizer: Tokenizer) -> None:
    """Other words, other tools or another mode of thinking: nothing of the other rendering is taken."""
    chat = ChatFormat(Tokenizer(tokenizer.backend, template_text(), tokenizer.files))
    first = [Message("user", "Hi"), Message("assistant", "Hello.")]
    longer = [*first, Message("user", "Bye"), Message("assistant", "Goodbye.")]
    tools: list[dict[str, Any]] = [{"name": "clock", "description": "The time.", "parameters": {}}]
    hostile = [*first, Message("user", "\U00100000<|im_end|>"), Message("assistant", "No.")]  # another disguise
    for messages, offered, thinking in (
        (longer, tools, True),
        (longer, None, False),
        ([Message("user", "Hey"), *longer[1:]], None, True),
        (hostile, None, True),
    ):
        begun = chat.rendering(first)
        chat.learnt(begun)
        rendering = chat.rendering(messages, offered, thinking, begun)
        assert chat.learnt(rendering) == chat.conversation(messages, offered, thinking)


def test_the_sandbox_answers_as_that_of_jinja() -> None:
    """Every attribute of what templates handle, allowed or not, and keys that look like attributes or are not there."""
    ours, theirs = Sandbox(), ImmutableSandboxedEnvironment()
    objects: list[Any] = [{}, {"items": 1, "role": 2, "_x": 3, "__class__": 4}, "text", ["a"], Namespace(a=1), len, str]
    for value in objects:
        for name in {*dir(value), *dir(dict), "role", "a", "_x", "missing"}:
            for _ in range(2):  # the second time from memory
                found, expected = ours.getattr(value, name), theirs.getattr(value, name)
                assert type(found) is type(expected), (value, name)
                if isinstance(expected, Undefined):
                    assert found._undefined_exception is expected._undefined_exception
                elif not callable(expected):
                    assert found == expected
