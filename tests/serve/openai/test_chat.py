"""Chat completions through the official client, against what the model is known to say and what torch computes."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from openai import OpenAI

from ingot.model.transformer import Transformer
from ingot.tokens.chat import ChatFormat, Message
from tests.inference.conftest import reference_logprobs
from tests.serve.openai.harness import Running, http
from tests.serve.speaker import FAREWELL, GREETING, QUESTION, SCHEMA

TOOLS: list[Any] = [{"type": "function", "function": SCHEMA}]
NO_THINKING = {"chat_template_kwargs": {"enable_thinking": False}}


def ask(client: OpenAI, *messages: Any, **options: Any) -> Any:
    """A request to the model, greedy unless asked otherwise; a plain text is what the user says."""
    said = [{"role": "user", "content": message} if isinstance(message, str) else message for message in messages]
    return client.chat.completions.create(
        **{"model": "speaker", "messages": said, "temperature": 0, "tools": TOOLS, **options}
    )


def stream(client: OpenAI, *messages: Any, **options: Any) -> tuple[list[dict[str, Any]], list[Any]]:
    """The same as a stream: each choice put together from its deltas as a client would, and the events."""
    events: list[Any] = list(ask(client, *messages, stream=True, **options))
    choices: list[dict[str, Any]] = []
    for part in (part for event in events for part in event.choices):
        while len(choices) <= part.index:
            choices.append({"content": "", "reasoning": "", "calls": [], "finish": None, "logprobs": []})
        choice, delta = choices[part.index], part.delta
        assert choice["finish"] is None, "a delta after the end"
        choice["content"] += delta.content or ""
        choice["reasoning"] += getattr(delta, "reasoning_content", None) or ""
        assert getattr(delta, "reasoning", None) == getattr(delta, "reasoning_content", None)
        for call in delta.tool_calls or ():
            if call.index == len(choice["calls"]):
                assert call.id and call.type == "function" and call.function.name and not call.function.arguments
                choice["calls"].append([call.function.name, ""])
            choice["calls"][call.index][1] += call.function.arguments
        choice["logprobs"] += part.logprobs.content if part.logprobs else []
        choice["finish"] = part.finish_reason
    return choices, events


def prompt_text(server: Running, messages: list[Any]) -> str:
    """What the model reads for a conversation."""
    tokens = http.post(f"{server.url}/tokenize", json={"messages": messages, "tools": TOOLS}).json()
    answer = http.post(f"{server.url}/detokenize", json={"tokens": tokens["tokens"]})
    return str(answer.json()["prompt"])


def test_an_answer_without_thinking(client: OpenAI, chat_format: ChatFormat) -> None:
    answer = ask(client, GREETING, extra_body=NO_THINKING)
    [choice] = answer.choices
    assert (choice.message.content, choice.message.role, choice.finish_reason) == ("Good day", "assistant", "stop")
    assert choice.message.tool_calls is None and choice.message.reasoning_content is None
    prompt = chat_format.prompt([Message("user", GREETING)], [SCHEMA], thinking=False)
    written = len(chat_format.tokenizer.encode("Good day")) + 1  # the end of the turn
    assert answer.usage is not None and answer.model == "speaker"
    usage = (answer.usage.prompt_tokens, answer.usage.completion_tokens, answer.usage.total_tokens)
    assert usage == (len(prompt), written, len(prompt) + written)


def test_reasoning_effort_none_is_the_same_as_thinking_switched_off(client: OpenAI) -> None:
    assert ask(client, GREETING, reasoning_effort="none").choices[0].message.content == "Good day"


def test_reasoning_is_kept_apart_and_counted(client: OpenAI, chat_format: ChatFormat) -> None:
    answer = ask(client, QUESTION)
    message = answer.choices[0].message
    assert message.reasoning_content == message.reasoning == "call it"
    assert answer.usage is not None and answer.usage.completion_tokens_details is not None
    trace = len(chat_format.tokenizer.encode("call it")) + 2  # the two tags
    assert answer.usage.completion_tokens_details.reasoning_tokens == trace


def test_a_tool_call_and_its_result(client: OpenAI) -> None:
    """The answer goes back as the client gave it, with the tool's result: the round trip of every agent."""
    called = ask(client, QUESTION).choices[0]
    assert called.finish_reason == "tool_calls" and called.message.content is None
    [call] = called.message.tool_calls
    assert call.type == "function"
    assert (call.function.name, call.function.arguments) == ("times", '{"a": 12, "b": 34}')
    result = {"role": "tool", "tool_call_id": call.id, "content": "408"}
    final = ask(client, QUESTION, called.message, result).choices[0]
    assert (final.message.content, final.message.reasoning, final.finish_reason) == ("It is 408 — ja.", "done", "stop")
    thanks = ask(client, QUESTION, called.message, result, final.message, FAREWELL).choices[0].message
    assert thanks.content == "See you"


def test_results_come_in_the_order_of_the_calls(server: Running) -> None:
    calls = [
        {"id": name, "type": "function", "function": {"name": "times", "arguments": "{}"}} for name in ("one", "two")
    ]
    asked = [{"role": "user", "content": QUESTION}, {"role": "assistant", "tool_calls": calls}]
    results = [{"role": "tool", "tool_call_id": name, "content": name} for name in ("one", "two")]
    forward = prompt_text(server, [*asked, *results])
    assert forward == prompt_text(server, [*asked, *reversed(results)])
    assert forward.index("<tool_response>one") < forward.index("<tool_response>two")


@pytest.mark.parametrize("question", [QUESTION, GREETING, FAREWELL])
@pytest.mark.parametrize("options", [{"n": 3, "temperature": 1, "seed": 5}, {"logprobs": True, "stop": ["ou"]}])
def test_a_stream_adds_up_to_the_whole_answer(client: OpenAI, question: str, options: dict[str, Any]) -> None:
    whole = ask(client, question, **options)
    choices, events = stream(client, question, stream_options={"include_usage": True}, **options)
    assert len(choices) == len(whole.choices)
    for choice, streamed in zip(whole.choices, choices, strict=True):
        message = choice.message
        assert streamed["content"] == (message.content or "")
        assert streamed["reasoning"] == (message.reasoning_content or "")
        assert streamed["calls"] == [[c.function.name, c.function.arguments] for c in message.tool_calls or ()]
        assert streamed["finish"] == choice.finish_reason
        if choice.logprobs is not None:
            assert streamed["logprobs"] == choice.logprobs.content
    assert whole.usage is not None and events[-1].choices == []
    assert events[-1].usage.completion_tokens == whole.usage.completion_tokens
    assert all(event.usage is None for event in events[:-1])


def test_a_call_is_streamed_name_first_then_arguments_in_pieces(client: OpenAI) -> None:
    [choice], events = stream(client, QUESTION)
    assert choice["calls"] == [["times", '{"a": 12, "b": 34}']]
    pieces = [event for event in events if event.choices[0].delta.tool_calls]
    assert len(pieces) > 5 and pieces[0].choices[0].delta.tool_calls[0].function.name == "times"


def test_stop_strings_end_the_answer_before_them(client: OpenAI) -> None:
    final = {"extra_body": NO_THINKING}
    assert ask(client, GREETING, stop="day", **final).choices[0].message.content == "Good "
    assert ask(client, GREETING, stop=["zzz", "d d"], **final).choices[0].message.content == "Goo"
    [streamed], _ = stream(client, GREETING, stop="day", **final)
    assert (streamed["content"], streamed["finish"]) == ("Good ", "stop")


def test_stop_strings_do_not_cut_reasoning_or_calls(client: OpenAI) -> None:
    message = ask(client, QUESTION, stop=["call", "12"]).choices[0].message
    assert message.reasoning == "call it" and message.tool_calls[0].function.arguments == '{"a": 12, "b": 34}'


def test_stop_tokens(client: OpenAI, chat_format: ChatFormat) -> None:
    """The token itself is not shown."""
    [token] = chat_format.tokenizer.encode("y")
    options = {"stop_token_ids": [token], **NO_THINKING}
    answer = ask(client, GREETING, extra_body=options).choices[0]
    assert (answer.message.content, answer.finish_reason) == ("Good da", "stop")


def test_the_number_of_tokens_is_limited(client: OpenAI) -> None:
    for name in ("max_tokens", "max_completion_tokens"):
        answer = ask(client, GREETING, extra_body={name: 2, **NO_THINKING})
        assert answer.choices[0].finish_reason == "length"
        assert answer.usage is not None and answer.usage.completion_tokens == 2
    filled = ask(client, GREETING, extra_body={"ignore_eos": True, "max_tokens": 10**6})
    assert filled.usage is not None and filled.usage.total_tokens == 256  # the model's context


def test_a_seed_gives_the_same_text_alone_in_a_crowd_and_among_choices(client: OpenAI) -> None:
    def text(seed: int) -> str | None:
        options = {"ignore_eos": True, **NO_THINKING}
        answer = ask(client, GREETING, seed=seed, temperature=1.5, max_tokens=40, extra_body=options)
        return answer.choices[0].message.content

    alone = [text(seed) for seed in range(4)]
    assert len(set(alone)) == 4
    with ThreadPoolExecutor(16) as pool:
        assert list(pool.map(text, [*range(4)] * 4)) == alone * 4
    options = {"ignore_eos": True, **NO_THINKING}
    group = ask(client, GREETING, n=4, seed=0, temperature=1.5, max_tokens=40, extra_body=options)
    assert [choice.message.content for choice in group.choices] == alone
    assert group.usage is not None and group.usage.completion_tokens == 160


def test_without_a_seed_answers_differ(client: OpenAI) -> None:
    options = {"ignore_eos": True, **NO_THINKING}
    answers = [ask(client, GREETING, temperature=2, max_tokens=20, extra_body=options) for _ in range(2)]
    assert answers[0].choices[0].message.content != answers[1].choices[0].message.content


def test_logprobs_are_those_of_the_full_forward_pass(
    client: OpenAI, speaker: Transformer, chat_format: ChatFormat
) -> None:
    """At temperature 1 whatever was sampled with, as OpenAI's API gives them."""
    for temperature in (0, 0.5):
        answer = ask(
            client, GREETING, logprobs=True, top_logprobs=3, temperature=temperature, seed=1, extra_body=NO_THINKING
        ).choices[0]
        assert answer.logprobs is not None and answer.logprobs.content is not None
        entries = answer.logprobs.content
        assert b"".join(bytes(entry.bytes or ()) for entry in entries) == (answer.message.content or "").encode()
        prompt = chat_format.prompt([Message("user", GREETING)], [SCHEMA], thinking=False)
        tokens = chat_format.tokenizer.encode(answer.message.content or "")
        expected = reference_logprobs(speaker, prompt, tokens, 1.0)
        assert [entry.logprob for entry in entries] == pytest.approx(expected, abs=1e-4)
        with torch.no_grad():
            table = speaker(torch.tensor([prompt + tokens]))[0].double().log_softmax(-1)[len(prompt) - 1 : -1]
        values, ids = table.topk(3)
        for entry, likely, best in zip(entries, values.tolist(), ids.tolist(), strict=True):
            assert [top.token for top in entry.top_logprobs] == [chat_format.tokenizer.piece(id) for id in best]
            assert [top.logprob for top in entry.top_logprobs] == pytest.approx(likely, abs=1e-4)


def test_logprobs_of_a_stop_string_are_not_given(client: OpenAI) -> None:
    answer = ask(client, GREETING, logprobs=True, stop="day", extra_body=NO_THINKING).choices[0]
    assert answer.logprobs is not None
    assert "".join(entry.token for entry in answer.logprobs.content or ()) == answer.message.content == "Good "


def test_logit_bias_moves_the_choice(client: OpenAI, chat_format: ChatFormat) -> None:
    [token] = chat_format.tokenizer.encode("q")
    answer = ask(client, GREETING, logit_bias={str(token): 100}, max_tokens=5, extra_body=NO_THINKING)
    assert answer.choices[0].message.content == "qqqqq"
    banned = ask(client, GREETING, logit_bias={str(chat_format.tokenizer.encode("G")[0]): -100}, extra_body=NO_THINKING)
    assert not (banned.choices[0].message.content or "").startswith("G")


def test_a_prompt_seen_before_is_not_read_again(client: OpenAI) -> None:
    said = "Say something that nobody has said before, please."
    first, second = (ask(client, said, max_tokens=1).usage for _ in range(2))
    assert first is not None and first.prompt_tokens_details is not None
    assert second is not None and second.prompt_tokens_details is not None
    unread = second.prompt_tokens - (second.prompt_tokens_details.cached_tokens or 0)
    assert 0 < unread <= 17  # less than a page of 16, and the last token, which is read in any case
    assert (first.prompt_tokens_details.cached_tokens or 0) < (second.prompt_tokens_details.cached_tokens or 0)


def test_content_in_parts_and_developers_are_understood(client: OpenAI, server: Running) -> None:
    parts = [{"role": "user", "content": [{"type": "text", "text": "Hel"}, {"type": "text", "text": "lo"}]}]
    assert ask(client, *parts, extra_body=NO_THINKING).choices[0].message.content == "Good day"
    greeting = {"role": "user", "content": GREETING}
    texts = [prompt_text(server, [{"role": role, "content": "Be kind."}, greeting]) for role in ("system", "developer")]
    assert texts[0] == texts[1] and "Be kind." in texts[0]


def test_counts_in_every_event(client: OpenAI) -> None:
    options = {"include_usage": True, "continuous_usage_stats": True}
    _, events = stream(client, GREETING, stream_options=options, extra_body=NO_THINKING)
    counts = [event.usage.completion_tokens for event in events]
    assert counts == sorted(counts) and counts[0] == 0 and counts[-1] == counts[-2] > 1
