"""A tiny world for evaluations: a tokenizer, token shards, a model of a few thousand weights and its checkpoint."""

from __future__ import annotations

import inspect
import json
import string
import textwrap
from dataclasses import dataclass
from pathlib import Path

import pytest

from ingot.checkpoints.checkpoint import load_model, save_checkpoint
from ingot.model.config import BlockConfig, InitialConfig, ModelConfig
from ingot.model.feed_forward.dense import FeedForwardConfig
from ingot.model.initialise import initialise
from ingot.model.mixers.attention import AttentionConfig
from ingot.model.transformer import Transformer
from ingot.tokens.chat import ChatFormat
from ingot.tokens.config import TokenizerConfig
from ingot.tokens.shards import SourceWriter, write_index
from ingot.tokens.tokenize import bytes_of_tokens
from ingot.tokens.tokenizer import Tokenizer
from ingot.tokens.train_tokenizer import train_tokenizer


@dataclass(frozen=True)
class World:
    """Everything an evaluation reads."""

    tokenizer: Tokenizer
    model: Transformer
    checkpoint: Path
    shards: Path

    @property
    def chat(self) -> ChatFormat:
        return ChatFormat(self.tokenizer)


def tiny_model(tokenizer: Tokenizer, seed: int) -> Transformer:
    attention = AttentionConfig(heads=2, key_value_heads=1, head_width=8)
    block = BlockConfig(mixer=attention, feed_forward=FeedForwardConfig(width=32))
    config = ModelConfig(
        vocabulary_size=tokenizer.vocabulary_size,
        width=16,
        blocks={"layer": block},
        layers="layer*2",
        context=128,
        initial=InitialConfig(std=0.2),
    )
    model = Transformer(config)
    initialise(model, seed)
    model.tokenizer = tokenizer
    return model.eval()


def write_shards(folder: Path, tokenizer: Tokenizer, texts: list[str]) -> None:
    entries = {}
    for name, members in (("all", texts[::2]), ("validation", texts[1::2])):
        writer = SourceWriter(folder, name, tokenizer.vocabulary_size)
        for number, text in enumerate(members):
            tokens = [*tokenizer.encode(text), tokenizer.end_of_text]
            writer.append(f"{name}-{number}", tokens, len(text.encode("utf-8")), 1.0)
        entries[name] = writer.finish()
    write_index(folder, entries, bytes_of_tokens(tokenizer), tokenizer.end_of_text)


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    folder = tmp_path_factory.mktemp("world")
    modules = (json, string, textwrap)
    texts = [inspect.getsource(value) for module in modules for value in vars(module).values() if _is_ours(value)]
    texts.append("Straße, naïve, 東京: text that is not ASCII. " * 3)
    tokenizer = train_tokenizer(texts, TokenizerConfig(vocabulary_size=400))
    write_shards(folder / "shards", tokenizer, texts)
    save_checkpoint(folder / "checkpoint", tiny_model(tokenizer, seed=1))
    return World(tokenizer, load_model(folder / "checkpoint"), folder / "checkpoint", folder / "shards")


def _is_ours(value: object) -> bool:
    return inspect.isfunction(value) or (inspect.isclass(value) and value.__module__ in ("json", "string", "textwrap"))
