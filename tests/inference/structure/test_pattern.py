"""Regular expressions: the same language as Python's `re`, and errors that say what is not supported."""

from __future__ import annotations

import itertools
import random
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingot.inference.structure.constraint import compile_regex
from ingot.inference.structure.errors import StructureError
from ingot.tokens.tokenizer import Tokenizer
from tests.inference.structure.walking import accepts, write

LETTERS = "ab0_ é日😀\n-]^\\."


def escaped(character: str) -> str:
    return "\\" + character if character in "\\.^$*+?{}[]()|-" else character


literals = st.sampled_from(LETTERS).map(lambda c: re.escape(c) if c.isascii() else c)
members = st.one_of(
    st.sampled_from(LETTERS).map(escaped),
    st.sampled_from(
        ["a-c", "0-9", "é-ü", "一-鿿", "\\d", "\\w", "\\s", "\\D", "\\W", "😀-🙏", "ࠀ-￿", "\\x00-\\U0010ffff"]
    ),
)
classes = st.builds(
    lambda negated, parts: f"[{'^' if negated else ''}{''.join(parts)}]",
    st.booleans(),
    st.lists(members, min_size=1, max_size=3),
)
atoms = st.one_of(
    literals, classes, st.sampled_from([".", "\\d", "\\w", "\\s", "\\S", "\\n", "\\u00e9", "\\x41", "()"])
)
signs = st.sampled_from(["*", "+", "?", "{2}", "{1,3}", "{2,}", "*?", "{0}", "{0,1}"])


def larger(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.one_of(
        st.lists(inner, min_size=0, max_size=3).map(lambda parts: f"(?:{'|'.join(parts)})"),
        st.lists(inner, min_size=1, max_size=3).map("".join),
        st.builds(lambda part, sign: f"({part}){sign}", inner, signs),
        inner.map(lambda part: f"(?P<name>{part})" if "?P<" not in part else part),
    )


patterns = st.recursive(atoms, larger, max_leaves=6).map(lambda p: re.sub(r"\?P<name>", "", p, count=0))
SHORT = ["".join(letters) for length in range(4) for letters in itertools.product("ab0é日\n", repeat=length)]
NEAR = "abc9 _é鿿😀\n-A\0"


@given(pattern=patterns, seed=st.integers(0, 1 << 30))
def test_same_language_as_re(single_bytes: Tokenizer, pattern: str, seed: int) -> None:
    """On all short texts of a few letters, on texts that the masks write, and on such with one character changed."""
    compiled = re.compile(pattern, re.ASCII)
    matching = {text for text in SHORT if compiled.fullmatch(text)}
    try:
        constraint = compile_regex(pattern, single_bytes)
    except StructureError as error:  # only where nothing matches, as [^\\x00-\\U0010ffff]
        assert "no text satisfies it" in str(error) and "[^" in pattern and not matching
        return
    assert {text for text in SHORT if accepts(constraint, text)} == matching
    chance = random.Random(seed)
    for _ in range(3):
        written = write(constraint, single_bytes, chance, patience=12)
        if written is None:  # as .*a, which chance does not end
            continue
        text = written.decode()
        assert compiled.fullmatch(text), text
        at = chance.randrange(len(text) + 1)
        for other in (text[:at] + chance.choice(NEAR) + text[at + 1 :], text[:at] + text[at + 1 :]):
            assert accepts(constraint, other) == bool(compiled.fullmatch(other)), other


@pytest.mark.parametrize(
    ("pattern", "inside", "outside"),
    [
        ("^ab$", ["ab"], ["a", "ab\n", "xab"]),
        ("^a|b$", ["a", "b"], ["ab", ""]),
        ("[]a]+[^]]", ["]a]x"], ["]]", "a"]),
        ("[a-]", ["a", "-"], ["b"]),
        ("(?i)ab", ["aB", "AB"], ["a"]),
        ("(a|b)*c{3}", ["ababccc", "ccc"], ["ab", "cc"]),
        ("(a*)*(b?){5}", ["", "aaa", "abbbbb"], ["bbbbbb", "ba"]),
        ("x{300}", ["x" * 300], ["x" * 299, "x" * 301]),
        pytest.param("x{2000}", ["x" * 2000], ["x" * 1999, "x" * 2001], marks=pytest.mark.slow),
        ("(ab?){0,900}", ["", "ab" * 900], ["ab" * 901, "bb"]),
        ("[à-ÿ]+|日本?", ["éü", "日", "日本"], ["a", "本", "÷x"]),
        (r"\$\.\-\/\\", ["$.-/\\"], ["$.-/"]),
        ("", [""], ["a"]),
    ],
)
def test_by_hand(single_bytes: Tokenizer, pattern: str, inside: list[str], outside: list[str]) -> None:
    constraint = compile_regex(pattern, single_bytes)
    for text in inside:
        assert re.fullmatch(pattern, text, re.ASCII) and accepts(constraint, text), text
    for text in outside:
        assert not re.fullmatch(pattern, text, re.ASCII) and not accepts(constraint, text), text


@pytest.mark.parametrize(
    ("pattern", "problem"),
    [
        (r"(a)\1", "backreferences are not supported"),
        ("(?P<n>a)(?P=n)", "unrecognized flag"),
        ("a(?=b)", "look-around, including look-ahead and look-behind, is not supported"),
        ("a(?<!b)", "look-around, including look-ahead and look-behind, is not supported"),
        (r"a\b", "lookarounds not supported"),
        ("(?>a)", "unrecognized flag"),
        ("*a", "missing expression"),
        ("a^b", "lookarounds not supported"),
        ("(a", "unclosed group"),
        ("a)", "unopened group"),
        ("[a", "unclosed character class"),
        ("[z-a]", "invalid character class range"),
        ("a{3,2}", "invalid repetition count range"),
        ("a\\", "ends with a backslash"),
        ("(" * 2000 + ")" * 2000, "exceed the maximum number of nested"),
        ("a[^\\x00-\\U0010ffff]", "no text satisfies it"),
        ("a\ud800", "surrogate"),
        ("x" * (1 << 21), "at most 1,048,576 are compiled"),
    ],
)
def test_what_is_refused(single_bytes: Tokenizer, pattern: str, problem: str) -> None:
    with pytest.raises(StructureError) as caught:
        compile_regex(pattern, single_bytes)
    assert problem in caught.value.problem and caught.value.fix
    assert len(caught.value.problem) < 500
