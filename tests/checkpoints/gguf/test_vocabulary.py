"""Tokenizers in GGUF files: llama.cpp gives the ids that they give, and Ingot reads the same tokenizer back."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer as Backend
from tokenizers import models

from ingot.checkpoints.convert import export_gguf
from ingot.checkpoints.gguf.format import GgufFile
from ingot.checkpoints.gguf.read import open_gguf
from ingot.checkpoints.gguf.tokenizer import HUGGINGFACE
from ingot.model.config import ModelConfig
from ingot.model.transformer import Transformer
from ingot.tokens.config import TokenizerConfig
from ingot.tokens.tokenizer import TEMPLATE_FILE, TOKENIZER_CONFIG, TOKENIZER_FILE, Tokenizer
from ingot.tokens.train_tokenizer import train_tokenizer
from ingot.workspace.errors import ArtifactError
from ingot.workspace.progress import Progress
from tests.checkpoints.gguf import llama_cpp

HOSTILE = (
    "It's 1234,  don't\t\n\n def f(x):\r\n    return 'ÄÖ' + \"日本語\" ٣٤ ½ 😀🏽 \u00a0 é e\u0301 I'LL\n ",
    " ",
    "\n",
    "  \n  ",
    "\t\t\r\n\r",
    "a\u2028b\u3000c\ufeff",
    "!❤️ ***️⃣ x",
    "\x01\x7f",
    "नमस्ते दुनिया",
    "İı ǅ ſ 'ſ",
    "x" * 300,
    "1234567890 12 1",
    "<|im_end|> <|im_start|> <|endoftext|>",
    "   leading",
    "trailing   ",
    "a  b   c    d",
    "\u0300\u0301 a\u0300",
)
TAGS = "<think>a</think> <tool_call>b</tool_call>"


def texts() -> list[str]:
    """Hostile ones, and source code."""
    return [*HOSTILE, *Path(json.__file__).read_text(encoding="utf-8").splitlines()]


def real_texts(shared_data: Path) -> list[str]:
    """Those, English and a few lines of 529 languages."""
    with gzip.open(shared_data / "wikitext2/valid.txt.gz", "rt", encoding="utf-8") as file:
        english = file.read().splitlines()[:500]
    with gzip.open(shared_data / "udhr/udhr.jsonl.gz", "rt", encoding="utf-8") as file:
        return [*texts(), *english, *(json.loads(line)["text"][:400] for line in file)]


def written(tokenizer: Tokenizer, path: Path, spare: int = 5) -> Path:
    """A tiny model with this tokenizer, and a few rows that no token has."""
    block = {"mixer": {"heads": 2, "key_value_heads": 1, "head_width": 16}, "feed_forward": {"width": 32}}
    shape = {"vocabulary_size": tokenizer.vocabulary_size + spare, "width": 32, "context": 64, "tied_embeddings": True}
    model = Transformer(ModelConfig.model_validate({**shape, "blocks": {"a": block}, "layers": "a"}))
    model.tokenizer = tokenizer
    return export_gguf(model, path)


def differing(tokenizer: Tokenizer, path: Path, given: list[str]) -> list[str]:
    """The texts that llama.cpp encodes otherwise; Ingot's reading of the file must encode them all alike."""
    model = llama_cpp.open_file(path)  # its vocabulary lives as long as it does
    vocabulary = model.get_vocab()
    back = open_gguf(path).tokenizer()
    assert back is not None
    assert back.encode_batch([*given, TAGS]) == tokenizer.encode_batch([*given, TAGS])
    return [text for text in given if llama_cpp.encode(vocabulary, text) != tokenizer.encode(text)]


def test_smollm2(tmp_path: Path, shared_data: Path) -> None:
    files = shared_data / "tokenizers"
    with gzip.open(files / "smollm2_tokenizer.json.gz") as file:
        state = file.read()
    names = json.dumps({"eos_token": "<|im_end|>", "bos_token": "<|im_start|>"}).encode()
    template = (files / "smollm2_chat_template.jinja").read_bytes()
    tokenizer = Tokenizer.from_files(
        {TOKENIZER_FILE: state, TOKENIZER_CONFIG: names, TEMPLATE_FILE: template}, "smollm2"
    )
    path = written(tokenizer, tmp_path / "model.gguf")
    assert differing(tokenizer, path, real_texts(shared_data)) == []
    metadata, model = GgufFile(path).metadata, llama_cpp.open_file(path)
    assert metadata["tokenizer.ggml.pre"] == "smollm" and HUGGINGFACE not in metadata
    assert model.get_default_chat_template() == template.decode("utf-8")
    vocabulary = model.get_vocab()
    assert (vocabulary.token_bos(), vocabulary.token_eos(), vocabulary.token_eot()) == (1, 2, 0)
    assert vocabulary.is_eog(2) and vocabulary.is_eog(0) and not vocabulary.get_add_bos()


OWN: dict[str, tuple[dict[str, Any], str, bool]] = {  # options, llama.cpp's rule, whether it cuts exactly so
    "cl100k, single": ({"split": "cl100k", "digits": "single"}, "qwen2", True),
    "cl100k, threes": ({"split": "cl100k", "digits": "groups_of_three"}, "smaug-bpe", True),
    "default": ({}, "qwen35", False),
    "o200k": ({"split": "o200k", "digits": "groups_of_three"}, "gpt-4o", False),
}


@pytest.mark.parametrize("name", OWN)
def test_tokenizers_of_our_own(tmp_path: Path, shared_data: Path, name: str) -> None:
    options, rule, exact = OWN[name]
    given = real_texts(shared_data)
    tokenizer = train_tokenizer(given, TokenizerConfig.model_validate({"vocabulary_size": 3000, **options}))
    path = written(tokenizer, tmp_path / "model.gguf")
    assert GgufFile(path).metadata["tokenizer.ggml.pre"] == rule
    different = differing(tokenizer, path, given)
    assert len(different) <= (0 if exact else 0.05 * len(given)), different[:3]
    model = llama_cpp.open_file(path)
    vocabulary = model.get_vocab()
    assert [id for id in range(vocabulary.n_vocab) if vocabulary.is_eog(id)] == [0, 3], (
        "the ends of a text and of a turn"
    )
    assert not vocabulary.get_add_bos() and vocabulary.token_pad() == tokenizer.pad
    ids = [tokenizer.special["<think>"], *tokenizer.encode("a"), tokenizer.special["</think>"]]
    shown = "".join(vocabulary.token_to_piece(id, 0, False) for id in ids)
    assert shown == "<think>a</think>", "llama.cpp's server finds traces in the text"


class Lines(Progress):
    """What is said to the person who exports."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def say(self, text: str) -> None:
        self.lines.append(text)


def test_notes_say_where_llama_cpp_cuts_otherwise(tmp_path: Path) -> None:
    tokenizer = train_tokenizer(texts(), TokenizerConfig(vocabulary_size=600))
    block = {"mixer": {"heads": 2, "key_value_heads": 1, "head_width": 16}, "feed_forward": {"width": 32}}
    config = {"vocabulary_size": 600, "width": 32, "blocks": {"a": block}, "layers": "a"}
    model = Transformer(ModelConfig.model_validate(config))
    model.tokenizer = tokenizer
    said = Lines()
    export_gguf(model, tmp_path / "model.gguf", progress=said)
    assert "cuts a run of signs before a combining mark inside it" in said.lines[0]


def test_a_template_that_never_ends_a_turn(tmp_path: Path) -> None:
    own = train_tokenizer(texts(), TokenizerConfig(vocabulary_size=600, split="cl100k"))
    tokenizer = Tokenizer(own.backend, "{% for message in messages %}{{ message.content }}{% endfor %}")
    model = llama_cpp.open_file(written(tokenizer, tmp_path / "model.gguf"))
    assert model.get_vocab().token_eos() == tokenizer.end_of_text, "the ends of its files are left"


def test_what_llama_cpp_has_no_rule_for(tmp_path: Path) -> None:
    tokenizer = train_tokenizer(texts(), TokenizerConfig(vocabulary_size=600, digits="groups_from_the_right"))
    with pytest.raises(ArtifactError, match=re.escape("by a rule that llama.cpp does not have")) as caught:
        written(tokenizer, tmp_path / "model.gguf")
    assert "train with `split: cl100k` and `digits: single`" in str(caught.value)
    pieces = Tokenizer(Backend(models.BPE({"<unk>": 0, "a": 1}, [], byte_fallback=True, unk_token="<unk>")), None)
    with pytest.raises(ArtifactError, match=re.escape("not this BPE (of sentencepiece")):
        written(pieces, tmp_path / "model.gguf")
    with pytest.raises(ArtifactError, match="the tokenizer has 600 tokens, the model 595"):
        written(train_tokenizer(texts(), TokenizerConfig(vocabulary_size=600)), tmp_path / "model.gguf", spare=-5)
