"""The tokenizer against its own invariants, the `tokenizers` decoder, and `transformers`."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from transformers import PreTrainedTokenizerFast

from ingot.tokens.bpe.alphabet import byte_level_alphabet
from ingot.tokens.tokenizer import SPECIAL_COUNT, SPECIAL_TOKENS, Tokenizer
from ingot.workspace.errors import ArtifactError, DataError

hostile = st.lists(st.one_of(st.sampled_from(SPECIAL_TOKENS), st.text(max_size=5))).map("".join)


@given(text=st.one_of(st.text(), hostile))
def test_any_text_survives_and_no_special_id_appears(tokenizer: Tokenizer, text: str) -> None:
    ids = tokenizer.encode(text)
    assert tokenizer.decode(ids) == text
    assert all(SPECIAL_COUNT <= id < tokenizer.vocabulary_size for id in ids)


@pytest.mark.parametrize("name", SPECIAL_TOKENS)
def test_a_special_name_in_a_text_is_text(tokenizer: Tokenizer, name: str) -> None:
    ids = tokenizer.encode(name)
    assert not set(ids) & set(tokenizer.special.values())
    assert tokenizer.decode(ids) == name
    assert tokenizer.decode([*ids, tokenizer.special[name]], skip_special=True) == name
    assert tokenizer.decode([tokenizer.special[name]]) == name


@given(data=st.data())
def test_decode_equals_the_library_for_any_ids(tokenizer: Tokenizer, data: st.DataObject) -> None:
    ids = data.draw(st.lists(st.integers(0, tokenizer.vocabulary_size - 1)))
    for skip in (False, True):
        assert tokenizer.decode(ids, skip_special=skip) == tokenizer.backend.decode(ids, skip_special_tokens=skip)


@given(texts=st.lists(st.text()))
def test_batch_equals_one_by_one(tokenizer: Tokenizer, texts: list[str]) -> None:
    assert tokenizer.encode_batch(texts) == [tokenizer.encode(text) for text in texts]


def test_same_ids_in_transformers(tokenizer: Tokenizer, tmp_path: Path, rows: list[dict[str, object]]) -> None:
    tokenizer.save(tmp_path)
    peer = PreTrainedTokenizerFast(tokenizer_file=str(tmp_path / "tokenizer.json"))
    for row in rows[:40]:
        text = str(row["text"])
        assert peer.encode(text, add_special_tokens=False) == tokenizer.encode(text)


def test_save_and_load(tokenizer: Tokenizer, tmp_path: Path) -> None:
    tokenizer.save(tmp_path / "one")
    again = Tokenizer.load(tmp_path / "one")
    assert again.encode("x = 1\n<think>") == tokenizer.encode("x = 1\n<think>")
    assert again.special == {name: number for number, name in enumerate(SPECIAL_TOKENS)}
    assert (again.end_of_text, again.pad, again.chat_template) == (0, 1, tokenizer.chat_template)
    again.save(tmp_path / "two")
    for name in ("tokenizer.json", "chat_template.jinja"):
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()


def test_pieces(tokenizer: Tokenizer) -> None:
    euro = tokenizer.encode("€")
    assert len(euro) > 1, "the corpus has no euro sign, so it takes several byte tokens"
    assert [tokenizer.piece(id) for id in euro] == ["�"] * len(euro)
    assert tokenizer.decode_bytes(euro) == "€".encode()
    assert "".join(map(tokenizer.piece, tokenizer.encode("for x in range"))) == "for x in range"
    assert tokenizer.piece(0) == "<|endoftext|>"


def test_lone_surrogates_become_replacement_characters(tokenizer: Tokenizer) -> None:
    assert tokenizer.decode(tokenizer.encode("a\ud800b\udfffc")) == "a�b�c"
    assert tokenizer.decode(tokenizer.encode_batch(["\ud83d"])[0]) == "�"


def test_byte_alphabet_is_one_to_one() -> None:
    alphabet = byte_level_alphabet()
    assert sorted(alphabet.values()) == list(range(256))
    assert not any(character.isspace() for character in alphabet)


def test_unknown_id(tokenizer: Tokenizer) -> None:
    with pytest.raises(DataError, match="token id 700 is not in the vocabulary of 700"):
        tokenizer.decode([700])


def test_missing_and_damaged_files(tokenizer: Tokenizer, tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match=r"no tokenizer\.json"):
        Tokenizer.load(tmp_path)
    tokenizer.save(tmp_path)
    (tmp_path / "checksums.json").unlink()  # as in a folder of someone else
    whole = (tmp_path / "tokenizer.json").read_text(encoding="utf-8")
    (tmp_path / "tokenizer.json").write_text(whole[:1000], encoding="utf-8")
    with pytest.raises(ArtifactError, match="not a readable tokenizer"):
        Tokenizer.load(tmp_path)
    (tmp_path / "tokenizer.json").write_text(whole, encoding="utf-8")
    (tmp_path / "tokenizer_config.json").write_text("[]", encoding="utf-8")
    with pytest.raises(ArtifactError, match=r"tokenizer_config\.json: not a JSON object"):
        _ = Tokenizer.load(tmp_path).ends


def test_a_flipped_bit_is_found(tokenizer: Tokenizer, tmp_path: Path) -> None:
    """In the name of a token it leaves a tokenizer that can be read and gives other ids."""
    tokenizer.save(tmp_path)
    path = tmp_path / "tokenizer.json"
    whole = path.read_bytes()
    at = whole.index(b"<|reserved_") + 3
    path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
    with pytest.raises(ArtifactError, match=r"its sha256 is not the one in checksums\.json") as caught:
        Tokenizer.load(tmp_path)
    assert caught.value.place == str(path) and "make the tokenizer again" in str(caught.value)
    (tmp_path / "checksums.json").rename(tmp_path / "aside")
    assert Tokenizer.load(tmp_path).special != tokenizer.special
    (tmp_path / "aside").rename(tmp_path / "checksums.json")
    path.write_bytes(whole)
    (tmp_path / "chat_template.jinja").unlink()
    with pytest.raises(ArtifactError, match=r"chat_template\.jinja: a file of the tokenizer is missing"):
        Tokenizer.load(tmp_path)
    (tmp_path / "checksums.json").write_text("[" * 100_000)
    with pytest.raises(ArtifactError, match=r"checksums\.json: the file is damaged"):
        Tokenizer.load(tmp_path)
