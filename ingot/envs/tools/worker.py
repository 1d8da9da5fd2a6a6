"""The process in which the functions of a user's file run as tools; children.py starts it with a file's path or a module's name.

Standard library only. It speaks JSON, a line at a time: {} is answered when the file is loaded, {"describe": true} by what the
file offers ({"schemas": […]}), {"name", "arguments"} by {"result": text}; or {"error": text}, if the file is no good. What the
functions print goes to stderr.

A schema is made from a signature: every parameter needs a hint, and its arguments are checked against it before the call.
The first paragraph of the docstring describes the tool, lines "name: text" below "Args:" describe its parameters.
"""

from __future__ import annotations

import importlib.util
import inspect
import json
import os
import re
import sys
import types
import typing
from collections.abc import Callable
from pathlib import Path
from typing import Any

SIMPLE: dict[type, str] = {str: "string", int: "integer", float: "number", bool: "boolean", type(None): "null"}


class HintError(Exception):
    """A function that cannot be offered as a tool, and why."""


def describe(function: Callable[..., Any], ignore: tuple[str, ...] = ()) -> dict[str, Any]:
    """The OpenAI function schema of a Python function, without the parameters to `ignore`."""
    try:
        hints = typing.get_type_hints(function, include_extras=True)
    except NameError as error:
        raise HintError(f"{function.__name__}: a type hint cannot be read: NameError: {error}") from None
    text = inspect.getdoc(function) or ""
    about = dict(re.findall(r"^\s+(\w+)(?: \([^)]*\))?: (.+)$", text.partition("Args:")[2], re.MULTILINE))
    properties: dict[str, Any] = {}
    required = []
    for name, parameter in inspect.signature(function).parameters.items():
        if name in ignore:
            continue
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            raise HintError(f"{function.__name__}: {parameter} cannot be given by name")
        if name not in hints:
            raise HintError(f"{function.__name__}: the parameter {name} has no type hint")
        try:
            properties[name] = schema_of(hints[name])
        except HintError as error:
            raise HintError(f"{function.__name__}: the hint of {name}: {error}") from None
        if name in about:
            properties[name].setdefault("description", about[name].strip())
        if parameter.default is parameter.empty:
            required.append(name)
    description = " ".join(text.split("Args:")[0].split("\n\n")[0].split())
    parameters = {"type": "object", "properties": properties, "required": required, "additionalProperties": False}
    return {"name": function.__name__, "description": description, "parameters": parameters}


def schema_of(hint: Any) -> dict[str, Any]:
    """The JSON schema of a type hint: what JSON can write, and nothing that would have to be guessed."""
    origin, parts = typing.get_origin(hint), typing.get_args(hint)
    hint = type(None) if hint is None else hint
    if hint in SIMPLE:
        return {"type": SIMPLE[hint]}
    if hint in (list, dict):
        return {"type": "array" if hint is list else "object"}
    if origin is typing.Annotated:
        texts = [part for part in parts[1:] if isinstance(part, str)]
        return schema_of(parts[0]) | ({"description": texts[0]} if texts else {})
    if origin is typing.Literal:
        return {"enum": list(parts)}
    if origin is list:
        return {"type": "array", "items": schema_of(parts[0])}
    if origin is dict and parts[0] is str:
        return {"type": "object", "additionalProperties": schema_of(parts[1])}
    if origin in (typing.Union, types.UnionType):
        return {"anyOf": [schema_of(part) for part in parts]}
    raise HintError(f"{hint} has no JSON form; use str, int, float, bool, list[…], dict[str, …], Literal or a union")


def problem(value: Any, schema: dict[str, Any], place: str) -> str | None:
    """Why a value does not fit one of our schemas; None if it does."""
    if "enum" in schema:
        same = any(type(value) is type(item) and value == item for item in schema["enum"])  # True is not 1
        return None if same else f"{place} must be one of {json.dumps(schema['enum'])}"
    if "anyOf" in schema:
        found = [problem(value, part, place) for part in schema["anyOf"]]
        return None if None in found else " or ".join(filter(None, found))
    expected = schema["type"]
    actual = (SIMPLE | {dict: "object", list: "array"})[type(value)]
    if actual != expected and (actual, expected) != ("integer", "number"):
        return f"{place} must be {'an' if expected[0] in 'aio' else 'a'} {expected}, not {json.dumps(value)[:100]}"
    if expected == "array" and "items" in schema:
        parts = (problem(item, schema["items"], f"{place}[{index}]") for index, item in enumerate(value))
        return next(filter(None, parts), None)
    if expected == "object" and isinstance(schema.get("additionalProperties"), dict):
        parts = (problem(item, schema["additionalProperties"], f"{place}.{key}") for key, item in value.items())
        return next(filter(None, parts), None)
    return None


def check(arguments: dict[str, Any], schema: dict[str, Any]) -> str | None:
    """Why arguments do not fit a function; None if they do."""
    parameters = schema["parameters"]
    for name in parameters["required"]:
        if name not in arguments:
            return f"the argument {name} is missing"
    for name, value in arguments.items():
        if name not in parameters["properties"]:
            return f"there is no argument {name}; there are: {', '.join(parameters['properties']) or 'none'}"
        if wrong := problem(value, parameters["properties"][name], name):
            return wrong
    return None


def call(function: Callable[..., Any], schema: dict[str, Any], arguments: dict[str, Any]) -> str:
    """What a function says: text as it is, anything else as JSON, an exception as an error."""
    if wrong := check(arguments, schema):
        return f"error: {wrong}"
    try:
        result = function(**arguments)
        return result if isinstance(result, str) else json.dumps(result, ensure_ascii=False, default=str)
    except Exception as error:  # noqa: BLE001 - whatever the user's code raises is what the model must read
        return f"error: {type(error).__name__}: {error}"


def load(source: str) -> types.ModuleType:
    """The module of a file or of that name."""
    if not source.endswith(".py"):
        sys.path[:] = json.loads(sys.argv[2])  # what the caller could import
        return importlib.import_module(source)
    path = Path(source)
    sys.path[0] = str(path.parent)  # as if the file itself had been started: it may import its neighbours
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None  # the path ends in .py
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


def offers(module: types.ModuleType) -> list[dict[str, Any]]:
    """The schemas of the public functions that a module defines."""
    functions = [
        value
        for name, value in vars(module).items()
        if inspect.isfunction(value) and value.__module__ == module.__name__ and not name.startswith("_")
    ]
    if not functions:
        raise HintError("the file defines no public function")
    return [describe(function) for function in functions]


def answer(module: types.ModuleType, request: dict[str, Any]) -> dict[str, Any]:
    """The answer to a request."""
    if not request:
        return {"ready": True}
    if "describe" in request:
        return {"schemas": offers(module)}
    function = getattr(module, request["name"])
    return {"result": call(function, describe(function), request["arguments"])}


def main() -> None:
    """Answer the requests on stdin until it ends."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # a function that prints must not write between the answers

    def send(value: dict[str, Any]) -> None:
        answers.write(json.dumps(value) + "\n")
        answers.flush()

    try:
        module = load(sys.argv[1])
    except Exception as error:  # noqa: BLE001 - the user's file may fail in any way; the user is told how
        sys.stdin.readline()
        send({"error": f"it cannot be imported: {type(error).__name__}: {error}"})
        return
    for line in sys.stdin:
        try:
            send(answer(module, json.loads(line)))
        except HintError as error:
            send({"error": str(error)})


if __name__ == "__main__":
    main()
