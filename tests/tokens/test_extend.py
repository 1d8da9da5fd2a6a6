"""Continued training of a tokenizer: as if it had been trained in one go, by the library; old ids unchanged."""

from __future__ import annotations

import inspect
import json
import pydoc
import textwrap
from pathlib import Path

import pytest
from tokenizers import Tokenizer as Backend
from tokenizers import decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from ingot.tokens.extend import extend_tokenizer, new_tokens
from ingot.tokens.tokenizer import Tokenizer
from ingot.workspace.errors import ArtifactError
from tests.tokens.test_foreign import sentencepiece, train

CODE = [inspect.getsource(pydoc), inspect.getsource(textwrap)]
GERMAN = ["Der schnelle braune Fuchs springt über den faulen Hund. Übermut tut selten gut, sagte die Großmutter. " * 20]


def trained(size: int, texts: list[str]) -> Backend:
    """The library's own training."""
    backend = Backend(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        min_frequency=2,
        special_tokens=["<|endoftext|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    backend.train_from_iterator(texts, trainer)
    backend.decoder = decoders.ByteLevel()
    return backend


@pytest.mark.parametrize("first", [257, 300, 900])
def test_two_halves_are_the_whole(first: int) -> None:
    """Trained to `first` tokens and extended on the same text: the library's merges for the whole size, in their order."""
    extended = extend_tokenizer(Tokenizer(trained(first, CODE), None), CODE, 1200)
    ours, theirs = (json.loads(each.to_str())["model"] for each in (extended.backend, trained(1200, CODE)))
    assert len(theirs["vocab"]) == 1200
    assert ours["merges"] == theirs["merges"] and ours["vocab"] == theirs["vocab"]


def test_a_new_domain_needs_fewer_tokens_and_old_ids_stay(tmp_path: Path) -> None:
    old = Tokenizer(train(CODE, ["<|endoftext|>"]), None)
    old.backend.add_special_tokens(["<|im_end|>"])  # behind the vocabulary, as Qwen's are
    old = Tokenizer(old.backend, None)
    extended = extend_tokenizer(old, GERMAN, old.vocabulary_size + 40)
    extended.save(tmp_path)
    new = Tokenizer.load(tmp_path)
    assert new.vocabulary_size == old.vocabulary_size + 40
    before, after = old.backend.get_vocab(with_added_tokens=True), new.backend.get_vocab(with_added_tokens=True)
    assert before.items() <= after.items() and len(new_tokens(old, new)) == 40
    assert new.special == old.special and after["<|im_end|>"] == 600
    text = GERMAN[0]
    assert len(new.encode(text)) < 0.6 * len(old.encode(text))
    peer = PreTrainedTokenizerFast(tokenizer_file=str(tmp_path / "tokenizer.json"))
    for one in (text, CODE[1], "日本 \x00 é\n"):
        assert new.decode(new.encode(one)) == one
        assert peer.encode(one, add_special_tokens=False) == new.encode(one) == new.encode_batch([one])[0]
    assert peer.convert_tokens_to_ids("<|im_end|>") == 600


def test_what_cannot_be_extended() -> None:
    old = Tokenizer(train(CODE, ["<|endoftext|>"]), None)
    with pytest.raises(ArtifactError, match="already has 600 tokens"):
        extend_tokenizer(old, GERMAN, 600)
    with pytest.raises(ArtifactError, match="only byte-level BPE"):
        extend_tokenizer(Tokenizer(sentencepiece(CODE, "always"), None), GERMAN, 2000)
    with pytest.raises(ArtifactError, match="does not extend this one"):
        new_tokens(old, Tokenizer(train(GERMAN, ["<|endoftext|>"]), None))
