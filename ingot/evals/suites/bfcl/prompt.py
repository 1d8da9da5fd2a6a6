"""How a question of the leaderboard reaches a model: functions in the system prompt, or as tools of the chat template.

The system prompt is the leaderboard's default one word for word (bfcl-eval 2026.3.23, Apache-2.0), because scores depend on it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from ingot.evals.engine.request import Conversation
from ingot.evals.suites.bfcl.check import Function
from ingot.tokens.chat import Message

HINT = " Note that the provided function is in Python 3 syntax."
SYSTEM = (
    "You are an expert in composing functions.You are given a question and a set of possible functions. Based on the question, "
    "you will need to make one or more function/tool calls to achieve the purpose. If none of the functions can be used, point "
    "it out. If the given question lacks the parameters required by the function, also point it out.\n\nYou should only return "
    "the function calls in your response.\n\nIf you decide to invoke any of the function(s), you MUST put it in the format of "
    "[func_name1(params_name1=params_value1, params_name2=params_value2...), func_name2(params)].  You SHOULD NOT include any "
    "other text in the response.\n\nAt each turn, you should try your best to complete the tasks requested by the user within "
    "the current turn. Continue to output functions to call until you have fulfilled the user's request to the best of your "
    "ability. Once you have no more functions to call, the system will consider the current turn complete and proceed to the "
    "next turn or task.\n\nHere is a list of functions in json format that you can invoke.\n{functions}\n"
)
SCHEMA_TYPES = {"dict": "object", "float": "number", "tuple": "array", "any": "string"}


def written_prompt(messages: Sequence[Mapping[str, str]], functions: Sequence[Function]) -> Conversation:
    """The question with the functions in the system prompt."""
    described = json.dumps([{**each, "description": each["description"] + HINT} for each in functions], indent=4)
    system = SYSTEM.replace("{functions}", described)
    first, *rest = messages
    if first["role"] == "system":
        system, messages = f"{system}\n\n{first['content']}", rest
    return Conversation((Message("system", system), *map(_message, messages)))


def tool_prompt(messages: Sequence[Mapping[str, str]], functions: Sequence[Function]) -> Conversation:
    """The question with the functions as tools."""
    tools = tuple(
        {
            "name": tool_name(each["name"]),
            "description": each["description"] + HINT + _response(each),
            "parameters": json_schema(each["parameters"]),
        }
        for each in functions
    )
    return Conversation(tuple(map(_message, messages)), tools)


def tool_name(name: str) -> str:
    """The name as a tool: without dots, which the usual interfaces refuse."""
    return name.replace(".", "_")


def json_schema(described: Any) -> Any:
    """A description of parameters as a JSON schema."""
    if not isinstance(described, dict):
        return described
    schema = dict(described)
    if isinstance(kind := described.get("type"), str):
        schema["type"] = SCHEMA_TYPES.get(kind, kind)
        if kind == "float":
            schema["description"] = f"{described.get('description', '')} This is a float type value."
    if isinstance(described.get("properties"), dict):
        schema["properties"] = {name: json_schema(each) for name, each in described["properties"].items()}
    if "items" in described:
        schema["items"] = json_schema(described["items"])
    return schema


def _response(function: Function) -> str:
    """What a function answers, where its description says so (only those of multi-turn questions do)."""
    if "response" not in function:
        return ""
    return f" The response field has the following schema: {json.dumps(function['response'])}"


def _message(row: Mapping[str, str]) -> Message:
    return Message(row["role"], row["content"])  # type: ignore[arg-type]
