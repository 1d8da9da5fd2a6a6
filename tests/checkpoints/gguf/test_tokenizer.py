"""The tokenizer in a GGUF file: SmolLM2's against its own tokenizer.json, the rules against the models' regular expressions."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Regex, pre_tokenizers
from tokenizers import Tokenizer as Backend
from transformers.models.qwen2.tokenization_qwen2 import PRETOKENIZE_REGEX

from ingot.checkpoints.gguf.format import GgufFile
from ingot.checkpoints.gguf.tokenizer import RULES, tokenizer_files
from ingot.tokens.bpe.alphabet import byte_level_alphabet
from ingot.tokens.chat import ChatFormat, Message
from ingot.tokens.tokenizer import Tokenizer
from ingot.workspace.errors import ArtifactError
from tests.making.rows import read_rows

HOSTILE = (
    "It's 1234,  don't\t\n\n def f(x):\r\n    return 'ÄÖ' + \"日本語\" ٣٤ ½ 😀🏽 <|im_end|> \u00a0 é e\u0301 I'LL\n "
)


@pytest.fixture(scope="module")
def smollm2_tokenizer(smollm2: Path) -> Tokenizer:
    return Tokenizer.from_files(tokenizer_files(GgufFile(smollm2).metadata, str(smollm2)), str(smollm2))


def test_smollm2_equals_its_own_tokenizer(smollm2_tokenizer: Tokenizer, shared_data: Path) -> None:
    """On WikiText-2, a few lines of 529 languages, and source code."""
    with gzip.open(shared_data / "tokenizers/smollm2_tokenizer.json.gz", "rt", encoding="utf-8") as file:
        peer = Backend.from_str(file.read())
    peer.encode_special_tokens = True
    texts = [HOSTILE]
    with gzip.open(shared_data / "wikitext2/valid.txt.gz", "rt", encoding="utf-8") as file:
        texts += file.read().splitlines()
    texts += [row["text"][:600] for row in read_rows(shared_data / "udhr/udhr.jsonl.gz")]
    texts += Path(json.__file__).read_text(encoding="utf-8").splitlines()
    texts += Path(pytest.__file__).read_text(encoding="utf-8").splitlines()
    expected = [encoding.ids for encoding in peer.encode_batch_fast(texts, add_special_tokens=False)]
    assert smollm2_tokenizer.encode_batch(texts) == expected
    assert [smollm2_tokenizer.decode(ids) for ids in expected] == texts


def test_smollm2_in_a_conversation(smollm2_tokenizer: Tokenizer) -> None:
    tokenizer = smollm2_tokenizer
    assert (tokenizer.vocabulary_size, tokenizer.end_of_text, tokenizer.pad) == (49_152, 0, 2)
    assert (tokenizer.ends, tokenizer.opening) == ((0, 2), [])
    assert not tokenizer.exact, "it has no token for some control characters"
    chat = ChatFormat(tokenizer)
    assert chat.stop_tokens == (2, 0)
    assert tokenizer.decode(chat.prompt([Message("user", HOSTILE)])) == (
        "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n"
        f"<|im_start|>user\n{HOSTILE}<|im_end|>\n<|im_start|>assistant\n"
    )


def metadata(pre: str, **changes: Any) -> dict[str, Any]:
    """A vocabulary of bytes, two merges, and special tokens at both ends."""
    tokens = ["<s>", *byte_level_alphabet(), "ab", "abc", "<think>", "<e>", "[PAD1]"]
    types = [3, *[1] * 258, 4, 3, 5]
    values = {
        "model": "gpt2",
        "pre": pre,
        "tokens": tokens,
        "token_type": types,
        "merges": ["a b", "ab c"],
        "bos_token_id": 0,
        "eos_token_id": 260,
    }
    return {f"tokenizer.ggml.{key}": value for key, value in (values | changes).items()}


def build(pre: str, **changes: Any) -> Tokenizer:
    return Tokenizer.from_files(tokenizer_files(metadata(pre, **changes), "x"), "x")


def pieces(tokenizer: Tokenizer, text: str) -> list[str]:
    return [piece for piece, _ in tokenizer.backend.pre_tokenizer.pre_tokenize_str(text)]


@pytest.mark.parametrize("pre", RULES)
def test_every_rule_gives_a_tokenizer(pre: str) -> None:
    tokenizer = build(pre)
    ids = tokenizer.encode(HOSTILE + "abc")
    if pre != "qwen2":  # which composes é
        assert tokenizer.decode(ids) == HOSTILE + "abc"
    assert tokenizer.piece(ids[-1]) == "abc"
    assert tokenizer.special == {"<s>": 0, "<think>": 259, "<e>": 260}, "structure is special, whatever its type"
    assert tokenizer.vocabulary_size == 261, "unused tokens are no tokens"
    assert tokenizer.ends == (260,)
    assert tokenizer.opening == ([0] if pre == "llama-bpe" else [])
    assert build(pre, add_bos_token=True).opening == [0]
    assert build(pre, add_bos_token=False, eot_token_id=257).ends == (260, 257)


def test_rules_cut_as_the_models_do() -> None:
    split = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex(PRETOKENIZE_REGEX), "isolated"), pre_tokenizers.ByteLevel(False, use_regex=False)]
    )
    expected = [piece for piece, _ in split.pre_tokenize_str(HOSTILE)]
    assert pieces(build("qwen2"), HOSTILE) == expected
    assert pieces(build("llama-bpe"), "a 12345 b") == ["a", "Ġ", "123", "45", "Ġb"]
    assert pieces(build("smollm"), "a 123 b") == ["a", "Ġ", "1", "2", "3", "Ġb"]
    assert pieces(build("gpt-2"), "a 123 b") == ["a", "Ġ123", "Ġb"]


def test_unknown_and_damaged_tokenizers() -> None:
    with pytest.raises(ArtifactError, match="kind 'llama' with the rule 'gpt-2'"):
        build("gpt-2", model="llama")
    with pytest.raises(ArtifactError, match="the rule 'tekken', which Ingot does not read"):
        build("tekken")
    with pytest.raises(ArtifactError, match=r"tokenizer\.ggml\.merges is not a list of str"):
        build("gpt-2", merges=3)
    with pytest.raises(ArtifactError, match="262 tokens, 1 types"):
        build("gpt-2", token_type=[1])
    with pytest.raises(ArtifactError, match="not a readable tokenizer"):
        build("gpt-2", merges=["no such tokens"])
