"""Text completions through the official client, against the engine by itself and the full forward pass."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from openai import BadRequestError, OpenAI

from ingot.inference.engine import Engine
from ingot.inference.sampling import Sampling
from ingot.model.transformer import Transformer
from ingot.tokens.tokenizer import Tokenizer
from tests.inference.conftest import reference_logprobs
from tests.serve.openai.harness import Running, http

PROMPT = "the sum of the"


def complete(client: OpenAI, prompt: Any = PROMPT, **options: Any) -> Any:
    return client.completions.create(**{"model": "speaker", "prompt": prompt, "temperature": 0, **options})


def greedy(model: Transformer, tokens: list[int], count: int) -> list[int]:
    """By the full forward pass, token by token."""
    written: list[int] = []
    with torch.no_grad():
        for _ in range(count):
            written.append(int(model(torch.tensor([tokens + written]))[0, -1].argmax()))
    return written


def test_the_text_is_that_of_the_full_forward_pass(client: OpenAI, speaker: Transformer, tokenizer: Tokenizer) -> None:
    expected = tokenizer.decode(greedy(speaker, tokenizer.encode(PROMPT), 12), skip_special=True)
    answer = complete(client, max_tokens=12, extra_body={"ignore_eos": True})
    assert answer.choices[0].text == expected and answer.choices[0].finish_reason == "length"
    assert answer.usage.prompt_tokens == len(tokenizer.encode(PROMPT)) and answer.usage.completion_tokens == 12
    streamed = complete(client, max_tokens=12, stream=True, extra_body={"ignore_eos": True})
    assert "".join(part.choices[0].text for part in streamed) == expected


def test_several_prompts_in_every_form(client: OpenAI, tokenizer: Tokenizer) -> None:
    texts = [PROMPT, "Hello", "numbers"]
    ids = [tokenizer.encode(text) for text in texts]
    alone = [complete(client, text, max_tokens=6).choices[0].text for text in texts]
    assert [choice.text for choice in complete(client, texts, max_tokens=6).choices] == alone
    assert [choice.text for choice in complete(client, ids, max_tokens=6).choices] == alone
    assert complete(client, ids[1], max_tokens=6).choices[0].text == alone[1]


def test_choices_of_several_prompts_are_numbered_prompt_by_prompt(client: OpenAI) -> None:
    options: dict[str, Any] = {"temperature": 1.0, "seed": 3, "max_tokens": 8}
    both = complete(client, [PROMPT, "Hello"], n=2, **options).choices
    assert [choice.index for choice in both] == [0, 1, 2, 3]
    hello = complete(client, "Hello", n=2, **options).choices
    assert [choice.text for choice in both[2:]] == [choice.text for choice in hello]


def test_the_default_is_sixteen_tokens(client: OpenAI) -> None:
    assert complete(client, extra_body={"ignore_eos": True}).usage.completion_tokens == 16


def test_logprobs_in_four_columns(client: OpenAI, speaker: Transformer, tokenizer: Tokenizer) -> None:
    choice = complete(client, max_tokens=5, logprobs=2, extra_body={"ignore_eos": True}).choices[0]
    prompt, written = tokenizer.encode(PROMPT), greedy(speaker, tokenizer.encode(PROMPT), 5)
    assert choice.logprobs.tokens == [tokenizer.piece(token) for token in written]
    assert choice.logprobs.token_logprobs == pytest.approx(reference_logprobs(speaker, prompt, written, 1.0), abs=1e-4)
    for start, piece in zip(choice.logprobs.text_offset, choice.logprobs.tokens, strict=True):
        assert choice.text[start : start + len(piece)] == piece
    for piece, value, top in zip(
        choice.logprobs.tokens, choice.logprobs.token_logprobs, choice.logprobs.top_logprobs, strict=True
    ):
        assert len(top) == 2 and top[piece] == value == max(top.values())  # greedy


def test_echo_scores_the_prompt(client: OpenAI, speaker: Transformer, tokenizer: Tokenizer) -> None:
    """What evaluation harnesses ask for: how likely is this text? Also with no new token at all."""
    tokens = tokenizer.encode("the numbers is")
    expected = reference_logprobs(speaker, tokens[:1], tokens[1:], 1.0)
    for count in (0, 3):
        choice = complete(
            client, tokens, max_tokens=count, echo=True, logprobs=1, extra_body={"ignore_eos": True}
        ).choices[0]
        assert choice.logprobs.token_logprobs[0] is None
        assert choice.logprobs.token_logprobs[1 : len(tokens)] == pytest.approx(expected, abs=1e-4)
        assert len(choice.logprobs.tokens) == len(tokens) + count
        assert choice.text.startswith("the numbers is")
        for start, piece in zip(choice.logprobs.text_offset, choice.logprobs.tokens, strict=True):
            assert choice.text[start : start + len(piece)] == piece


def test_scores_alone_are_no_stream(server: Running) -> None:
    """Where nothing is written there is nothing to stream: the answer comes in one piece, with its scores."""
    body = {"prompt": "the numbers is", "max_tokens": 0, "echo": True, "logprobs": 1}
    whole, asked = (
        http.post(f"{server.url}/v1/completions", json=body | {"stream": each}).json() for each in (False, True)
    )
    assert whole["choices"] == asked["choices"] and len(whole["choices"][0]["logprobs"]["tokens"]) > 2


def test_likeliest_tokens_of_a_prompt_come_by_their_ids(
    server: Running, speaker: Transformer, tokenizer: Tokenizer
) -> None:
    """As vLLM's `prompt_logprobs`: what a distilled student learns from. Two tokens may have one text, but not one id."""
    tokens = [*tokenizer.encode("the numbers é")[:-1], tokenizer.token("<|im_end|>")]
    body = {"prompt": tokens, "max_tokens": 0, "echo": True, "prompt_logprobs": 40}
    answer = http.post(f"{server.url}/v1/completions", json=body).json()["choices"][0]
    first, *rest = answer["prompt_logprobs"]
    assert first is None and answer["logprobs"] is None
    with torch.no_grad():
        logprobs = speaker(torch.tensor([tokens]))[0].float().log_softmax(-1)
    for place, entry in enumerate(rest):
        values, ids = logprobs[place].topk(40)
        expected = dict(zip(ids.tolist(), values.tolist(), strict=True)) | {
            tokens[place + 1]: float(logprobs[place, tokens[place + 1]])
        }
        assert {int(id): one["logprob"] for id, one in entry.items()} == pytest.approx(expected, abs=1e-4)
        assert [one["rank"] for one in entry.values()][:40] == list(range(1, 41))
        assert all(one["decoded_token"] == tokenizer.piece(int(id)) for id, one in entry.items())
    refused = http.post(f"{server.url}/v1/completions", json={**body, "stream": True})
    assert refused.status_code == 400 and "prompt_logprobs" in refused.text


def test_stop_strings_and_their_logprobs(client: OpenAI, speaker: Transformer, tokenizer: Tokenizer) -> None:
    whole = complete(client, max_tokens=20).choices[0].text
    stop = whole[4:6]
    choice = complete(client, max_tokens=20, stop=stop, logprobs=1).choices[0]
    assert (choice.text, choice.finish_reason) == (whole[: whole.index(stop)], "stop")
    assert all(offset < len(choice.text) for offset in choice.logprobs.text_offset)
    assert "".join(choice.logprobs.tokens).startswith(choice.text)


def test_the_engine_by_itself_gives_the_same(client: OpenAI, speaker: Transformer, tokenizer: Tokenizer) -> None:
    """Every option arrives: the same sampling by hand gives the same text."""
    options = {"temperature": 0.9, "top_p": 0.9, "seed": 11, "presence_penalty": 0.5, "frequency_penalty": 0.3}
    extra = {"top_k": 20, "min_p": 0.01, "repetition_penalty": 1.2, "ignore_eos": True}
    [token] = tokenizer.encode("q")
    answer = complete(client, logit_bias={str(token): 3}, max_tokens=24, extra_body=extra, **options)
    sampling = Sampling(
        max_new_tokens=24,
        temperature=0.9,
        top_p=0.9,
        top_k=20,
        min_p=0.01,
        seed=11,
        presence_penalty=0.5,
        frequency_penalty=0.3,
        repetition_penalty=1.2,
        logit_bias=((token, 3.0),),
    )
    [expected] = Engine(speaker, slots=1).complete([tokenizer.encode(PROMPT)], [sampling])
    assert answer.choices[0].text == tokenizer.decode(expected.tokens, skip_special=True)


def test_logprobs_of_characters_in_several_tokens(babbler: Running, tokenizer: Tokenizer) -> None:
    """Every token of the text has its row, and each row the place of its character, also before a stop string."""
    written, asked = "äö€ abc", "x€y"
    pieces = tokenizer.encode(written)
    assert len(pieces) > len(written) + 3
    expected = [0, 0, 1, 1, 2, 2, 2, 3, 4, 5, 6]
    options: dict[str, Any] = {"max_tokens": 40, "logprobs": 1, "stop": "END"}
    options["extra_body"] = {"structured_outputs": {"choice": [written + "END."]}}
    choice = complete(babbler.client, **options).choices[0]
    assert choice.text == written and choice.finish_reason == "stop"
    assert choice.logprobs.tokens == [tokenizer.piece(token) for token in pieces]
    assert choice.logprobs.text_offset == expected
    echoed = complete(babbler.client, asked, echo=True, **options).choices[0]
    assert echoed.text == asked + written
    assert echoed.logprobs.text_offset == [0, 1, 1, 1, 2, *(len(asked) + start for start in expected)]
    columns: dict[str, list[Any]] = {"text_offset": [], "tokens": []}
    for part in complete(babbler.client, asked, echo=True, stream=True, **options):
        for name, values in columns.items():
            values += getattr(part.choices[0].logprobs, name)
    assert columns == {name: getattr(echoed.logprobs, name) for name in columns}


def test_a_prompt_that_fills_the_context_is_scored(
    client: OpenAI, server: Running, speaker: Transformer, tokenizer: Tokenizer
) -> None:
    """An answer would find no room, but none is asked for."""
    tokens = (tokenizer.encode(PROMPT) * server.service.length)[: server.service.length]
    choice = complete(client, tokens, max_tokens=0, echo=True, logprobs=0).choices[0]
    assert choice.logprobs.token_logprobs[1:] == pytest.approx(
        reference_logprobs(speaker, tokens[:1], tokens[1:], 1.0), abs=1e-4
    )
    for count, prompt in ((1, tokens), (0, [*tokens, tokens[0]])):
        with pytest.raises(BadRequestError, match="the model's context is"):
            complete(client, prompt, max_tokens=count, echo=True, logprobs=0)
