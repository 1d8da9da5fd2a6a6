"""Any tokenizer.json: the same ids as the `tokenizers` library, by the CPU kernel where the file allows it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers, trainers
from tokenizers import Tokenizer as Backend

from ingot.data.text.texts import Texts
from ingot.tokens.bpe.exact import ExactEncoder, exact_encoder
from ingot.tokens.config import TokenizerConfig
from ingot.tokens.tokenizer import SPECIAL_TOKENS, Tokenizer
from ingot.tokens.train_tokenizer import train_tokenizer
from tests.tokens.bpe.conftest import any_text

LLAMA3 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"


def library(backend: Backend, texts: list[str]) -> list[list[int]]:
    return [encoding.ids for encoding in backend.encode_batch_fast(texts, add_special_tokens=False)]


def ours(encoder: ExactEncoder, texts: list[str]) -> list[list[int]]:
    return encoder.encode(Texts.of(texts)).lists()


def trained(texts: list[str], pre_tokenizer: Any, **options: Any) -> Backend:
    """A tokenizer as other people make them."""
    backend = Backend(models.BPE(**options))
    backend.pre_tokenizer, backend.decoder = pre_tokenizer, decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=800,
        special_tokens=["<|endoftext|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    backend.train_from_iterator(texts, trainer)
    backend.encode_special_tokens = True
    return backend


@pytest.fixture(scope="module")
def backends(rows: list[dict[str, object]]) -> dict[str, Backend]:
    texts = [str(row["text"]) for row in rows] + ["Qué année été ünïcode it's 12345 中文字 中文 हिन्दी"] * 5
    split = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex(LLAMA3), "isolated"), pre_tokenizers.ByteLevel(False, use_regex=False)]
    )
    found = {
        "gpt2": trained(texts, pre_tokenizers.ByteLevel(add_prefix_space=False)),
        "blank in front": trained(texts, pre_tokenizers.ByteLevel(add_prefix_space=True)),
        "whole words": trained(texts, split, ignore_merges=True),
        "normalised": trained(texts, split),
        "added": trained(texts, split),
    }
    found["normalised"].normalizer = normalizers.NFC()
    state = json.loads(found["whole words"].to_str())
    state["model"]["merges"] = state["model"]["merges"][:300]  # so that some tokens cannot be reached by merging
    found["whole words"] = Backend.from_str(json.dumps(state))
    found["added"].add_tokens([AddedToken("<tool>", lstrip=True), AddedToken("é", normalized=True), "  \n"])
    for backend in found.values():
        backend.encode_special_tokens = True
    for split_name, digits in (
        ("words_with_marks", "single"),
        ("cl100k", "groups_from_the_right"),
        ("o200k", "groups_of_three"),
    ):
        config = TokenizerConfig.model_validate({"vocabulary_size": 800, "split": split_name, "digits": digits})
        found[split_name] = train_tokenizer(texts, config).backend
    return found


NAMES = ["gpt2", "blank in front", "whole words", "normalised", "added", "words_with_marks", "cl100k", "o200k"]


@pytest.mark.parametrize("name", NAMES)
def test_the_same_ids_for_any_text(name: str, backends: dict[str, Backend], real_texts: list[str]) -> None:
    backend = backends[name]
    encoder = exact_encoder(backend)
    assert encoder.fast, encoder.reason
    hostile = st.one_of(
        any_text,
        st.lists(st.sampled_from([*SPECIAL_TOKENS, "<tool>", " <tool>x", "é", "e\u0301", "  \n", "x"])).map("".join),
    )

    @given(texts=st.lists(hostile, max_size=8))
    def check(texts: list[str]) -> None:
        assert ours(encoder, texts) == library(backend, texts)

    check()
    assert ours(encoder, real_texts[::12]) == library(backend, real_texts[::12])


def test_smollm2(smollm2: Tokenizer, real_texts: list[str]) -> None:
    assert smollm2.encoder.fast
    assert ours(smollm2.encoder, real_texts[::2]) == library(smollm2.backend, real_texts[::2])
    control = [chr(code) for code in range(256)] + ["a\x05b", "\x05", chr(0x50000), f"x{chr(0x90000)}y 12"]
    assert ours(smollm2.encoder, control) == library(smollm2.backend, control), "bytes without a token are left out"


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=any_text)
def test_smollm2_on_any_text(smollm2: Tokenizer, text: str) -> None:
    assert ours(smollm2.encoder, [text])[0] == smollm2.encode(text)


def test_what_is_not_known_is_left_to_the_library(rows: list[dict[str, object]]) -> None:
    texts = [str(row["text"]) for row in rows[:40]]
    own = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex(r"\w+|\W"), "isolated"), pre_tokenizers.ByteLevel(False, use_regex=False)]
    )
    unknown = {
        "its rule for cutting": trained(texts, own),
        "not BPE": Backend(models.WordLevel({"a": 0, "[UNK]": 1}, unk_token="[UNK]")),
        "cuts or pads": trained(texts, pre_tokenizers.ByteLevel(False)),
        "normaliser Lowercase": trained(texts, pre_tokenizers.ByteLevel(False)),
    }
    unknown["cuts or pads"].enable_truncation(7)
    unknown["normaliser Lowercase"].normalizer = normalizers.Lowercase()
    for reason, backend in unknown.items():
        encoder = exact_encoder(backend)
        assert not encoder.fast
        assert reason in encoder.reason
        assert ours(encoder, [*texts, ""]) == library(backend, [*texts, ""])
        assert encoder.encode(Texts.of(["a", ""]), end=5).lists() == [[*backend.encode("a").ids, 5], [5]]


def test_a_tokenizer_we_misread_is_left_to_the_library(
    backends: dict[str, Backend], monkeypatch: pytest.MonkeyPatch
) -> None:
    from ingot.tokens.bpe import exact
    from ingot.tokens.bpe.rules import CL100K

    monkeypatch.setattr(exact, "rules_of", lambda state: CL100K)
    encoder = exact_encoder(backends["gpt2"])
    assert not encoder.fast
    assert "trial text" in encoder.reason


def test_large_batches_go_through_it(tokenizer: Tokenizer, rows: list[dict[str, object]]) -> None:
    texts = [str(row["text"]) for row in rows] * 3 + ["a\ud800b"]
    again = Tokenizer(tokenizer.backend, None)
    assert again.encode_batch(texts[:3]) == library(tokenizer.backend, texts[:3])
    assert "encoder" not in vars(again), "a small batch does not pay for it"
    found = again.encode_batch(texts)
    assert again.encoder.fast
    assert found[:-1] == library(tokenizer.backend, texts[:-1])
    assert found[-1] == again.encode("a�b")
