"""The cuts against the regular expressions themselves, run by the `tokenizers` library."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Regex, pre_tokenizers

from ingot.data.text.texts import Texts
from ingot.tokens.bpe.pretokens import pretokens
from ingot.tokens.bpe.rules import GPT2, PATTERNS, TIKTOKEN, Rules, rules_of, split_pattern
from tests.tokens.bpe.conftest import any_text

POSSESSIVE = {
    pattern for pattern, _ in TIKTOKEN.values() if "++" in pattern
}  # only tiktoken reads these: test_encoder.py


def pieces(texts: list[str], rules: Rules) -> list[list[str]]:
    column = Texts.of(texts)
    ends, firsts = pretokens(column, rules)
    bounds = [0, *ends.tolist()]
    cut = [column.data[start:stop].tobytes().decode() for start, stop in pairwise(bounds)]
    return [cut[start:stop] for start, stop in pairwise(firsts.tolist())]


@pytest.mark.parametrize("pattern", sorted(set(PATTERNS) - POSSESSIVE))
@settings(max_examples=40)
@given(texts=st.lists(any_text, min_size=1, max_size=20))
def test_every_known_expression(pattern: str, texts: list[str]) -> None:
    peer = pre_tokenizers.Split(Regex(pattern), "isolated")
    expected = [[piece for piece, _ in peer.pre_tokenize_str(text)] for text in texts]
    assert pieces(texts, PATTERNS[pattern]) == expected


@settings(max_examples=40)
@given(texts=st.lists(any_text, min_size=1, max_size=20))
def test_digits_before_everything_else(texts: list[str]) -> None:
    gpt2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
    peer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.Split(Regex(gpt2), "isolated")]
    )
    expected = [[piece for piece, _ in peer.pre_tokenize_str(text)] for text in texts]
    assert pieces(texts, GPT2._replace(digits_first=True)) == expected


def test_digit_rules_by_hand() -> None:
    cuts = {
        digits: pieces(["1234567 12"], PATTERNS[split_pattern("cl100k", digits)])[0]
        for digits in ("single", "groups_of_three", "groups_from_the_right")
    }
    assert cuts["single"] == [*"1234567", " ", *"12"]
    assert cuts["groups_of_three"] == ["123", "456", "7", " ", "12"]
    assert cuts["groups_from_the_right"] == ["1", "234", "567", " ", "12"]


def test_what_is_not_known_is_not_guessed() -> None:
    bytes_only = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    split = {"type": "Split", "pattern": {"Regex": r"\w+"}, "behavior": "Isolated", "invert": False}
    assert rules_of(None) is None
    assert rules_of({"type": "Whitespace"}) is None
    assert rules_of({"type": "Sequence", "pretokenizers": [split, bytes_only]}) is None
    known = {**split, "pattern": {"Regex": split_pattern("o200k", "single")}}
    assert rules_of({"type": "Sequence", "pretokenizers": [known, bytes_only]}) is not None
    assert rules_of({"type": "Sequence", "pretokenizers": [{**known, "behavior": "Removed"}, bytes_only]}) is None
    with_blank = {**bytes_only, "add_prefix_space": True}
    assert rules_of({"type": "Sequence", "pretokenizers": [known, with_blank]}) is None
