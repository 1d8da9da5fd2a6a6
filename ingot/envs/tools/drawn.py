"""Arguments for a tool that nobody has called yet, drawn from its JSON schema: is there any call that it answers?

Optional parameters come now and then. A free text is one of the task's words, its answer or something simple, because a tool
that reads expressions, names or code answers to few texts.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from typing import Any

from ingot.envs.task import Task
from ingot.envs.tools.tool import Tool
from ingot.tokens.chat import Message, ToolCall

SIMPLE = ("1", "2 + 3", "a")
LARGEST = 20  # of numbers without bounds
MOST_ITEMS = 3


def drawn_calls(task: Task, rng: random.Random) -> list[ToolCall]:
    """A call of each tool that the task offers, as far as its schema is understood."""
    words = [word.strip(".,:;?!") for message in task.messages for word in message.content.split()]
    texts = [*SIMPLE, *([task.answer] if task.answer else []), *filter(None, words)]
    calls = []
    for tool in task.tools:
        try:
            calls.append(ToolCall(tool.name, draw(parameters(tool), rng, texts)))
        except UnknownSchemaError:
            continue
    return calls


def parameters(tool: Tool) -> Mapping[str, Any]:
    """The schema of a tool's arguments."""
    found: Mapping[str, Any] = tool.schema.get("parameters") or {}
    return {"type": "object", **found}


class UnknownSchemaError(Exception):
    """A schema that nothing can be drawn from."""


def draw(schema: Mapping[str, Any], rng: random.Random, texts: Sequence[str]) -> Any:
    """A value that fits a schema."""
    if "const" in schema:
        return schema["const"]
    if "enum" in schema:
        return rng.choice(schema["enum"])
    for either in ("anyOf", "oneOf"):
        if either in schema:
            return draw(rng.choice(schema[either]), rng, texts)
    kind = schema.get("type")
    match rng.choice(kind) if isinstance(kind, list) else kind:
        case "object":
            given = schema.get("properties", {})
            required = schema.get("required", given)
            chosen = [name for name in given if name in required or rng.random() < 0.5]
            return {name: draw(given[name], rng, texts) for name in chosen}
        case "array":
            least = int(schema.get("minItems", 1))
            count = rng.randint(least, min(schema.get("maxItems", MOST_ITEMS), max(least, MOST_ITEMS)))
            return [draw(schema.get("items", {"type": "string"}), rng, texts) for _ in range(count)]
        case "string":
            return rng.choice(schema.get("examples") or texts)
        case "integer":
            return rng.randint(*_bounds(schema))
        case "number":
            low = schema.get("minimum", schema.get("exclusiveMinimum", 0))
            return rng.uniform(low, schema.get("maximum", schema.get("exclusiveMaximum", low + LARGEST)))
        case "boolean":
            return rng.random() < 0.5
        case "null":
            return None
    raise UnknownSchemaError


def _bounds(schema: Mapping[str, Any]) -> tuple[int, int]:
    """Of a whole number; where one is missing, LARGEST from the other."""
    low, high = schema.get("minimum"), schema.get("maximum")
    low = schema["exclusiveMinimum"] + 1 if low is None and "exclusiveMinimum" in schema else low
    high = schema["exclusiveMaximum"] - 1 if high is None and "exclusiveMaximum" in schema else high
    if low is None:
        low = 0 if high is None else min(0, high - LARGEST)
    return math.ceil(low), math.floor(low + LARGEST if high is None else high)


def takes_text(schema: Mapping[str, Any]) -> bool:
    """Whether an argument is a free text, of which a tool may know few."""
    if schema.get("type") == "string":
        return not schema.keys() & {"enum", "const", "examples"}
    inner = [*schema.get("properties", {}).values(), *schema.get("anyOf", ()), *schema.get("oneOf", ())]
    return any(takes_text(each) for each in [*inner, *([schema["items"]] if "items" in schema else [])])


def answers_by_tool(messages: Sequence[Message]) -> list[tuple[ToolCall, str]]:
    """The calls of a conversation with what the tools said."""
    found: list[tuple[ToolCall, str]] = []
    for place, message in enumerate(messages):
        said = messages[place + 1 : place + 1 + len(message.tool_calls)]
        found += [(call, answer.content) for call, answer in zip(message.tool_calls, said, strict=False)]
    return found
