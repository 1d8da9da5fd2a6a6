"""Masks: for every state the same as trying each token of the vocabulary; and what is kept of grammars and masks."""

from __future__ import annotations

import random
import sys
import threading

import numpy as np
import pytest

from ingot.inference.structure import constraint as constraint_module
from ingot.inference.structure import vocabulary as vocabulary_module
from ingot.inference.structure.cache import ByteBoundedCache
from ingot.inference.structure.constraint import (
    Constraint,
    State,
    compile_choice,
    compile_regex,
    compile_schema,
)
from ingot.inference.structure.errors import StructureError
from ingot.inference.structure.library import library
from ingot.inference.structure.vocabulary import Vocabulary, vocabulary_of
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


def check(state: State, tokenizer: Tokenizer) -> None:
    """The mask is that of trying every token. Where only one text can follow, it has the token that begins it best."""
    mask, tried = state.mask(), brute_force(state, tokenizer)
    if mask.sum() == 1:
        pieces = [tokenizer.decode_bytes((int(id),)) for id in np.flatnonzero(tried)]
        longest = max(pieces, key=len)
        assert tried[mask == 1].all() and all(longest.startswith(piece) for piece in pieces)
    else:
        assert np.array_equal(mask, tried)


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
        check(state, small)


@pytest.mark.parametrize("name", CASES)
def test_small_vocabulary_schema(name: str, small: Tokenizer) -> None:
    constraint = compile_schema(CASES[name][0], small)
    written = write(constraint, small, random.Random(7), patience=10)
    assert written is not None
    for state in states_on_the_way(constraint, written.decode(), small)[:60]:
        check(state, small)


def test_real_vocabulary(smollm2: Tokenizer) -> None:
    person = states_on_the_way(compile_schema(PERSON, smollm2), '{"name": "Zoë", "age": 3', smollm2)
    counted = states_on_the_way(compile_regex(r'"[^"]{2,90}"', smollm2), '"ab', smollm2)
    for state in (person[10], person[13], person[-1], counted[-1]):
        check(state, smollm2)


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
    # é is C3 A9, and A9 alone is no token: after C3 only è can follow
    constraint = compile_regex("[uéè]+", lacking)
    written = {write(constraint, lacking, random.Random(seed)) for seed in range(30)}
    assert all(text is not None and "é" not in text.decode().replace("ué", "") for text in written)
    with pytest.raises(StructureError, match="no text satisfies it"):
        compile_regex("é", lacking)


def test_vocabulary_of_whole_characters(whole_characters: Tokenizer) -> None:
    constraint = compile_schema({"type": "string", "pattern": "^[né日ü]{3}$"}, whole_characters)
    written = [write(constraint, whole_characters, random.Random(seed)) for seed in range(20)]
    assert {len((text or b"").decode()) for text in written} == {5}
    assert any("é" in (text or b"").decode() for text in written)
    assert not any("ü" in (text or b"").decode() for text in written)


def test_states_do_not_change(small: Tokenizer) -> None:
    """A state may be advanced again, after another text has gone on from it."""
    start = compile_regex("(ab|cd|ce)+", small).start()
    state = start
    for letter in "cdabce":
        state = state.advance(ord(letter))
    assert state.complete and not start.complete
    other = start.advance(ord("c")).advance(ord("e"))
    assert other.complete and not start.advance(ord("a")).complete
    again = state.advance(ord("a"))
    with pytest.raises(StructureError, match="not allowed"):
        again.advance(ord("a"))
    assert again.advance(ord("b")).complete and state.complete


@pytest.fixture
def fresh(small: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> Vocabulary:
    """The small vocabulary with nothing kept yet."""
    vocabulary = Vocabulary(small)
    monkeypatch.setitem(vocabulary_module._vocabularies, small, vocabulary)
    return vocabulary


def test_kept_and_shared(small: Tokenizer, fresh: Vocabulary) -> None:
    first = compile_regex("a+", small)
    assert compile_regex("a+", small) is first
    assert compile_choice(["a+"], small) is not first
    state, other = first.start(), first.start()
    assert state.mask() is other.mask() and state.advance(97).mask() is other.advance(97).mask()
    assert not state.mask().flags.writeable
    with pytest.raises(StructureError, match="unclosed group"):
        compile_regex("(", small)
    compiled = constraint_module.Constraint
    constraint_module.Constraint = None  # type: ignore[assignment, misc]
    try:
        with pytest.raises(StructureError, match="unclosed group"):  # without compiling it again
            compile_regex("(", small)
    finally:
        constraint_module.Constraint = compiled  # type: ignore[misc]


def test_what_is_kept_is_bounded(small: Tokenizer, fresh: Vocabulary) -> None:
    fresh.grammars.limit, fresh.masks.limit = 1 << 20, 1 << 14
    properties = {f"p{number}": {"type": "string"} for number in range(50)}
    first = compile_schema({"type": "object", "properties": properties}, small)
    for number in range(40):
        compile_schema({"type": "object", "properties": properties | {f"q{number}": {}}}, small)
        assert 0 < fresh.grammars.bytes <= 1 << 20 and 0 < fresh.masks.bytes <= 1 << 14
    assert len(fresh.grammars) < 20
    assert compile_schema({"type": "object", "properties": properties}, small) is not first


def test_a_cache_forgets_what_was_not_used_for_longest() -> None:
    cache: ByteBoundedCache[str] = ByteBoundedCache(10)
    cache.put("a", "A", 4)
    cache.put("b", "B", 4)
    assert cache.get("a") == "A"
    cache.put("c", "C", 4)
    assert (cache.get("a"), cache.get("b"), cache.get("c"), cache.bytes) == ("A", None, "C", 8)
    cache.put("a", "larger", 6)
    assert (cache.get("a"), cache.get("c"), cache.bytes) == ("larger", "C", 10)
    cache.put("d", "too large", 11)
    assert cache.get("d") is None and len(cache) == 2


def test_a_grammar_that_reached_a_limit_is_compiled_anew(smollm2: Tokenizer) -> None:
    """Its lexer, which all texts share, keeps the states that it reached: other requests should not inherit them."""
    pattern = "([a-z]{1,30}[0-9]{0,30}){1,50}x"
    constraint = compile_regex(pattern, smollm2)
    with pytest.raises(IngotError, match="too many expressions"):
        for seed in range(20):
            write(constraint, smollm2, random.Random(seed))
    assert compile_regex(pattern, smollm2) is not constraint


def test_a_grammar_that_made_many_masks_is_compiled_anew(
    small: Tokenizer, fresh: Vocabulary, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(constraint_module, "MASKS_AT_MOST", 100)
    constraint = compile_regex("[ab]+", small)
    state = constraint.start()
    for _ in range(200):
        state = state.advance(97)
        state.mask()
    assert state.complete and compile_regex("[ab]+", small) is not constraint


def test_without_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "llguidance", None)
    library.cache_clear()
    try:
        with pytest.raises(IngotError, match=r"\[serve\]"):
            library()
    finally:
        library.cache_clear()


def test_threads(smollm2: Tokenizer) -> None:
    """Eight threads compile and sample at once; each sees the masks that one thread sees alone."""
    names = ["person", "tree", "expression", "open", "long", "date-time", "any of", "list"]
    alone = {name: write(compile_schema(CASES[name][0], smollm2), smollm2, random.Random(1)) for name in names}
    vocabulary_of(smollm2).grammars = ByteBoundedCache(1 << 26)
    together: dict[str, bytes | None] = {}

    def work(name: str) -> None:
        together[name] = write(compile_schema(CASES[name][0], smollm2), smollm2, random.Random(1))

    threads = [threading.Thread(target=work, args=(name,)) for name in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    assert together == alone
