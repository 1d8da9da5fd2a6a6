"""Masks: for every state the same as trying each token of the vocabulary, byte by byte."""

from __future__ import annotations

import random
import threading

import numpy as np
import pytest

from ingot.inference.structure import automaton as automaton_module
from ingot.inference.structure import constraint as constraint_module
from ingot.inference.structure.constraint import (
    Constraint,
    State,
    compile_choice,
    compile_json,
    compile_regex,
    compile_schema,
)
from ingot.inference.structure.errors import StructureError
from ingot.tokens.tokenizer import Tokenizer
from ingot.workspace.errors import IngotError
from tests.inference.structure.conftest import byte_level
from tests.inference.structure.documents import CASES, PERSON
from tests.inference.structure.walking import accepts, write


def brute_force(state: State, tokenizer: Tokenizer) -> np.ndarray:
    """The mask by trying every token."""
    mask = np.zeros(tokenizer.vocabulary_size, dtype=np.uint8)
    for token in range(tokenizer.vocabulary_size):
        try:
            state.advance(token)
        except StructureError:
            continue
        mask[token] = 1
    return mask


def states_on_the_way(constraint: Constraint, text: str, tokenizer: Tokenizer) -> list[State]:
    """The states before and after each byte of a text."""
    state = constraint.start()
    states = [state]
    single = {tokenizer.decode_bytes((id,)): id for id in reversed(range(tokenizer.vocabulary_size))}
    for byte in text.encode():
        state = state.advance(single[bytes([byte])])
        states.append(state)
    return states


REGEXES = {
    r"[^a]*": "b日",
    r"\w+@\w+\.org": "ab@",
    "(日本|日|é)*x": "日é",
    "[ -~]{0,5}日?": "ab",
    r"[\s\S]{3,200}": "a日",
    "[一-鿿]*": "日",
    r"[^\x80-\u07ff]+": "a日",
    "(?:ab|a)(?:bc|c)*": "ab",
}


@pytest.mark.parametrize("pattern", REGEXES)
def test_small_vocabulary_regex(pattern: str, small: Tokenizer) -> None:
    for state in states_on_the_way(compile_regex(pattern, small), REGEXES[pattern], small):
        assert np.array_equal(state.mask(), brute_force(state, small))


@pytest.mark.parametrize("name", CASES)
def test_small_vocabulary_schema(name: str, small: Tokenizer) -> None:
    constraint = compile_schema(CASES[name][0], small)
    written = write(constraint, small, random.Random(7), patience=10)
    assert written is not None
    for state in states_on_the_way(constraint, written.decode(), small)[:60]:
        assert np.array_equal(state.mask(), brute_force(state, small))


def test_real_vocabulary(smollm2: Tokenizer) -> None:
    person = states_on_the_way(compile_schema(PERSON, smollm2), '{"name": "Zoë", "age": 3', smollm2)
    counted = states_on_the_way(compile_regex(r'"[^"]{2,90}"', smollm2), '"ab', smollm2)
    for state in (person[10], person[13], person[-1], counted[-1]):
        assert np.array_equal(state.mask(), brute_force(state, smollm2))


def test_special_tokens_are_never_text(small: Tokenizer) -> None:
    state = compile_regex(r"[\s\S]*", small).start()
    assert not any(state.mask()[list(small.special.values())])
    with pytest.raises(StructureError, match="not allowed"):
        state.advance(small.special["<a>"])
    assert state.mask()[: small.vocabulary_size - 2].sum() == _valid_pieces(small)


def _valid_pieces(tokenizer: Tokenizer) -> int:
    """How many tokens can begin a UTF-8 text: whole characters, of which the last may be cut."""
    count = 0
    for token in range(tokenizer.vocabulary_size - 2):
        piece = tokenizer.decode_bytes((token,))
        tails = [
            b"",
            *(bytes([a]) for a in range(0x80, 0xC0)),
            b"\x80\x80",
            b"\xa0\x80",
            b"\x90\x80\x80",
            b"\x80\x80\x80",
        ]
        for tail in tails:
            try:
                (piece + tail).decode("utf-8")
            except UnicodeDecodeError:
                continue
            count += 1
            break
    return count


def test_the_end(small: Tokenizer) -> None:
    state = compile_choice(["abc", "ab"], small).start()
    assert not state.complete
    state = state.advance(small.encode("a")[0]).advance(small.encode("b")[0])
    assert state.complete and state.mask().sum() == 1
    state = state.advance(small.encode("c")[0])
    assert state.complete and not state.mask().any()
    with pytest.raises(StructureError, match="not allowed"):
        state.advance(0)
    with pytest.raises(StructureError, match="not allowed"):
        state.advance(10**6)


def test_choices(single_bytes: Tokenizer) -> None:
    choices = ["yes", "no", "no way", 'a "quote"', "日本", "日"]
    constraint = compile_choice(choices, single_bytes)
    assert all(accepts(constraint, text) for text in choices)
    assert not any(accepts(constraint, text) for text in ("ye", "no ", "", "本", "yesno"))
    with pytest.raises(StructureError, match="no text"):
        compile_choice([], single_bytes)
    with pytest.raises(StructureError, match="surrogate"):
        compile_choice(["\ud800"], single_bytes)


def test_bytes_that_the_vocabulary_lacks() -> None:
    lacking = byte_level([bytes([byte]) for byte in range(256) if byte != 0xA9] + ["ué".encode()])
    # é is C3 A9, and A9 alone is no token: "ué" could be written, but after C3 there would be no way on
    constraint = compile_regex("[uéè]+", lacking)
    written = {write(constraint, lacking, random.Random(seed)) for seed in range(30)}
    assert all(text is not None and set(text.decode()) <= set("uè") for text in written)
    with pytest.raises(StructureError, match="no text satisfies it"):
        compile_regex("é", lacking)


def test_vocabulary_of_whole_characters(whole_characters: Tokenizer) -> None:
    constraint = compile_schema({"type": "string", "pattern": "^[né日ü]{3}$"}, whole_characters)
    written = [write(constraint, whole_characters, random.Random(seed)) for seed in range(20)]
    assert {len((text or b"").decode()) for text in written} == {5}
    assert any("é" in (text or b"").decode() for text in written)
    assert not any("ü" in (text or b"").decode() for text in written)


def test_a_new_automaton_when_one_is_full(small: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    """A text of many states gives the same masks as with room for all of them."""
    text = '{"a": [[[1, {"b": "日本"}], "x"], {"c": {"d": [true]}}], "e": "f"}'
    roomy = states_on_the_way(compile_json(small), text, small)
    monkeypatch.setattr(automaton_module, "STATES_AT_MOST", 30)
    constraint_module._kept.clear()
    narrow = states_on_the_way(compile_json(small), text, small)
    assert len({id(state._automaton) for state in narrow}) >= 3
    for left, right in zip(roomy, narrow, strict=True):
        assert np.array_equal(left.mask(), right.mask()) and left.complete == right.complete
    assert narrow[-1].complete


def test_kept_and_shared(small: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constraint_module, "CONSTRAINTS_KEPT", 2)
    constraint_module._kept.clear()
    first = compile_regex("a+", small)
    assert compile_regex("a+", small) is first
    assert compile_choice(["a+"], small) is not first
    compile_regex("b", small)
    assert compile_regex("a+", small) is not first  # two others were asked for since
    state, other = first.start(), first.start()
    assert state == other and hash(state) == hash(other) and state.mask() is other.mask()
    assert not state.mask().flags.writeable


def test_equal_texts_are_equal_states(small: Tokenizer) -> None:
    constraint = compile_json(small)
    pieces = [[b'{"', b"a", b'"', b":", b'"'], [b"{", b'"a"', b":", b'"']]
    ends = []
    for cut in pieces:
        state = constraint.start()
        for piece in cut:
            state = state.advance(next(id for id in range(small.vocabulary_size) if small.decode_bytes((id,)) == piece))
        ends.append(state)
    assert ends[0] == ends[1]


def test_too_many_readings_is_an_error(single_bytes: Tokenizer) -> None:
    state = compile_regex("(a{0,400}){0,400}b", single_bytes).start()
    with pytest.raises(IngotError, match="ways"):
        for _ in range(400):
            state = state.advance(ord("a"))


def test_threads(smollm2: Tokenizer) -> None:
    """Eight threads compile and walk at once; each sees the masks that one thread sees alone."""
    names = ["person", "tree", "expression", "open", "long", "date-time", "any of", "list"]
    alone = {name: write(compile_schema(CASES[name][0], smollm2), smollm2, random.Random(1)) for name in names}
    constraint_module._kept.clear()
    together: dict[str, bytes | None] = {}

    def work(name: str) -> None:
        together[name] = write(compile_schema(CASES[name][0], smollm2), smollm2, random.Random(1))

    threads = [threading.Thread(target=work, args=(name,)) for name in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    assert together == alone
