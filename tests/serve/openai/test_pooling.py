"""POST /pooling: the rewards of the exported model in transformers, over HTTP."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForSequenceClassification

from ingot.checkpoints.convert import export_model
from ingot.tokens.chat import ChatFormat, Message
from tests.serve.openai.harness import Running, http

TALK = [{"role": "user", "content": "What is 2 + 3?"}, {"role": "assistant", "content": "It is 5."}]


@pytest.fixture(scope="module")
def peer(babbler: Running, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The served model, as transformers loads it."""
    folder: Path = tmp_path_factory.mktemp("exported") / "model"
    export_model(babbler.runner.engine.model, folder)
    return AutoModelForSequenceClassification.from_pretrained(folder)


def rewards(running: Running, body: dict[str, Any]) -> list[float]:
    answer = http.post(f"{running.url}/pooling", json=body)
    assert answer.status_code == 200, answer.text
    found = answer.json()
    assert [each["index"] for each in found["data"]] == list(range(len(found["data"])))
    return [each["data"][0] for each in found["data"]]


def expected(peer: Any, tokens: list[int]) -> float:
    with torch.no_grad():
        return float(peer(input_ids=torch.tensor([tokens])).logits[0, 0])


def test_texts_and_tokens(babbler: Running, peer: Any) -> None:
    tokenizer = babbler.service.tokenizer
    texts = ["Hello", "How are you today?"]
    wanted = [expected(peer, [*tokenizer.opening, *tokenizer.encode(text)]) for text in texts]
    assert abs(wanted[0] - wanted[1]) > 1e-3
    assert rewards(babbler, {"input": texts}) == pytest.approx(wanted, abs=1e-5)
    assert rewards(babbler, {"input": texts[0], "task": "classify"}) == pytest.approx(wanted[:1], abs=1e-5)
    assert rewards(babbler, {"input": [[70, 71, 72], [80]]}) == pytest.approx(
        [expected(peer, [70, 71, 72]), expected(peer, [80])], abs=1e-5
    )


def test_a_conversation_is_judged_at_the_end_of_its_answer(
    babbler: Running, peer: Any, chat_format: ChatFormat
) -> None:
    tokens, mask = chat_format.conversation([Message(**each) for each in TALK], [], thinking=False)  # type: ignore[arg-type]
    end = max(place for place, one in enumerate(mask, 1) if one)
    assert tokens[end - 1] == chat_format.turn_end
    assert rewards(babbler, {"messages": TALK}) == pytest.approx([expected(peer, tokens[:end])], abs=1e-5)


def test_what_cannot_be_judged_is_refused(babbler: Running, server: Running) -> None:
    for body, problem in (
        ({"messages": TALK[:1]}, "the last message must be the assistant's"),
        ({"input": "a", "messages": TALK}, "give either input or messages"),
        ({"input": [1 << 20]}, "is not in the vocabulary"),
        ({"input": "a", "model": "another"}, "does not exist"),
        ({"input": [70] * 2000}, "the model's context is 1024 tokens"),
    ):
        answer = http.post(f"{babbler.url}/pooling", json=body)
        assert answer.status_code in (400, 404) and problem in answer.json()["error"]["message"], problem
    assert http.post(f"{server.url}/pooling", json={"input": "a"}).status_code == 404  # a model without a reward head
