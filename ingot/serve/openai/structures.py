"""Builds the grammar that an answer must follow, from response_format, structured_outputs, tools and tool_choice.

A turn of a chat is a grammar whose rules ingot/inference/structure/grammar.py writes. For example a turn that must call a tool,
of a model that may think first:

    start: (<[think]> TEXT <[/think]>)? call+
    call: <[tool_call]> %json {…} <[/tool_call]>
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from ingot.inference.structure.grammar import TEXT, choice_rule, regex_rule, schema_rule, token_rule
from ingot.serve.openai.errors import ApiError, refused
from ingot.serve.openai.prompts import Prompt
from ingot.serve.openai.requests import (
    ChatRequest,
    Function,
    JsonFormat,
    NamedTool,
    ResponseFormat,
    SchemaFormat,
    StructuredOutputs,
    Tool,
)
from ingot.tokens.syntax import Syntax
from ingot.tokens.tokenizer import THINK_END, THINK_START, TOOL_CALL_END, TOOL_CALL_START, Tokenizer
from ingot.workspace.errors import IngotError


@dataclass
class Structure:
    """The grammar of an answer, and the fields of the request that its rules come from."""

    start: str
    rules: dict[str, str] = field(default_factory=dict)
    params: dict[str, str] = field(default_factory=dict)  # of each rule that the client wrote

    @property
    def grammar(self) -> str:
        """All of it, as llguidance reads it."""
        return "\n".join(f"{name}: {rule}" for name, rule in {"start": self.start, **self.rules}.items())

    def parts(self) -> list[tuple[str, str]]:
        """For each rule that the client wrote, a grammar of it alone and the field it comes from: which one is wrong?"""
        return [(f"start: {self.rules[name]}", param) for name, param in self.params.items()]


def answer_structure(response_format: ResponseFormat | None, structured: StructuredOutputs | None) -> Structure | None:
    """The form of the answer's text; None: any."""
    asks = not (response_format is None or response_format.type == "text")
    if asks and structured is not None:
        raise ApiError(400, "give either response_format or structured_outputs", param="structured_outputs")
    param = "response_format" if asks else "structured_outputs"
    try:
        if isinstance(response_format, JsonFormat):
            rule = schema_rule({"type": "object"})
        elif isinstance(response_format, SchemaFormat):
            rule = schema_rule(response_format.json_schema.schema_)
        elif structured is None:
            return None
        elif structured.json_ is not None:
            rule = schema_rule(structured.json_)
        elif structured.regex is not None:
            rule = regex_rule(structured.regex)
        else:
            rule = choice_rule(structured.choice or [])
    except IngotError as error:
        raise refused(error, param=param, code="invalid_schema") from error
    return Structure("answer", {"answer": rule}, {"answer": param})


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


def turn_structure(
    tokenizer: Tokenizer, syntax: Syntax, body: ChatRequest, tools: Sequence[Tool], prompt: Prompt
) -> Structure | None:
    """The form of the whole turn; None: any.

    Calls must follow the tools' schemas where a call is required, and where the model decides but a tool is `strict`. Where it
    decides and only one call is wanted, that call is free. A format whose arguments are not JSON cannot be held to any of this.
    """
    turn = answer_structure(body.response_format, body.structured_outputs)
    must_call = body.tool_choice == "required" or isinstance(body.tool_choice, NamedTool)
    special = tokenizer.special
    if syntax.channels and (must_call or turn is not None):
        raise ApiError(400, "a model with the harmony template cannot be held to a form", param="response_format")
    strict = any(tool.function.strict for tool in tools)
    one = body.parallel_tool_calls is False and not syntax.channels  # a turn of harmony makes one call
    if tools and not _writes_json(syntax) and (must_call or strict or one):
        asked = "tool_choice" if must_call else "tools" if strict else "parallel_tool_calls"
        problem = (
            f"calls in the format {syntax.label} cannot be held to a form; leave it to the model when and how it calls"
        )
        raise ApiError(400, problem, param=asked)
    marked = bool(tools) and not syntax.bare and bool(syntax.openers) and set(syntax.openers) <= set(special)
    calls = "call" if body.parallel_tool_calls is False else "call+"
    if must_call:
        turn = _with_calls(Structure("call" if syntax.bare else calls), tokenizer, syntax, tools)
    elif turn is not None:
        turn = (
            _with_calls(Structure(f"{calls} | answer", turn.rules, turn.params), tokenizer, syntax, tools)
            if marked
            else turn
        )
    elif marked and strict:
        turn = _with_calls(Structure(f"TEXT ({calls})?"), tokenizer, syntax, tools)
    elif marked and body.parallel_tool_calls is False:
        turn = Structure("TEXT (call)?", {"call": " ".join(_around(tokenizer, syntax, "TEXT", "TEXT"))})
    else:
        return None
    turn.rules["TEXT"] = TEXT
    opening, closing = syntax.think or (THINK_START, THINK_END)
    if opening in special and closing in special:
        rest = f"TEXT {token_rule(special[closing])}"
        if prompt.in_thinking:
            turn.start = f"{rest} ({turn.start})"
        elif prompt.may_think:
            turn.start = f"({token_rule(special[opening])} {rest})? ({turn.start})"
    return turn


def _writes_json(syntax: Syntax) -> bool:
    """Whether a call is JSON between marks, which a schema can hold."""
    return syntax.bare == "json" or syntax.call is not None or syntax.json_path is not None


def _with_calls(turn: Structure, tokenizer: Tokenizer, syntax: Syntax, tools: Sequence[Tool]) -> Structure:
    """The turn with the rule of a call of one of the tools."""
    functions = [tool.function for tool in tools]
    try:
        if syntax.json_path is None:
            schemas = {"arguments": schema_rule(call_schema(functions))}
            turn.rules |= {"call": " ".join(_around(tokenizer, syntax, "", "arguments")), **schemas}
        else:
            named = [(f"arguments_{number}", function) for number, function in enumerate(functions)]
            schemas = {rule: schema_rule({"type": "object"} | (each.parameters or {})) for rule, each in named}
            choices = [" ".join(_around(tokenizer, syntax, _name(syntax, each), rule)) for rule, each in named]
            turn.rules |= {"call": " | ".join(choices), **schemas}
    except (IngotError, RecursionError) as error:
        problem = error if isinstance(error, IngotError) else IngotError("a tool's schema is nested too deeply")
        raise refused(problem, param="tools", code="invalid_schema") from error
    turn.params |= dict.fromkeys(schemas, "tools")
    return turn


def _name(syntax: Syntax, function: Function) -> str:
    """The rule of a tool's name; some formats write it as a part of the call's id."""
    is_id = syntax.ids is not None and "{name}" in syntax.ids
    return choice_rule([syntax.ids.format(name=function.name, number=0) if is_id and syntax.ids else function.name])


def _around(tokenizer: Tokenizer, syntax: Syntax, name: str, inside: str) -> list[str]:
    """The rules of a call: its marks (special tokens, tags that are spelt in text, or none) around its content."""

    def mark(text: str) -> str:
        return token_rule(tokenizer.special[text]) if text in tokenizer.special else choice_rule([text])

    if syntax.bare:
        return [inside]
    if syntax.json_path is not None:
        before, between, behind = syntax.json_path
        return [*map(mark, before), name, *map(mark, between), inside, *map(mark, behind)]
    opening, closing = syntax.call or (TOOL_CALL_START, TOOL_CALL_END)
    if opening in tokenizer.special and closing in tokenizer.special:
        return [mark(opening), inside, mark(closing)]
    return [choice_rule([f"{opening}\n"]), inside, choice_rule([closing])]


def call_schema(functions: Sequence[Function]) -> dict[str, Any]:
    """The schema of a call of one of the tools. References inside each tool's schema get its new path."""
    named = {f"tool_{number}": function for number, function in enumerate(functions)}
    return {
        "$defs": {
            name: _moved({"type": "object"} | (function.parameters or {}), f"#/$defs/{name}")
            for name, function in named.items()
        },
        "anyOf": [
            {
                "type": "object",
                "properties": {"name": {"const": function.name}, "arguments": {"$ref": f"#/$defs/{name}"}},
                "required": ["name", "arguments"],
                "additionalProperties": False,
            }
            for name, function in named.items()
        ],
    }


def _moved(schema: Any, start: str) -> Any:
    """A schema whose references within itself begin at `start`."""
    if isinstance(schema, list):
        return [_moved(item, start) for item in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        key: start + value[1:]
        if key == "$ref" and isinstance(value, str) and value.startswith("#")
        else _moved(value, start)
        for key, value in schema.items()
    }
