"""The statistics of a tokenizer against hand counts and a plain loop; the comparison of real tokenizers."""

from __future__ import annotations

import gzip
import json
import tracemalloc
from pathlib import Path

import pytest
import tiktoken
from typer.testing import CliRunner

from ingot.cli.app import app
from ingot.data.read import streams
from ingot.tokens.bpe.rules import TIKTOKEN
from ingot.tokens.compare import encoder_at, read_ranks, read_texts
from ingot.tokens.config import TokenizerConfig
from ingot.tokens.fertility import measure
from ingot.tokens.tokenizer import Tokenizer
from ingot.tokens.train_tokenizer import train_tokenizer
from ingot.workspace.errors import ArtifactError, DataError


def test_a_tokenizer_without_merges() -> None:
    tokenizer = train_tokenizer(["a"], TokenizerConfig(vocabulary_size=272))
    found = measure(tokenizer.encoder, [("prose", "ab é 7"), ("code", "x"), ("blank", " \n")])
    # Bytes are tokens: "ab é 7" has 7 bytes and 3 words; each word with its blank takes two tokens or more.
    assert found["prose"]["bytes_per_token"] == 1
    assert found["prose"]["fertility"] == round(7 / 3, 4)
    assert found["prose"]["continued_word_share"] == 1
    assert "blank" not in found, "nothing but blanks has no words"
    assert found["all"] == {
        "documents": 3,
        "bytes": 10,
        "tokens": 10,
        "words": 4,
        "bytes_per_token": 1,
        "fertility": 2.5,
        "continued_word_share": 1,
    }


def test_continued_words_count_by_occurrence() -> None:
    tokenizer = train_tokenizer([" cat" * 50], TokenizerConfig(vocabulary_size=275))
    assert len(tokenizer.encode(" cat")) == 1
    found = measure(tokenizer.encoder, [("prose", "cat cat cat dog")])
    assert found["prose"]["continued_word_share"] == 0.25


def test_cl100k_by_language_as_tiktoken_counts(shared_data: Path) -> None:
    path = shared_data / "tokenizers" / "cl100k_base.tiktoken.gz"
    texts = [
        pair
        for pair in read_texts([shared_data / "udhr" / "udhr.jsonl.gz"], "code", 10**9)
        if pair[0] in ("fra", "hin", "zul")
    ]
    name, encoder = encoder_at(path)
    found = measure(encoder, texts)
    ranks = read_ranks(gzip.decompress(path.read_bytes()), "cl100k")
    peer = tiktoken.Encoding("peer", pat_str=TIKTOKEN[name][0], mergeable_ranks=ranks, special_tokens={})
    assert set(found) == {"all", "fra", "hin", "zul"}
    for language in ("fra", "hin", "zul"):
        (text,) = [text for group, text in texts if group == language]
        tokens, words = len(peer.encode_ordinary(text)), text.split()
        continued = sum(len(peer.encode_ordinary(f" {word}")) > 1 for word in words)
        assert found[language]["tokens"] == tokens
        assert found[language]["fertility"] == round(tokens / len(words), 4)
        assert found[language]["continued_word_share"] == round(continued / len(words), 4)
    assert found["hin"]["fertility"] > 2 * found["fra"]["fertility"], "cl100k knows little Hindi"


def test_the_command(tokenizer: Tokenizer, documents: Path, tmp_path: Path) -> None:
    tokenizer.save(tmp_path / "ours")
    train_tokenizer(["a"], TokenizerConfig(vocabulary_size=272)).save(tmp_path / "bytes")
    (tmp_path / "plain.txt").write_text("for x in range(3):\n    pass\n", encoding="utf-8")
    arguments = [
        "tokenizer",
        "compare",
        str(tmp_path / "ours"),
        str(tmp_path / "bytes"),
        "--on",
        str(documents),
        "--by",
        "kind",
    ]
    shown = CliRunner().invoke(app, [*arguments, "--out", str(tmp_path / "numbers.json")])
    assert shown.exit_code == 0, shown.output
    assert all(word in shown.output for word in ("ours", "bytes/token", "prose", "code"))
    numbers = json.loads((tmp_path / "numbers.json").read_text(encoding="utf-8"))
    assert numbers["bytes"]["all"]["bytes_per_token"] == 1
    assert numbers["ours"]["code"]["bytes_per_token"] > 2
    assert numbers["ours"]["all"]["bytes"] == numbers["bytes"]["all"]["bytes"]
    plain = CliRunner().invoke(app, [*arguments[:3], "--on", str(tmp_path / "plain.txt"), "--json"])
    assert json.loads(plain.output)["ours"]["all"]["words"] == 5


def test_a_packed_file_of_any_size_takes_bounded_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A tokenizer's file, and texts: a kilobyte may unpack to gigabytes."""
    monkeypatch.setattr(streams, "WHOLE", 1_000_000)
    for name in ("cl100k_base.tiktoken.gz", "text.txt.gz", "rows.jsonl.gz"):
        path = tmp_path / name
        path.write_bytes(gzip.compress(b" " * 30_000_000))
        tracemalloc.start()
        with pytest.raises((ArtifactError, DataError), match=r"cannot be read: too long \(.*more than 1,000,000 bytes"):
            encoder_at(path) if "tiktoken" in name else list(read_texts([path], None, 10**9))
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 10_000_000


def test_what_cannot_be_compared(tmp_path: Path) -> None:
    (tmp_path / "own.tiktoken").write_bytes(b"YQ== 0\n")
    with pytest.raises(ArtifactError, match="how 'own' splits text"):
        encoder_at(tmp_path / "own.tiktoken")
    (tmp_path / "cl100k_base.tiktoken").write_bytes(b"not base64\n")
    with pytest.raises(ArtifactError, match="not a file of ranks"):
        encoder_at(tmp_path / "cl100k_base.tiktoken")
    with pytest.raises(ArtifactError, match="there is no tokenizer"):
        encoder_at(tmp_path / "nothing")
    whole = gzip.compress(b"YQ== 0\n")
    for content in (whole[:-9], b"no gzip"):
        (tmp_path / "cl100k_base.tiktoken.gz").write_bytes(content)
        with pytest.raises(ArtifactError, match=r"cl100k_base\.tiktoken\.gz: cannot be read: (truncated|damaged)"):
            encoder_at(tmp_path / "cl100k_base.tiktoken.gz")
    (tmp_path / "rows.jsonl").write_text('{"text": "a"}\n', encoding="utf-8")
    with pytest.raises(DataError, match="no column 'kind'"):
        list(read_texts([tmp_path / "rows.jsonl"], "kind", 100))
    (tmp_path / "rows.jsonl").write_text("{", encoding="utf-8")
    with pytest.raises(DataError, match=r"rows\.jsonl: cannot be read"):
        list(read_texts([tmp_path / "rows.jsonl"], None, 100))
