"""Masks beside those of llguidance (Rust, by other hands) over a real vocabulary.

Two differences are known and allowed. Where the text can go on in one way only, llguidance allows just the token that its
tokenizer would write there, we all tokens along that way. It escapes U+007F in strings, which RFC 8259 does not ask for.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from ingot.inference.structure.constraint import Constraint, compile_regex, compile_schema
from ingot.tokens.tokenizer import Tokenizer
from tests.inference.structure.documents import CASES, EXPRESSION, PERSON, TREE

llguidance: Any = pytest.importorskip("llguidance", reason="needs llguidance to compare with")


@pytest.fixture(scope="module")
def peer(smollm2: Tokenizer) -> Any:
    class Wrapped:
        def __init__(self) -> None:
            self.eos_token_id, self.bos_token_id = smollm2.special["<|endoftext|>"], None
            self.tokens = [smollm2.decode_bytes((id,)) for id in range(smollm2.vocabulary_size)]
            self.special_token_ids = sorted(smollm2.special.values())

        def __call__(self, text: bytes | str) -> list[int]:
            return smollm2.encode(text.decode() if isinstance(text, bytes) else text)

    return llguidance.LLTokenizer(llguidance.TokenizerWrapper(Wrapped()))


def compare(constraint: Constraint, matcher: Any, tokens: list[int], tokenizer: Tokenizer) -> int:
    """Walk both along the tokens; how many masks were equal but for the known differences."""
    delete = tokenizer.encode("\x7f")
    state, equal = constraint.start(), 0
    for token in [*tokens, None]:
        ours = state.mask().copy()
        bits = np.unpackbits(np.frombuffer(matcher.compute_bitmask(), dtype=np.uint8), bitorder="little")
        theirs = bits[: tokenizer.vocabulary_size].copy()
        theirs[list(tokenizer.special.values())] = 0
        ours[delete] = theirs[delete] = 0
        assert not matcher.is_error(), matcher.get_error()
        assert state.complete == matcher.is_accepting()
        if theirs.sum() == 1:  # the only way on
            assert ours[theirs == 1].all()
            pieces = [tokenizer.decode_bytes((int(id),)) for id in np.flatnonzero(ours)]
            longest = max(pieces, key=len)
            assert all(longest.startswith(piece) for piece in pieces)
        else:
            differing = [tokenizer.decode_bytes((int(id),)) for id in np.flatnonzero(ours != theirs)]
            assert not differing, differing[:10]
            equal += 1
        if token is not None:
            state = state.advance(token)
            matcher.consume_token(token)
    return equal


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        ("[a-z]+@[a-z]+[.]org", "ab@cd.org"),
        ('[^"]{2,90}日?', "hello wörld"),
        ("(yes|no|maybe)( sure)?", "yes sure"),
        ("[0-9]{4}-[0-9]{2}(-[0-9]{2})?", "2024-01"),
        ("[^a]*", "日本語 text"),
        (".{0,5}", "añb"),
        ("[一-鿿]+|[а-яА-Я]+", "Привет"),
    ],
)
def test_regex(pattern: str, text: str, smollm2: Tokenizer, peer: Any) -> None:
    matcher = llguidance.LLMatcher(peer, llguidance.LLMatcher.grammar_from_regex(pattern))
    assert compare(compile_regex(pattern, smollm2), matcher, smollm2.encode(text), smollm2) >= 2


HOME = {"street": 'a "b" ü', "zip": "12345"}
DOCUMENTS: list[tuple[Any, Any]] = [
    (PERSON, {"name": "Zoë", "age": 36, "address": HOME, "tags": ["x", "日本"], "active": True}),
    ({**TREE, "additionalProperties": False}, {"name": "a", "children": [{"name": "b", "children": []}]}),
    (EXPRESSION, {"op": "+", "left": 1.5, "right": {"op": "-", "left": 2, "right": 30}}),
    (CASES["lengths"][0], "abc"),
    (CASES["range"][0], 105),
    (CASES["enum"][0], 'with "quotes"'),
    (CASES["array counts"][0], [True, False]),
]


@pytest.mark.parametrize(("schema", "document"), DOCUMENTS)
def test_schema(schema: Any, document: Any, smollm2: Tokenizer, peer: Any) -> None:
    form = {"whitespace_flexible": False, "item_separator": ", ?", "key_separator": ": ?"}
    grammar = llguidance.LLMatcher.grammar_from_json_schema(json.dumps(schema), overrides=form)
    tokens = smollm2.encode(json.dumps(document, ensure_ascii=False))
    assert compare(compile_schema(schema, smollm2), llguidance.LLMatcher(peer, grammar), tokens, smollm2) >= 2
