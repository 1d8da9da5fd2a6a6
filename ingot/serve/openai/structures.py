"""Which form an answer must have: from response_format, structured_outputs, tools and tool_choice to a constraint."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ingot.inference.sampling import Constraint
from ingot.serve.openai.errors import ApiError
from ingot.serve.openai.prompts import Prompt, has_call_tokens
from ingot.serve.openai.service import Service
from ingot.serve.openai.turns import Anything, Chain, Either, Optional, Several, Token
from ingot.serve.openai.wire import (
    ChatRequest,
    Function,
    JsonFormat,
    NamedTool,
    ResponseFormat,
    SchemaFormat,
    StructuredOutputs,
    Tool,
)
from ingot.tokens.tokenizer import THINK_END, THINK_START, TOOL_CALL_END, TOOL_CALL_START


def answer_structure(
    service: Service, response_format: ResponseFormat | None, structured: StructuredOutputs | None
) -> Constraint | None:
    """The form of the answer's text; None: any."""
    asks = not (response_format is None or response_format.type == "text")
    if asks and structured is not None:
        raise ApiError(400, "give either response_format or structured_outputs", param="structured_outputs")
    if isinstance(response_format, JsonFormat):
        return service.structure("json", None, "response_format")
    if isinstance(response_format, SchemaFormat):
        return service.structure("schema", response_format.json_schema.schema_, "response_format")
    if structured is None:
        return None
    if structured.json_ is not None:
        return service.structure("schema", structured.json_, "structured_outputs")
    if structured.regex is not None:
        return service.structure("regex", structured.regex, "structured_outputs")
    return service.structure("choice", structured.choice, "structured_outputs")


def offered_tools(body: ChatRequest) -> list[Tool]:
    """The tools that the model is told of: all, none, or the one that it must call."""
    tools, choice = body.tools or [], body.tool_choice
    names = [tool.function.name for tool in tools]
    if len(set(names)) < len(names):
        raise ApiError(400, "two tools have the same name", param="tools", code="invalid_value")
    if choice == "none":
        return []
    if choice == "required" and not tools:
        raise ApiError(400, "tool_choice asks for a call, but there are no tools", param="tool_choice")
    if isinstance(choice, NamedTool):
        tools = [tool for tool in tools if tool.function.name == choice.function.name]
        if not tools:
            message = f"tool_choice names {choice.function.name!r}, which is not among the tools"
            raise ApiError(400, message, param="tool_choice", code="invalid_value")
    return tools


def turn_structure(service: Service, body: ChatRequest, tools: Sequence[Tool], prompt: Prompt) -> Constraint | None:
    """The form of the whole turn; None: any.

    Calls are held to the tools' schemas where one must be made, and where the model decides but a tool is `strict`. Where it
    decides and only one is wanted, that one is as it writes it.
    """
    answer = answer_structure(service, body.response_format, body.structured_outputs)
    must_call = body.tool_choice == "required" or isinstance(body.tool_choice, NamedTool)
    marked = bool(tools) and has_call_tokens(service.tokenizer)
    size, special = service.tokenizer.vocabulary_size, service.tokenizer.special
    text = Anything(special.values(), size)
    if must_call:
        turn: Constraint = _calls(service, tools, body.parallel_tool_calls)
    elif answer is not None:
        turn = Either(_calls(service, tools, body.parallel_tool_calls), answer) if marked else answer
    elif marked and any(tool.function.strict for tool in tools):
        turn = Chain(text, Optional(_calls(service, tools, body.parallel_tool_calls)))
    elif marked and body.parallel_tool_calls is False:
        start, end = (Token(special[name], size) for name in (TOOL_CALL_START, TOOL_CALL_END))
        turn = Chain(text, Optional(Chain(start, text, end)))
    else:
        return None
    if THINK_START not in special or THINK_END not in special:
        return turn
    rest = Chain(text, Token(special[THINK_END], size))
    if prompt.in_thinking:
        return Chain(rest, turn)
    return Chain(Optional(Chain(Token(special[THINK_START], size), rest)), turn) if prompt.may_think else turn


def _calls(service: Service, tools: Sequence[Tool], parallel: bool | None) -> Constraint:
    """One call, or several unless that was forbidden."""
    tokenizer = service.tokenizer
    if has_call_tokens(tokenizer):
        size = tokenizer.vocabulary_size
        start: Constraint = Token(tokenizer.special[TOOL_CALL_START], size)
        end: Constraint = Token(tokenizer.special[TOOL_CALL_END], size)
    else:
        start = service.structure("choice", [f"{TOOL_CALL_START}\n"], "tools")
        end = service.structure("choice", [TOOL_CALL_END], "tools")
    schema = service.structure("schema", call_schema([tool.function for tool in tools]), "tools")
    call = Chain(start, schema, end)
    return call if parallel is False else Several(call)


def call_schema(functions: Sequence[Function]) -> dict[str, Any]:
    """The schema of a call of one of the tools. Each tool's own schema keeps its references, seen from its new place."""
    places = {f"tool_{number}": function for number, function in enumerate(functions)}
    return {
        "$defs": {
            place: _moved({"type": "object"} | (function.parameters or {}), f"#/$defs/{place}")
            for place, function in places.items()
        },
        "anyOf": [
            {
                "type": "object",
                "properties": {"name": {"const": function.name}, "arguments": {"$ref": f"#/$defs/{place}"}},
                "required": ["name", "arguments"],
                "additionalProperties": False,
            }
            for place, function in places.items()
        ],
    }


def _moved(schema: Any, place: str) -> Any:
    """A schema whose references within itself begin at `place`."""
    if isinstance(schema, list):
        return [_moved(item, place) for item in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        key: place + value[1:]
        if key == "$ref" and isinstance(value, str) and value.startswith("#")
        else _moved(value, place)
        for key, value in schema.items()
    }
