"""Text out of tokens: against decoding the whole, and against a search for the first stop string to be complete."""

from __future__ import annotations

import functools
import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingot.inference.text import TextStream
from ingot.tokens.tokenizer import Tokenizer
from tests.serve.speaker import train_small_tokenizer


@functools.cache
def tokenizer() -> Tokenizer:
    """Little more than the bytes, so that tokens end inside characters."""
    return train_small_tokenizer()


def pushed(tokens: list[int], stops: tuple[str, ...]) -> tuple[list[str], str, bool]:
    """What each token shows, what the end shows, and whether a stop string was found before the end."""
    stream = TextStream(tokenizer(), stops)
    shown = [stream.push(token) for token in tokens]
    return shown, stream.finish(), stream.stopped


def cut(text: str, stops: tuple[str, ...]) -> str:
    """The text before the stop string that is complete first; of those that end together, before the longest."""
    for end in range(len(text) + 1):
        if lengths := [len(stop) for stop in stops if text[:end].endswith(stop)]:
            return text[: end - max(lengths)]
    return text


letters = st.text(alphabet="ab é€𝄞", max_size=4)
stop_lists = st.lists(letters.filter(bool), max_size=3).map(tuple)


@given(text=st.text(alphabet="ab é€𝄞", max_size=30), stops=stop_lists)
def test_the_text_is_the_whole_up_to_the_first_stop_string(text: str, stops: tuple[str, ...]) -> None:
    shown, rest, stopped = pushed(tokenizer().encode(text), stops)
    assert "".join(shown) + rest == cut(text, stops)
    assert stopped == any(stop in text for stop in stops)
    if len(stops) == 1 and stops[0] in text:
        assert "".join(shown) + rest == text[: text.find(stops[0])]


@given(tokens=st.lists(st.integers(0, 299), max_size=30), stops=stop_lists)
def test_any_tokens_give_what_decoding_all_of_them_gives(tokens: list[int], stops: tuple[str, ...]) -> None:
    tokens = [token % tokenizer().vocabulary_size for token in tokens]
    whole = tokenizer().decode(tokens, skip_special=True)
    shown, rest, _ = pushed(tokens, stops)
    assert "".join(shown) + rest == cut(whole, stops)


@given(text=st.text(alphabet="abé", max_size=20), stops=stop_lists)
def test_as_much_is_shown_as_is_safe(text: str, stops: tuple[str, ...]) -> None:
    """After each token exactly the characters are held back that some continuation would make a stop string of."""
    stream, tokens, shown = TextStream(tokenizer(), stops), tokenizer().encode(text), ""
    for count, token in enumerate(tokens, 1):
        shown += stream.push(token)
        if stream.stopped:
            break
        known = tokenizer().decode_bytes(tokens[:count]).decode("utf-8", errors="ignore")  # ends with whole characters
        unsafe = [
            size for size in range(len(known) + 1) for stop in stops if stop.startswith(known[len(known) - size :])
        ]
        assert len(shown) == len(known) - max(unsafe, default=0)


def test_a_character_in_pieces_waits_for_its_last_byte() -> None:
    tokens = tokenizer().encode("é€")
    assert len(tokens) == 5  # every byte is a token of its own
    assert pushed(tokens, ()) == (["", "é", "", "", "€"], "", False)
    assert pushed(tokens[:-1], ()) == (["", "é", "", ""], "\ufffd", False)


def test_special_tokens_are_not_shown() -> None:
    end = tokenizer().end_of_text
    first, second = tokenizer().encode("é")
    assert pushed([*tokenizer().encode("a"), end, first, end, second], ()) == (["a", "", "", "", "é"], "", False)


def test_a_stop_string_over_several_tokens() -> None:
    tokens = tokenizer().encode("a\n\nUb\n\nUs")
    assert len(tokens) == 9
    shown, rest, stopped = pushed(tokens, ("\n\nUs",))
    assert shown == ["a", "", "", "", "\n\nUb", "", "", "", ""] and rest == "" and stopped


def test_nothing_comes_after_a_stop_string() -> None:
    stream = TextStream(tokenizer(), ("b",))
    assert [stream.push(token) for token in tokenizer().encode("abc")] == ["a", "", ""]
    assert (stream.finish(), stream.stopped) == ("", True)


@pytest.mark.parametrize("stops", [("abcd", "bc"), ("bc", "abcd")])
def test_the_stop_string_that_is_complete_first_counts(stops: tuple[str, ...]) -> None:
    shown, rest, stopped = pushed(tokenizer().encode("xabcd"), stops)
    assert "".join(shown) + rest == "xa" and stopped


def first_characters(pieces: list[bytes]) -> list[int]:
    """The character in which each piece's first byte takes part, by the decoder's own report of what it replaces."""
    data = b"".join(pieces)
    character_of, done = list[int](), 0
    while done < len(data):
        try:
            valid, wrong = data[done:].decode(), 0
        except UnicodeDecodeError as error:
            valid, wrong = data[done : done + error.start].decode(), error.end - error.start
        for character in valid:
            character_of += [character_of[-1] + 1 if character_of else 0] * len(character.encode())
        character_of += [character_of[-1] + 1 if character_of else 0] * wrong
        done = len(character_of)
    starts = itertools.accumulate(map(len, pieces[:-1]), initial=0)
    return [character_of[start] for start in starts] if pieces else []


@given(
    tokens=st.lists(st.integers(0, 299), max_size=12),
    text=st.text(alphabet="a é€𝄞", max_size=6),
    stops=stop_lists,
)
def test_start_is_the_character_that_a_token_begins_with(tokens: list[int], text: str, stops: tuple[str, ...]) -> None:
    """Whole characters, pieces of them, bytes that are none, and stop strings anywhere."""
    special = set(tokenizer().special.values())
    drawn = [token % tokenizer().vocabulary_size for token in tokens]
    written = [token for token in (*drawn, *tokenizer().encode(text), *drawn) if token not in special]
    stream, starts = TextStream(tokenizer(), stops), []
    for token in written:
        stream.push(token)
        starts.append(stream.start)
    assert starts == first_characters([tokenizer().decode_bytes((token,)) for token in written])
