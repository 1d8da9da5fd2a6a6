"""Tokens in, tokens out: what the engine itself writes (test_verifiers.py has a client that lives on it)."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from typing import Any

import pytest

from ingot.inference.engine import Engine
from ingot.inference.sampling import Sampling
from ingot.model.transformer import Transformer
from ingot.tokens.chat import ChatFormat, Message
from tests.serve.openai.harness import Running
from tests.serve.speaker import GREETING, SCHEMA


def post(server: Running, body: dict[str, Any]) -> dict[str, Any]:
    data = json.dumps(body).encode()
    request = urllib.request.Request(f"{server.url}/inference/v1/generate", data, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as response:
        return dict(json.load(response))


def test_tokens_and_log_probabilities_are_the_engines(
    server: Running, speaker: Transformer, chat_format: ChatFormat
) -> None:
    prompt = chat_format.prompt([Message("user", GREETING)], [SCHEMA], thinking=False)
    options = {"max_tokens": 20, "temperature": 0.7, "seed": 5, "n": 2, "stop_token_ids": list(chat_format.stop_tokens)}
    answer = post(server, {"token_ids": prompt, "sampling_params": {**options, "logprobs": 1}})
    samplings = [
        Sampling(20, 0.7, stop_tokens=tuple(chat_format.stop_tokens), seed=5 + number, raw_logprobs=True)
        for number in range(2)
    ]
    expected = Engine(speaker, slots=2).complete([prompt] * 2, samplings)
    for choice, mine in zip(answer["choices"], expected, strict=True):
        assert choice["token_ids"] == mine.tokens and choice["finish_reason"] == mine.finish == "stop"
        entries = choice["logprobs"]["content"]
        assert [entry["token"] for entry in entries] == [f"token_id:{token}" for token in mine.tokens]
        assert [entry["logprob"] for entry in entries] == pytest.approx(mine.logprobs, abs=1e-4)
    assert answer["prompt_token_ids"] == prompt and answer["usage"]["prompt_tokens"] == len(prompt)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"token_ids": []}, "token_ids"),
        ({"token_ids": [1, 10**6]}, "token 1000000 is not in the vocabulary"),
        ({"token_ids": [1] * 5000}, "5000"),
        ({"sampling_params": {"stop": ["x"]}}, "stop"),
        ({"sampling_params": {"best_of": 3}}, "best_of"),
    ],
)
def test_what_cannot_be_done_is_refused(server: Running, change: dict[str, Any], said: str) -> None:
    with pytest.raises(urllib.error.HTTPError) as refused:
        post(server, {"token_ids": [1, 2], **change})
    assert refused.value.code == 400 and said in refused.value.read().decode()
