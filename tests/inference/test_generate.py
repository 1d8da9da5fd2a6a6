"""Plain text generation: the text is what the full forward pass picks, token by token."""

from __future__ import annotations

import pytest
import torch

from ingot.inference.generate import generate
from ingot.model.transformer import Transformer
from ingot.tokens.tokenizer import Tokenizer
from ingot.workspace.errors import ArtifactError, IngotError
from tests.inference.conftest import tiny_model
from tests.serve.speaker import speaker_config, train_small_tokenizer


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return train_small_tokenizer()


@pytest.fixture
def speaker(tokenizer: Tokenizer) -> Transformer:
    model = tiny_model(speaker_config(tokenizer, context=96))
    model.tokenizer = tokenizer
    return model


@torch.no_grad()
def best_tokens(model: Transformer, tokens: list[int], count: int) -> list[int]:
    for _ in range(count):
        tokens = [*tokens, int(model(torch.tensor([tokens]))[0, -1].argmax())]
    return tokens


def test_greedy_text_is_the_likeliest_one(speaker: Transformer, tokenizer: Tokenizer) -> None:
    prompt = tokenizer.encode("The sum of 12")
    ids = best_tokens(speaker, prompt, 30)[len(prompt) :]
    ids = ids[: ids.index(tokenizer.end_of_text)] if tokenizer.end_of_text in ids else ids
    assert generate(speaker, "The sum of 12", max_new_tokens=30) == tokenizer.decode(ids)


def test_the_end_of_the_text_ends_it(speaker: Transformer, tokenizer: Tokenizer) -> None:
    prompt = tokenizer.encode("The sum")
    second = best_tokens(speaker, prompt, 2)[-1]
    with torch.no_grad():  # make <|endoftext|> a slightly likelier twin of what comes second
        speaker.embedding.weight[tokenizer.end_of_text] = speaker.embedding.weight[second] * 1.01
    ids = best_tokens(speaker, prompt, 10)[len(prompt) :]
    assert tokenizer.end_of_text in ids[:2]
    expected = tokenizer.decode(ids[: ids.index(tokenizer.end_of_text)])
    assert generate(speaker, "The sum", max_new_tokens=10) == expected


def test_seeds_repeat_and_options_reach_the_engine(speaker: Transformer) -> None:
    first = generate(speaker, "The", temperature=1.0, seed=1, max_new_tokens=20)
    assert generate(speaker, "The", temperature=1.0, seed=1, max_new_tokens=20) == first
    assert generate(speaker, "The", temperature=1.0, seed=2, max_new_tokens=20) != first
    greedy = generate(speaker, "The", max_new_tokens=20)
    assert generate(speaker, "The", temperature=1.0, top_k=1, max_new_tokens=20) == greedy
    assert generate(speaker, "The", temperature=1.0, top_p=1e-9, max_new_tokens=20) == greedy


def test_the_context_bounds_the_text(speaker: Transformer, tokenizer: Tokenizer) -> None:
    prompt = tokenizer.encode("1" * 90)
    assert len(prompt) == 90
    expected = best_tokens(speaker, prompt, 6)[90:]
    assert tokenizer.end_of_text not in expected
    assert generate(speaker, "1" * 90, max_new_tokens=50) == tokenizer.decode(expected)
    with pytest.raises(IngotError, match="leaves no room in the model's context of 96"):
        generate(speaker, "1" * 96)


def test_what_cannot_be_generated_is_refused(speaker: Transformer) -> None:
    with pytest.raises(IngotError, match="the prompt is empty"):
        generate(speaker, "")
    with pytest.raises(ArtifactError, match="the model has no tokenizer"):
        generate(tiny_model(), "Hello")
