"""schemathesis reads /openapi.json and sends what it allows, and what it does not: no 5xx, and answers as described."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis.checks import not_a_server_error
from schemathesis.generation import GenerationMode
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    negative_data_rejection,
    response_schema_conformance,
    status_code_conformance,
)

from tests.serve.openai.harness import PATIENCE, Running, http

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
    negative_data_rejection,
]
EXAMPLES = 10  # of each kind, for each operation
OPERATIONS = [
    ("POST", "/v1/chat/completions"),
    ("POST", "/v1/completions"),
    ("POST", "/inference/v1/generate"),
    ("POST", "/pooling"),
    ("POST", "/tokenize"),
    ("POST", "/detokenize"),
    ("GET", "/v1/models"),
    ("GET", "/v1/models/{name}"),
    ("GET", "/health"),
    ("GET", "/metrics"),
]


@pytest.fixture(scope="module")
def described(babbler: Running) -> Any:
    return schemathesis.openapi.from_url(f"{babbler.url}/openapi.json", wait_for_schema=PATIENCE)


def test_all_operations_are_fuzzed(described: Any) -> None:
    found = {(result.ok().method.upper(), result.ok().path) for result in described.get_all_operations()}
    assert found == set(OPERATIONS)


@pytest.mark.parametrize(
    ("method", "path", "mode"),
    [
        (method, path, mode)
        for method, path in OPERATIONS
        for mode in GenerationMode
        if method == "POST" or mode is GenerationMode.POSITIVE  # a GET has no body that could be wrong
    ],
)
def test_fuzz(described: Any, method: str, path: str, mode: GenerationMode) -> None:
    """What the description allows, and what it forbids, which must be refused."""

    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        derandomize=True,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=described[path][method].as_strategy(generation_mode=mode))
    def fuzz(case: Any) -> None:
        if mode is GenerationMode.POSITIVE and isinstance(case.body, dict):
            case.body.pop("model", None)  # any other name than the right one is a 404, and nothing more is looked at
            if path.endswith("completions"):
                case.body["max_tokens"] = 2  # an example takes a moment, not a second
        case.call_and_validate(checks=CHECKS, timeout=PATIENCE)

    fuzz()


BODIES: dict[str, Any] = {
    "/v1/chat/completions": {
        "messages": [{"role": "user", "content": "Hi"}],
        "max_tokens": 5,
        "logprobs": True,
        "n": 2,
    },
    "/v1/completions": {"prompt": ["a", "b"], "max_tokens": 5, "logprobs": 2, "echo": True},
    "/inference/v1/generate": {"token_ids": [70, 71], "sampling_params": {"max_tokens": 5, "n": 2}},
    "/pooling": {"input": ["a", "b"]},
    "/tokenize": {"prompt": "Hello", "return_token_strs": True},
    "/detokenize": {"tokens": [70, 71]},
}


@pytest.mark.parametrize("path", BODIES)
def test_bodies_and_answers_are_as_described(babbler: Running, path: str) -> None:
    """With jsonschema, apart from schemathesis: the description allows the request and describes the answer exactly."""
    document = http.get(f"{babbler.url}/openapi.json").json()
    operation = document["paths"][path]["post"]

    def check(value: Any, media: dict[str, Any]) -> None:
        described = json.loads(json.dumps(media["application/json"]["schema"]))
        jsonschema.validate(value, described | {"components": document["components"]})

    check(BODIES[path], operation["requestBody"]["content"])
    response = http.post(babbler.url + path, json=BODIES[path])
    assert response.status_code == 200
    check(response.json(), operation["responses"]["200"]["content"])
    refused = http.post(babbler.url + path, json={"unknown": 1})
    assert refused.status_code == 400
    check(refused.json(), operation["responses"]["400"]["content"])
    assert "422" not in operation["responses"]
