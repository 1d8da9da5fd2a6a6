"""Models with other chat templates: without tokens for tool calls (SmolLM2 …), or with a trace that the prompt opens."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import jsonschema
import pytest
from tokenizers import pre_tokenizers

from ingot.inference.engine import Engine
from ingot.tokens.template_files import template_text
from ingot.tokens.tokenizer import THINK_END, Tokenizer
from tests.inference.structure.conftest import byte_level
from tests.serve.openai.harness import Running, http, serving, untrained
from tests.serve.openai.test_chat import ask, stream
from tests.serve.openai.test_structured import PARAMETERS, PERSON, TWO, schema_format

CHATML = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
CALL = '<tool_call>\n{"name": "time", "arguments": {"zone": true}}\n</tool_call>'


@pytest.fixture(scope="module")
def plain() -> Iterator[Running]:
    """Tokens are bytes, and the only special ones are those of a turn."""
    tokenizer = byte_level([bytes([byte]) for byte in range(256)], ["<|endoftext|>", "<|im_start|>", "<|im_end|>"])
    tokenizer.backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer = Tokenizer(tokenizer.backend, CHATML)
    with serving(Engine(untrained(tokenizer, 4096), slots=4)) as running:
        yield running


def test_tools_are_told_in_words(plain: Running) -> None:
    messages: list[Any] = [
        {"role": "system", "content": "Be kind."},
        {"role": "user", "content": "When?"},
        {
            "role": "assistant",
            "tool_calls": [{"id": "1", "function": {"name": "time", "arguments": '{"zone": true}'}}],
        },
        {"role": "tool", "tool_call_id": "1", "content": "noon"},
    ]
    tokens = http.post(f"{plain.url}/tokenize", json={"messages": messages, "tools": TWO}).json()["tokens"]
    text = http.post(f"{plain.url}/detokenize", json={"tokens": tokens}).json()["prompt"]
    system, user, assistant, result, rest = text.split("<|im_start|>")[1:]
    assert system.startswith("system\nBe kind.\n\n# Tools") and json.dumps(TWO[1]) in system
    assert (user, assistant) == ("user\nWhen?<|im_end|>\n", f"assistant\n{CALL}<|im_end|>\n")
    assert result == "user\n<tool_response>\nnoon\n</tool_response><|im_end|>\n" and rest == "assistant\n"


def test_a_call_in_text_is_read_as_a_call(plain: Running) -> None:
    """The model is made to write it: only where tools were offered is it one."""
    body = {"structured_outputs": {"choice": ["Well.\n" + CALL]}}
    answer = ask(plain.client, "When?", tools=TWO, extra_body=body).choices[0]
    [call] = answer.message.tool_calls
    assert (call.function.name, call.function.arguments) == ("time", '{"zone": true}')
    assert (answer.message.content, answer.finish_reason) == ("Well.", "tool_calls")
    [streamed], _ = stream(plain.client, "When?", tools=TWO, extra_body=body)
    assert (streamed["calls"], streamed["content"]) == ([["time", '{"zone": true}']], "Well.")
    untold = ask(plain.client, "When?", tools=[], extra_body=body).choices[0]
    assert untold.message.content == "Well.\n" + CALL and untold.message.tool_calls is None


def test_a_call_can_be_required(plain: Running) -> None:
    for seed in range(2):
        options = {"tools": TWO, "tool_choice": "required", "parallel_tool_calls": False}
        answer = ask(plain.client, "When?", temperature=1, seed=seed, **options).choices[0]
        [call] = answer.message.tool_calls
        assert answer.finish_reason == "tool_calls"
        jsonschema.validate(json.loads(call.function.arguments), PARAMETERS[call.function.name])


def test_a_trace_that_the_prompt_opens(tokenizer: Tokenizer) -> None:
    """As DeepSeek's templates do: the model closes the trace (here by a bias), and the form begins after it."""
    head, ending = template_text().rsplit('("" if', 1)
    template = f'{head}("<think>" if{ending}'
    opening = Tokenizer(tokenizer.backend, template)
    with serving(Engine(untrained(opening), slots=2)) as running:
        options = {"tools": [], "max_tokens": 200, "logprobs": True}
        cut = ask(running.client, "Who?", max_tokens=20, tools=[], temperature=1, seed=3).choices[0]
        assert cut.message.content == "" and cut.message.reasoning
        bias = {str(tokenizer.token(THINK_END)): 100}
        answer = ask(running.client, "Who?", logit_bias=bias, response_format=schema_format(PERSON), **options)
        message = answer.choices[0].message
        jsonschema.validate(json.loads(message.content), PERSON)
        assert message.reasoning == "" and answer.usage.completion_tokens_details.reasoning_tokens == 1
