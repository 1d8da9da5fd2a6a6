"""Whatever a client does wrong, the answer is a 4xx in OpenAI's shape that says what to do."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx2 as httpx
import openai
import pytest
from pydantic import BaseModel, ValidationError

from ingot.inference.engine import Engine
from ingot.serve.hosts import Hosts
from ingot.serve.openai.requests import (
    MOST_BIASES,
    ChatRequest,
    CompletionRequest,
    DetokenizeRequest,
    TokenizeRequest,
)
from ingot.tokens.tokenizer import Tokenizer
from ingot.workspace.errors import IngotError
from tests.serve.openai.harness import Running, http, serving, untrained

CHAT, TEXT = "/v1/chat/completions", "/v1/completions"
HELLO: list[Any] = [{"role": "user", "content": "Hello"}]


def post(server: Running, path: str, body: Any = None, **options: Any) -> httpx.Response:
    if body is not None:
        options["json"] = body
    return http.post(server.url + path, **options)


def error_of(response: httpx.Response) -> dict[str, Any]:
    """The error in an answer, which must have OpenAI's four fields and nothing else."""
    assert response.headers["content-type"].startswith("application/json")
    body = response.json()
    assert set(body) == {"error"} and set(body["error"]) == {"message", "type", "param", "code"}
    assert isinstance(body["error"]["message"], str) and body["error"]["message"]
    error: dict[str, Any] = body["error"]
    return error


CALL = {"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}}
BAD: list[tuple[str, Any, int, str | None, str]] = [  # path, body, status, param, part of the message
    (CHAT, {}, 400, "messages", "required"),
    (CHAT, {"messages": []}, 400, "messages", "at least 1"),
    (CHAT, {"messages": "Hello"}, 400, "messages", "list"),
    (CHAT, {"messages": [{"role": "wizard", "content": "x"}]}, 400, "messages.0", "role"),
    (CHAT, {"messages": [{"role": "user"}]}, 400, "messages.0.content", "required"),
    (CHAT, {"messages": HELLO, "temprature": 1}, 400, None, "did you mean 'temperature'"),
    (CHAT, {"messages": HELLO, "temperature": -1}, 400, "temperature", "greater than or equal to 0"),
    (CHAT, {"messages": HELLO, "temperature": "warm"}, 400, "temperature", "number"),
    (CHAT, {"messages": HELLO, "temperature": "0.5"}, 400, "temperature", "number"),
    (CHAT, {"messages": HELLO, "temperature": True}, 400, "temperature", "number"),
    (CHAT, {"messages": HELLO, "stream": 1}, 400, "stream", "boolean"),
    (CHAT, {"messages": HELLO, "top_p": 0}, 400, "top_p", "greater than 0"),
    (CHAT, {"messages": HELLO, "stop": [""]}, 400, "stop", "string"),
    (CHAT, {"messages": HELLO, "n": 0}, 400, "n", "greater than or equal to 1"),
    (CHAT, {"messages": HELLO, "n": 100}, 400, "n", "at once"),
    (CHAT, {"messages": HELLO, "max_tokens": 0}, 400, "max_tokens", "greater than or equal to 1"),
    (CHAT, {"messages": HELLO, "seed": 2**70}, 400, "seed", "less than or equal"),
    (CHAT, {"messages": HELLO, "logit_bias": {"x": 1}}, 400, "logit_bias.x", "pattern"),
    (CHAT, {"messages": HELLO, "logit_bias": {"99999": 1}}, 400, "logit_bias", "vocabulary"),
    (CHAT, {"messages": HELLO, "stop_token_ids": [99999]}, 400, "stop_token_ids", "vocabulary"),
    (CHAT, {"messages": HELLO, "top_logprobs": 2}, 400, "top_logprobs", "logprobs"),
    (CHAT, {"messages": HELLO, "stream_options": {"include_usage": True}}, 400, "stream_options", "stream"),
    (CHAT, {"messages": HELLO, "min_tokens": 20, "max_tokens": 10}, 400, None, "min_new_tokens"),
    (CHAT, {"messages": HELLO, "tool_choice": "required"}, 400, "tool_choice", "no tools"),
    (
        CHAT,
        {"messages": HELLO, "tool_choice": {"type": "function", "function": {"name": "f"}}},
        400,
        "tool_choice",
        "not among",
    ),
    (
        CHAT,
        {"messages": HELLO, "tools": [{"type": "function", "function": {"name": "a b"}}]},
        400,
        "tools.0.function.name",
        "pattern",
    ),
    (
        CHAT,
        {"messages": HELLO, "chat_template_kwargs": {"enable_thinkin": 1}},
        400,
        "chat_template_kwargs",
        "did you mean",
    ),
    (
        CHAT,
        {"messages": [{"role": "tool", "tool_call_id": "x", "content": "1"}]},
        400,
        "messages.0.tool_call_id",
        "no call",
    ),
    (CHAT, {"messages": [*HELLO, {"role": "system", "content": "late"}]}, 400, "messages", "system turn first"),
    (
        CHAT,
        {"messages": [{"role": "assistant", "tool_calls": [{**CALL, "function": {"name": "f", "arguments": "[1]"}}]}]},
        400,
        "messages.0.tool_calls",
        "JSON object",
    ),
    (CHAT, {"messages": HELLO, "model": "gpt-7"}, 404, "model", "does not exist"),
    (CHAT, {"messages": [{"role": "user", "content": "long " * 2000}]}, 400, "messages", "context is 1024"),
    (TEXT, {"prompt": "x" * 3000}, 400, "prompt", "context is 1024"),
    (TEXT, {"prompt": [5, 99999]}, 400, "prompt", "vocabulary"),
    (TEXT, {"prompt": []}, 400, "prompt", "at least 1"),
    (TEXT, {"prompt": "x", "suffix": "y"}, 400, "suffix", "at most 0"),
    (TEXT, {"prompt": "x", "best_of": 2}, 400, "best_of", "less than or equal to 1"),
    (TEXT, {"prompt": "x", "max_tokens": 0}, 400, "max_tokens", "echo"),
    (TEXT, {"prompt": "x", "structured_outputs": {}}, 400, "structured_outputs", "exactly one"),
    ("/tokenize", {}, 400, None, "either prompt or messages"),
    ("/detokenize", {"tokens": [99999]}, 400, "tokens", "vocabulary"),
]


@pytest.mark.parametrize(("path", "body", "status", "param", "message"), BAD, ids=lambda value: str(value)[:40])
def test_bad_input(babbler: Running, path: str, body: Any, status: int, param: str | None, message: str) -> None:
    response = post(babbler, path, body)
    error = error_of(response)
    assert (response.status_code, error["param"]) == (status, param)
    assert message in error["message"]


def test_codes_that_programs_look_at(babbler: Running) -> None:
    long = [{"role": "user", "content": "long " * 2000}]
    with pytest.raises(openai.BadRequestError) as too_long:
        babbler.client.chat.completions.create(model="speaker", messages=long)  # type: ignore[arg-type]
    assert too_long.value.code == "context_length_exceeded" and too_long.value.type == "invalid_request_error"
    with pytest.raises(openai.NotFoundError) as unknown:
        babbler.client.models.retrieve("gpt-7")
    assert unknown.value.code == "model_not_found"


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b'"text"',
        b"\xff\xfe",
        b"[" * 100_000,
        b'{"messages": ' + b'{"a":' * 100_000,
        b"1" * 10_000,
    ],
)
def test_bodies_that_are_no_json_objects(babbler: Running, body: bytes) -> None:
    for path in (CHAT, TEXT, "/tokenize", "/detokenize"):
        response = post(babbler, path, content=body, headers={"Content-Type": "application/json"})
        assert response.status_code == 400
        error_of(response)


def test_other_content_types_are_refused(babbler: Running) -> None:
    """A page in a browser may send text to this machine without asking; JSON it may not."""
    response = post(babbler, CHAT, content=b'{"messages": []}', headers={"Content-Type": "text/plain"})
    assert response.status_code == 400 and "application/json" in error_of(response)["message"]


@pytest.mark.parametrize("depth", [50, 400, 900])
def test_schemas_nested_without_end(babbler: Running, depth: int) -> None:
    """Not so deep that the body cannot be read, but too deep, or nearly, to be followed."""
    schema: dict[str, Any] = {"type": "integer"}
    for _ in range(depth):
        schema = {"type": "array", "items": schema}
    wanted = {"type": "json_schema", "json_schema": {"name": "deep", "schema": schema}}
    response = post(babbler, CHAT, {"messages": HELLO, "response_format": wanted, "max_tokens": 3})
    if response.status_code != 200:
        assert response.status_code == 400
        error_of(response)


def test_signs_that_are_no_text(babbler: Running) -> None:
    """Half of a surrogate pair, in every place that is sent back or encoded."""
    content = b'{"messages": [{"role": "user", "content": "\\ud800"}], "max_tokens": 2}'
    assert post(babbler, CHAT, content=content, headers={"Content-Type": "application/json"}).status_code == 200
    content = b'{"model": "\\ud800", "messages": [{"role": "user", "content": "x"}]}'
    response = post(babbler, CHAT, content=content, headers={"Content-Type": "application/json"})
    assert response.status_code == 404 and "\\ud800" in error_of(response)["message"]
    content = b'{"prompt": "x", "max_tokens": 2, "structured_outputs": {"choice": ["\\ud800"]}}'
    assert post(babbler, TEXT, content=content, headers={"Content-Type": "application/json"}).status_code in (200, 400)


def test_unknown_addresses_and_methods(babbler: Running) -> None:
    nowhere = http.get(babbler.url + "/v2/nothing")
    assert nowhere.status_code == 404 and error_of(nowhere)["code"] == "not_found"
    assert "nothing at /v2/nothing; the API's addresses begin with /v1" in error_of(nowhere)["message"]
    wrong = http.get(babbler.url + CHAT)
    assert wrong.status_code == 405 and wrong.headers["allow"] == "POST"
    error_of(wrong)


@pytest.fixture(scope="module")
def locked(tokenizer: Tokenizer) -> Iterator[Running]:
    with serving(Engine(untrained(tokenizer, 64), slots=2), key="open sesame", body_limit=2000) as running:
        yield running


def test_the_key(locked: Running) -> None:
    assert locked.client.models.list().data[0].id == "speaker"  # the harness's client has the key
    for key in (None, "Bearer wrong", "open sesame", "Bearer é"):
        headers = [] if key is None else [(b"Authorization", key.encode())]
        for path in ("/v1/models", "/metrics", "/openapi.json", "/nowhere"):
            response = http.get(locked.url + path, headers=headers)
            assert response.status_code == 401 and error_of(response)["code"] == "invalid_api_key"
    with pytest.raises(openai.AuthenticationError):
        locked.client.with_options(api_key="guess").models.list()
    assert http.get(locked.url + "/health").status_code == 200  # load balancers have no key


def test_a_body_that_is_too_large(locked: Running) -> None:
    """Whether its length is announced or not."""
    headers = {"Authorization": "Bearer open sesame", "Content-Type": "application/json"}
    large = b'{"prompt": "' + b"x" * 5000 + b'"}'
    announced = post(locked, TEXT, content=large, headers=headers)
    chunked = post(
        locked, TEXT, content=(large[start : start + 500] for start in range(0, len(large), 500)), headers=headers
    )
    for response in (announced, chunked):
        assert response.status_code == 413 and error_of(response)["code"] == "body_too_large"


def test_a_model_without_a_chat_template(tokenizer: Tokenizer) -> None:
    plain = Tokenizer(tokenizer.backend, None)
    with serving(Engine(untrained(plain, 64), slots=2)) as running:
        response = post(running, CHAT, {"messages": HELLO})
        assert response.status_code == 400 and "/v1/completions" in error_of(response)["message"]
        assert running.client.completions.create(model="speaker", prompt="x", max_tokens=2).choices


def test_a_public_address_needs_a_key() -> None:
    from ingot.serve.openai.run import check_bind

    for host in ("127.0.0.1", "localhost", "::1"):
        check_bind(host, None)
    check_bind("0.0.0.0", "key")
    for host in ("0.0.0.0", "::", "192.168.1.5", "example.org"):
        with pytest.raises(IngotError, match="--api-key"):
            check_bind(host, None)


def test_a_server_on_loopback_answers_only_to_names_of_this_machine(tokenizer: Tokenizer) -> None:
    """A site whose name was made to point here sends its own name."""
    with serving(Engine(untrained(tokenizer, 64), slots=2), hosts=Hosts("127.0.0.1", ["box.example"])) as running:
        for path in ("/v1/models", "/health", "/metrics"):
            for host in ("attacker.example", "127.0.0.1.attacker.example:80", "localhost.attacker.example", ""):
                response = http.get(running.url + path, headers={"Host": host})
                assert response.status_code == 403 and error_of(response)["code"] == "host_not_allowed"
                assert "--allow-host" in error_of(response)["message"]
            for host in ("localhost:8000", "127.0.0.1", "[::1]:8000", "127.8.8.8", "box.example", "BOX.example:80"):
                assert http.get(running.url + path, headers={"Host": host}).status_code == 200


def test_which_names_a_server_answers_to() -> None:
    assert Hosts("0.0.0.0").answers_to("any.example") and Hosts("127.0.0.1", ["*"]).answers_to("any.example")
    assert not Hosts("0.0.0.0", ["box.example"]).answers_to("any.example")
    assert not Hosts("localhost").answers_to("any.example")


MANY = 3000
WRONG: list[tuple[type[BaseModel], dict[str, Any]]] = [
    (CompletionRequest, {"prompt": [1, *[-1] * MANY]}),
    (CompletionRequest, {"prompt": [[1], *[[-1]] * MANY]}),
    (CompletionRequest, {"prompt": [[*[-1] * MANY]]}),
    (CompletionRequest, {"prompt": ["x", *[None] * MANY]}),
    (ChatRequest, {"messages": [{}] * MANY}),
    (ChatRequest, {"messages": [{"role": "user", "content": [{}] * MANY}]}),
    (ChatRequest, {"messages": [{"role": "assistant", "tool_calls": [{}] * MANY}]}),
    (ChatRequest, {"messages": HELLO, "modalities": ["audio"] * MANY}),
    (ChatRequest, {"messages": HELLO, "stop": [""] * MANY}),
    (ChatRequest, {"messages": HELLO, "tools": [{}] * MANY}),
    (TokenizeRequest, {"messages": [{}] * MANY}),
    (DetokenizeRequest, {"tokens": [-1] * MANY}),
]


@pytest.mark.parametrize(("model", "body"), WRONG)
def test_a_body_of_mistakes_is_not_a_list_of_complaints(model: type[BaseModel], body: dict[str, Any]) -> None:
    """A complaint is a thousand times as large as the mistake: a body of 16 MiB must not fill the memory."""
    with pytest.raises(ValidationError) as caught:
        model.model_validate(body)
    assert caught.value.error_count() <= 400  # of the fields with a limit of their own, 128 at most with three each


def test_more_biases_than_are_looked_at(babbler: Running) -> None:
    bias = {f"x{number}": 1 for number in range(MOST_BIASES + 1)}
    error = error_of(post(babbler, TEXT, {"prompt": "x", "logit_bias": bias}))
    assert error["param"] == "logit_bias" and "65,537 tokens; give at most 65,536" in error["message"]


def test_the_name_of_an_unknown_field_is_not_sent_back_whole(babbler: Running) -> None:
    error = error_of(post(babbler, TEXT, {"prompt": "x", "x" * 100_000: 1}))
    assert error["message"].startswith("unknown field 'xxx") and len(error["message"]) < 200
