"""Servers for the tests: one whose model knows its lines, and slow ones to do something while they answer."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from openai import OpenAI

from ingot.inference.engine import Engine
from ingot.model.transformer import Transformer
from ingot.tokens.chat import ChatFormat
from ingot.tokens.tokenizer import Tokenizer
from tests.serve.openai.harness import Running, serving, untrained
from tests.serve.speaker import train_small_tokenizer, trained_speaker


@pytest.fixture(scope="session")
def tokenizer() -> Tokenizer:
    return train_small_tokenizer()


@pytest.fixture(scope="session")
def chat_format(tokenizer: Tokenizer) -> ChatFormat:
    return ChatFormat(tokenizer)


@pytest.fixture(scope="session")
def speaker() -> Transformer:
    return trained_speaker()


@pytest.fixture(scope="session")
def server(speaker: Transformer) -> Iterator[Running]:
    with serving(Engine(speaker, slots=8)) as running:
        yield running


@pytest.fixture(scope="session")
def client(server: Running) -> OpenAI:
    return server.client


@pytest.fixture(scope="session")
def babbler(tokenizer: Tokenizer) -> Iterator[Running]:
    """A model that writes noise, with room for long prompts: what it writes well it writes because it must.

    Its reward head gives it every route that a server may have.
    """
    with serving(Engine(untrained(tokenizer, heads=("reward",)), slots=8)) as running:
        yield running
