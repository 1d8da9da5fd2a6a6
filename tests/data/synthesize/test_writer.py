"""The client of a chat-completions server: answers, full queues, failures, and errors that stop the work."""

from __future__ import annotations

import threading
from collections import Counter
from typing import Any

import pytest

from ingot.data.synthesize import writer as module
from ingot.data.synthesize.config import EndpointConfig
from ingot.data.synthesize.writer import Endpoint, WriterPrompt, WriterSettings
from ingot.workspace.errors import IngotError
from tests.data.synthesize.server import Reply, completion, serving

SETTINGS = WriterSettings(temperature=0.5, top_p=0.9, max_tokens=7)


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FIRST_PAUSE", 0.01)


def ask(url: str, prompts: list[str], **options: Any) -> dict[int, str | None]:
    endpoint = Endpoint(EndpointConfig(url=url, model="m", **options))
    return dict(endpoint.answers([WriterPrompt(text, seed) for seed, text in enumerate(prompts)], SETTINGS))


def test_the_request_is_what_the_protocol_says_and_answers_keep_their_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[dict[str, Any], dict[str, str]]] = []

    def echo(body: dict[str, Any], headers: dict[str, str]) -> Reply:
        seen.append((body, headers))
        return completion(body["messages"][0]["content"].upper())

    monkeypatch.setenv("THE_KEY", "s3cret")
    with serving(echo) as url:
        found = ask(url, [f"question {number}" for number in range(40)], api_key_variable="THE_KEY", concurrency=8)
    assert found == {number: f"QUESTION {number}" for number in range(40)}
    body, headers = next(pair for pair in seen if pair[0]["seed"] == 3)
    expected = {"model": "m", "messages": [{"role": "user", "content": "question 3"}], "temperature": 0.5, "top_p": 0.9}
    assert body == {**expected, "max_tokens": 7, "seed": 3}
    assert headers["Authorization"] == "Bearer s3cret"


def test_full_queues_and_server_errors_are_tried_again() -> None:
    tries: Counter[str] = Counter()
    lock = threading.Lock()

    def moody(body: dict[str, Any], _: dict[str, str]) -> Reply:
        text = body["messages"][0]["content"]
        with lock:
            tries[text] += 1
            number = tries[text]
        if text == "hopeless":
            return 503, {}, {}
        if number == 1:
            return 429, {"Retry-After": "0"}, {}
        return (500, {}, {}) if number == 2 else completion(text)

    with serving(moody) as url:
        assert ask(url, ["a", "b", "hopeless"], attempts=4) == {0: "a", 1: "b", 2: None}
    assert tries == {"a": 3, "b": 3, "hopeless": 4}


def test_a_slow_server_is_given_up_on() -> None:
    with serving(lambda body, _: completion("late"), delay=2.0) as url:
        assert ask(url, ["q"], timeout_seconds=0.2, attempts=2) == {0: None}


@pytest.mark.parametrize(
    ("reply", "message"),
    [
        ((401, {}, {"error": {"message": "bad key"}}), "refuses: 401.*bad key"),
        ((200, {}, b"<html>"), "not a completion"),
    ],
)
def test_what_would_meet_every_request_stops_the_work(reply: Reply, message: str) -> None:
    with serving(lambda *_: reply) as url, pytest.raises(IngotError, match=message):
        ask(url, ["q"] * 5)


def test_an_empty_key_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("THE_KEY", raising=False)
    with pytest.raises(IngotError, match="THE_KEY is empty"):
        Endpoint(EndpointConfig(url="http://127.0.0.1:9/v1", model="m", api_key_variable="THE_KEY"))


def test_nobody_listens() -> None:
    assert ask("http://127.0.0.1:9/v1", ["q"], attempts=2) == {0: None}
