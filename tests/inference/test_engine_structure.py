"""Constraints inside the engine: whatever is sampled has the form, and a form that breaks ends its own request only."""

from __future__ import annotations

import json

import jsonschema
import numpy as np
from numpy.typing import NDArray

from ingot.inference.engine import Engine
from ingot.inference.sampling import Sampling
from ingot.inference.structure.constraint import compile_regex, compile_schema
from ingot.workspace.errors import IngotError
from tests.serve.speaker import trained_speaker

SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 6}, "age": {"type": "integer", "minimum": 0, "maximum": 99}},
    "required": ["name", "age"],
    "additionalProperties": False,
}


def test_random_weights_write_what_the_schema_allows() -> None:
    """Beside requests without a constraint, whose text stays what it is alone."""
    model = trained_speaker()
    assert model.tokenizer is not None
    tokenizer, end = model.tokenizer, model.tokenizer.ends
    prompt = tokenizer.encode("hello")
    free = Sampling(max_new_tokens=20, seed=3)
    shaped = [
        Sampling(max_new_tokens=60, seed=seed, stop_tokens=end, constraint=compile_schema(SCHEMA, tokenizer))
        for seed in range(4)
    ]
    digits = Sampling(max_new_tokens=60, seed=9, constraint=compile_regex(r"[0-9]{3}-[0-9]{2}", tokenizer))
    engine = Engine(model, slots=6)
    results = engine.complete([prompt] * 6, [free, *shaped, digits])
    assert results[0].tokens == Engine(model, slots=1).complete([prompt], [free])[0].tokens
    for result in results[1:5]:
        assert result.finish == "stop"
        written = tokenizer.decode(token for token in result.tokens if token not in end)
        jsonschema.validate(json.loads(written), SCHEMA)
    number = tokenizer.decode(results[5].tokens)
    assert results[5].finish == "stop" and len(number) == 6 and number[3] == "-"


class Breaking:
    """Allows everything for two tokens, then fails."""

    complete = False

    def __init__(self, size: int, left: int = 2) -> None:
        self.size, self.left = size, left

    def start(self) -> Breaking:
        return self

    def mask(self) -> NDArray[np.uint8]:
        return np.ones(self.size, dtype=np.uint8)

    def advance(self, token: int) -> Breaking:
        if not self.left:
            raise IngotError("too many readings", place="constraint")
        return Breaking(self.size, self.left - 1)


def test_a_constraint_that_fails_ends_its_own_request_only() -> None:
    model = trained_speaker()
    engine = Engine(model, slots=2)
    broken = engine.submit([1, 2], Sampling(max_new_tokens=9, constraint=Breaking(model.config.vocabulary_size or 0)))
    other = engine.submit([1, 2], Sampling(max_new_tokens=9, seed=1))
    while engine.busy:
        engine.step()
    assert broken.finish == "error" and str(broken.problem) and len(broken.tokens) == 3
    assert other.finish == "length" and len(other.tokens) == 9
