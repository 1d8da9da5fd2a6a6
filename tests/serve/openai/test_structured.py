"""Structured output and forced tool calls: answers are checked by jsonschema, by `re` and by json."""

from __future__ import annotations

import json
import re
import threading
from typing import Any

import jsonschema
import pytest
from openai import BadRequestError, OpenAI, RateLimitError
from pydantic import BaseModel

from ingot.inference.structure.errors import StructureError
from ingot.tokens.tokenizer import TOOL_CALL_END, TOOL_CALL_START, Tokenizer
from tests.serve.openai.harness import Running
from tests.serve.openai.test_chat import NO_THINKING, TOOLS, ask, stream
from tests.serve.speaker import GREETING, QUESTION

PERSON: dict[str, Any] = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 8},
        "age": {"type": "integer", "minimum": 0, "maximum": 150},
        "colour": {"enum": ["red", "green"]},
    },
    "required": ["name", "age", "colour"],
    "additionalProperties": False,
}
WEATHER: dict[str, Any] = {
    "name": "weather",
    "parameters": {
        "type": "object",
        "properties": {"city": {"$ref": "#/$defs/city"}, "days": {"type": "integer", "minimum": 1, "maximum": 9}},
        "required": ["city", "days"],
        "additionalProperties": False,
        "$defs": {"city": {"enum": ["Oslo", "Rome"]}},
    },
}
TIME: dict[str, Any] = {
    "name": "time",
    "parameters": {
        "type": "object",
        "properties": {"zone": {"type": "boolean"}},
        "required": ["zone"],
        "additionalProperties": False,
    },
}
TWO: list[Any] = [{"type": "function", "function": function} for function in (WEATHER, TIME)]
PARAMETERS = {function["name"]: function["parameters"] for function in (WEATHER, TIME)}


def schema_format(schema: Any) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema}}


@pytest.mark.parametrize("seed", range(4))
def test_answers_fit_the_schema(client: OpenAI, seed: int) -> None:
    """A hot model that would write noise."""
    answer = ask(
        client,
        GREETING,
        temperature=2,
        seed=seed,
        tools=[],
        response_format=schema_format(PERSON),
        extra_body=NO_THINKING,
    ).choices[0]
    assert answer.finish_reason == "stop"
    jsonschema.validate(json.loads(answer.message.content or ""), PERSON)


def test_the_clients_own_parsing_of_models(client: OpenAI) -> None:
    class Person(BaseModel):
        married: bool
        children: list[bool]

    parsed = client.chat.completions.parse(
        model="speaker",
        messages=[{"role": "user", "content": GREETING}],
        response_format=Person,
        temperature=0,
        extra_body=NO_THINKING,
        max_tokens=100,
    )
    # the list may have any length, so the answer may be cut off; if it is not, it is a Person
    assert parsed.choices[0].finish_reason == "length" or isinstance(parsed.choices[0].message.parsed, Person)


def test_any_json_object(client: OpenAI) -> None:
    for seed in range(3):
        answer = ask(
            client,
            GREETING,
            response_format={"type": "json_object"},
            temperature=1,
            seed=seed,
            tools=[],
            extra_body=NO_THINKING,
        ).choices[0]
        if answer.finish_reason == "stop":
            assert isinstance(json.loads(answer.message.content or ""), dict)
        assert (answer.message.content or "").lstrip().startswith("{")


def test_thinking_comes_before_the_form(client: OpenAI) -> None:
    """The model thinks as it has learnt to; its answer then fits the schema."""
    answer = ask(client, QUESTION, response_format=schema_format({"enum": ["yes", "no"]}), tools=[])
    message: Any = answer.choices[0].message
    assert answer.choices[0].finish_reason in ("stop", "length")
    if answer.choices[0].finish_reason == "stop":
        assert json.loads(message.content) in ("yes", "no")


def test_regular_expressions_and_choices(client: OpenAI) -> None:
    pattern = r"[A-F]{3}-\d{2}"
    for seed in range(3):
        body = {"structured_outputs": {"regex": pattern}, **NO_THINKING}
        found = ask(client, GREETING, temperature=2, seed=seed, tools=[], extra_body=body).choices[0]
        assert found.finish_reason == "stop" and re.fullmatch(pattern, found.message.content or "")
        body = {"structured_outputs": {"choice": ["left", "right"]}, **NO_THINKING}
        chosen = ask(client, GREETING, temperature=2, seed=seed, tools=[], extra_body=body).choices[0]
        assert chosen.message.content in ("left", "right")
    completed = client.completions.create(
        model="speaker", prompt="x", max_tokens=30, extra_body={"structured_outputs": {"regex": pattern}}
    )
    assert re.fullmatch(pattern, completed.choices[0].text)


@pytest.mark.parametrize("seed", range(3))
def test_a_call_that_is_required_fits_its_tool(babbler: Running, seed: int) -> None:
    answer = ask(
        babbler.client,
        GREETING,
        tools=TWO,
        tool_choice="required",
        parallel_tool_calls=False,
        temperature=2,
        seed=seed,
        extra_body=NO_THINKING,
    ).choices[0]
    assert answer.finish_reason == "tool_calls" and answer.message.content is None
    [call] = answer.message.tool_calls
    assert call.type == "function"
    jsonschema.validate(json.loads(call.function.arguments), PARAMETERS[call.function.name])


def test_calls_in_parallel(babbler: Running, tokenizer: Tokenizer) -> None:
    """A bias makes the model begin another call after each; all fit but the last, which the limit cuts off."""
    bias = {str(tokenizer.token(TOOL_CALL_START)): 100}
    options = {
        "tools": TWO,
        "tool_choice": "required",
        "max_tokens": 200,
        "logit_bias": bias,
        "extra_body": NO_THINKING,
    }
    answer = ask(babbler.client, GREETING, temperature=1, seed=1, **options).choices[0]
    calls: list[Any] = list(answer.message.tool_calls)
    assert len(calls) >= 3 and answer.finish_reason == "length"
    assert len({call.id for call in calls}) == len(calls)
    for call in calls[:-1]:
        jsonschema.validate(json.loads(call.function.arguments), PARAMETERS[call.function.name])
    [streamed], _ = stream(babbler.client, GREETING, temperature=1, seed=1, **options)
    assert streamed["calls"] == [[call.function.name, call.function.arguments] for call in calls]


def test_the_named_tool_is_called(babbler: Running) -> None:
    for name in ("weather", "time"):
        choice = {"type": "function", "function": {"name": name}}
        options = {"tools": TWO, "tool_choice": choice, "parallel_tool_calls": False, "extra_body": NO_THINKING}
        [call] = ask(babbler.client, GREETING, **options).choices[0].message.tool_calls
        assert call.type == "function" and call.function.name == name
        jsonschema.validate(json.loads(call.function.arguments), PARAMETERS[name])


def test_a_strict_tool_holds_a_call_that_the_model_makes_by_itself(babbler: Running, tokenizer: Tokenizer) -> None:
    """A bias makes it open a call; what stands in the call is noise without `strict`, and fits the schema with it."""
    bias = {str(tokenizer.token(TOOL_CALL_START)): 100}

    def answer(strict: bool) -> Any:
        tools = [{"type": "function", "function": WEATHER | {"strict": strict}}]
        return ask(babbler.client, GREETING, tools=tools, logit_bias=bias, max_tokens=60, parallel_tool_calls=False)

    [call] = answer(strict=True).choices[0].message.tool_calls
    assert call.function.name == "weather"
    jsonschema.validate(json.loads(call.function.arguments), WEATHER["parameters"])
    assert answer(strict=False).choices[0].message.tool_calls is None


def test_no_call_when_calls_are_forbidden(client: OpenAI) -> None:
    answer = ask(client, QUESTION, tools=TOOLS, tool_choice="none").choices[0]
    assert answer.message.tool_calls is None and answer.finish_reason in ("stop", "length")


@pytest.mark.parametrize(
    ("options", "param"),
    [
        ({"response_format": schema_format({"type": "colour"})}, "response_format"),
        ({"response_format": schema_format({"$ref": "#/nowhere"})}, "response_format"),
        ({"extra_body": {"structured_outputs": {"regex": "(a"}}}, "structured_outputs"),
        ({"extra_body": {"structured_outputs": {"regex": r"(a)\1"}}}, "structured_outputs"),
        (
            {
                "tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "x"}}}],
                "tool_choice": "required",
            },
            "tools",
        ),
    ],
)
def test_a_structure_that_cannot_be_compiled_is_a_400(client: OpenAI, options: Any, param: str) -> None:
    for _ in range(2):  # compiled, then remembered
        with pytest.raises(BadRequestError) as caught:
            ask(client, GREETING, **options)
        assert caught.value.code == "invalid_schema" and caught.value.param == param


@pytest.mark.parametrize("thinking", [True, False])
def test_at_most_one_call_where_only_one_is_wanted(babbler: Running, tokenizer: Tokenizer, thinking: bool) -> None:
    """A model that would go on calling for ever: its call is left as it wrote it, and its turn ends behind it."""
    marks = [tokenizer.special[name] for name in (TOOL_CALL_START, TOOL_CALL_END)]
    extra = {"chat_template_kwargs": {"enable_thinking": thinking}}
    options: dict[str, Any] = {"tools": TWO, "max_tokens": 20, "extra_body": extra}
    options["logit_bias"] = {str(mark): 100 for mark in marks}
    many = ask(babbler.client, GREETING, **options)
    one = ask(babbler.client, GREETING, parallel_tool_calls=False, **options)
    call = "<tool_call></tool_call>"
    assert many.choices[0].finish_reason == "length"
    assert one.choices[0].finish_reason == "stop" and one.choices[0].message.content == call
    assert one.usage.completion_tokens == 3  # the call's two marks and the end of the turn


def test_which_of_two_structures_is_wrong(babbler: Running) -> None:
    """An answer or a call: the error names the field, and says what llguidance says and what to do."""
    wrong = schema_format({"type": "object", "not": {}})
    for _ in range(2):
        with pytest.raises(BadRequestError) as caught:
            ask(babbler.client, GREETING, tools=TWO, response_format=wrong)
        assert caught.value.param == "response_format"
        assert 'Unimplemented keys: ["not"]; leave them out' in caught.value.message
    function = {"name": "f", "parameters": {"type": "object", "not": {}}}
    with pytest.raises(BadRequestError) as caught:
        ask(
            babbler.client,
            GREETING,
            tools=[{"type": "function", "function": function}],
            response_format=schema_format(PERSON),
        )
    assert caught.value.param == "tools"


def test_a_structure_that_takes_too_long_to_compile(babbler: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    """What has begun is the client's fault; what never had its turn is not. Other requests go on meanwhile."""
    begun, release = threading.Event(), threading.Event()

    def slow(grammar: str, tokenizer: Tokenizer) -> Any:
        begun.set()
        release.wait(20)
        raise StructureError("refused", place="structure")

    monkeypatch.setattr("ingot.serve.openai.service.compile_grammar", slow)
    monkeypatch.setattr(babbler.service, "compile_limit", 1.0)
    found: dict[str, list[Any]] = {"codes": [], "messages": []}

    def send(number: int) -> None:
        try:
            ask(babbler.client, GREETING, tools=[], response_format=schema_format({"const": f"slow {number}"}))
        except (BadRequestError, RateLimitError) as error:
            found["codes"].append(error.status_code)
            found["messages"].append(error.message)

    threads = [threading.Thread(target=send, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    assert begun.wait(20)
    assert ask(babbler.client, GREETING, tools=[], max_tokens=2).choices[0].message is not None
    for thread in threads:
        thread.join(30)
    release.set()
    assert sorted(found["codes"]) == [400, 400, 429, 429], found
    assert any("takes more than 1 s to compile" in message for message in found["messages"])


def test_a_structure_that_becomes_too_complex_is_a_400(babbler: Running) -> None:
    """It compiles, but following it would take too long: no server error."""
    body = {"structured_outputs": {"regex": "([a-z]{1,30}[0-9]{0,30}){1,50}x"}, **NO_THINKING}
    try:
        answer = ask(babbler.client, GREETING, tools=[], temperature=1, seed=0, max_tokens=200, extra_body=body)
        assert answer.choices[0].finish_reason in ("stop", "length")
    except BadRequestError as error:
        assert error.code == "invalid_schema" and "too many expressions" in error.message
