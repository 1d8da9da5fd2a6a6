"""Runs tests that are code (asserts), in a sandbox where the program under test is not. Started by `code_asserts.py`.

The program's functions are stand-ins here: a call goes over descriptor 5 to the sandbox of the program, and what comes back over
4 is plain data of built-in types, or a stand-in for an object that stayed there. Nothing that the program wrote runs in this
process, so it can neither read the tests nor decide what is equal. The verdict goes to descriptor 3.
"""

from __future__ import annotations

import ast
import builtins
import importlib
import json
import sys
from collections.abc import Iterator
from typing import Any

from ingot.envs.verifiers import code_wire as wire


class Ended(BaseException):
    """The program under test ended, or does not speak as agreed. Not for the tests to catch."""


class Failed(BaseException):
    """An assert failed, and one failure is enough."""


class Candidate:
    """The other side."""

    def __init__(self, reading: int, writing: int) -> None:
        self.reading, self.writing = reading, writing
        self.functions: list[Any] = []

    def start(self) -> None:
        """Wait until the program is loaded."""
        self._receive()

    def ask(self, do: str, *arguments: Any, **keywords: Any) -> Any:
        """Have something done over there; its value, or its exception."""
        data = [wire.encode(item, self.refer) for item in arguments]
        named = {name: wire.encode(item, self.refer) for name, item in keywords.items()}
        try:
            wire.send(self.writing, {"do": do, "arguments": data, "keywords": named})
        except OSError as error:
            raise Ended(str(error)) from None
        while "callback" in (reply := self._receive()):
            self._call_back(reply)
        if "error" in reply:
            raise self._error(reply["error"], do)
        if "changed" in reply:
            for argument, change in zip(arguments, reply["changed"], strict=False):
                self._change(argument, change)
        return self._decode(reply.get("value"))

    def _error(self, said: Any, do: str) -> Exception:
        """The exception that the program raised, if it is a built-in one. StopIteration would end a loop of the tests early."""
        name, text = said if isinstance(said, list) and len(said) == 2 else ("", said)
        kind = getattr(builtins, name, None) if isinstance(name, str) else None
        known = isinstance(kind, type) and issubclass(kind, Exception) and not issubclass(kind, UnicodeError)
        if not known or (kind is StopIteration and do != "next"):
            return RuntimeError(f"{name}: {text}")
        return kind(text)  # type: ignore[misc]

    def refer(self, value: object) -> dict[str, Any]:
        """A number for what is no plain data: a stand-in's own, or one below zero for a function of the tests."""
        if isinstance(value, StandIn):
            return {"object": object.__getattribute__(value, "_number")}
        self.functions.append(value)
        return {"object": -len(self.functions)}

    def _decode(self, data: Any) -> Any:
        try:
            return wire.decode(data, lambda number: StandIn(self, number))
        except (wire.WireError, ValueError, TypeError, AttributeError, RecursionError) as error:
            raise Ended(f"its answer is not a value: {error}") from None

    def _receive(self) -> Any:
        try:
            message = wire.receive(self.reading)
        except (EOFError, ValueError, RecursionError, OSError) as error:
            raise Ended(str(error)) from None
        if not isinstance(message, dict):
            raise Ended("its answer has the wrong form")
        return message

    def _call_back(self, request: dict[str, Any]) -> None:
        """Call a function that the tests gave to the program."""
        try:
            function = self.functions[-int(request["callback"]) - 1]
            value = function(*(self._decode(item) for item in request["arguments"]))
            reply = {"value": wire.encode(value, self.refer)}
        except Exception as error:  # noqa: BLE001 - the program is told, as a caller would be
            reply = {"error": f"{type(error).__name__}: {error}"}
        wire.send(self.writing, reply)

    def _change(self, argument: Any, data: Any) -> None:
        """Do to an argument what the program did to its copy."""
        if type(argument) is list and data is not None:
            argument[:] = self._decode(data)
        elif type(argument) in (dict, set) and data is not None:
            new = self._decode(data)
            argument.clear()
            argument.update(new)


class StandIn:
    """An object of the program. It has no equality, order or truth but its own: those would be the program's word."""

    def __init__(self, candidate: Candidate, number: int) -> None:
        object.__setattr__(self, "_candidate", candidate)
        object.__setattr__(self, "_number", number)

    def _ask(self, do: str, *arguments: Any, **keywords: Any) -> Any:
        return object.__getattribute__(self, "_candidate").ask(do, self, *arguments, **keywords)

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        return self._ask("call", *arguments, **keywords)

    def __getattr__(self, name: str) -> Any:
        return self._ask("get", name)

    def __setattr__(self, name: str, value: Any) -> None:
        self._ask("set", name, value)

    def __getitem__(self, key: Any) -> Any:
        return self._ask("item", key)

    def __setitem__(self, key: Any, value: Any) -> None:
        self._ask("put", key, value)

    def __iter__(self) -> Iterator[Any]:
        items = self._ask("iterate")
        while batch := items._ask("take"):
            yield from batch

    def __next__(self) -> Any:
        return self._ask("next")

    def __len__(self) -> int:
        return int(self._ask("length"))

    def __contains__(self, item: Any) -> bool:
        return self._ask("contains", item) is True

    def __str__(self) -> str:
        return str(self._ask("text"))

    def __repr__(self) -> str:
        return str(self._ask("shown"))

    def __bool__(self) -> bool:
        raise TypeError("an object of the program under test is neither true nor false")


class Counting(ast.NodeTransformer):
    """Rewrites each assert so that it is counted."""

    def __init__(self) -> None:
        self.count = 0

    def visit_Assert(self, node: ast.Assert) -> ast.AST:
        """`assert x` in a try, with a note of how it went."""
        self.count += 1
        shell = ast.parse(
            "try:\n    pass\nexcept Exception as _error:\n    _failed(_error)\nelse:\n    _passed()"
        ).body[0]
        assert isinstance(shell, ast.Try)
        shell.body = [node]
        return ast.fix_missing_locations(ast.copy_location(shell, node))


def check(order: dict[str, Any]) -> dict[str, Any]:
    """Run the tests; what came of each assert that was reached."""
    candidate = Candidate(4, 5)
    counting = Counting()
    tests = counting.visit(ast.parse(order["tests"], "tests.py"))
    passed, failures = [], []

    def fail(error: Exception) -> None:
        failures.append(f"{type(error).__name__}: {error}"[:500])
        if not order["share"]:
            raise Failed

    names: dict[str, Any] = {"__name__": "tests", "_passed": lambda: passed.append(1), "_failed": fail}
    problem = ""
    try:
        candidate.start()
        names |= {name: importlib.import_module(name) for name in order["modules"]}
        for name in order["names"]:
            names[name] = candidate.ask("name", name)
        exec(compile(order["prelude"], "prelude.py", "exec"), names)
        for name in order["entry_points"]:
            names[name] = candidate.ask("name", name)
        exec(compile(tests, "tests.py", "exec"), names)
    except Failed:
        problem = failures[0]
    except Ended as error:
        problem = f"the program does not answer: {error}"
    except BaseException as error:  # noqa: BLE001 - the tests are code and may fail in any way
        problem = f"{type(error).__name__}: {error}"[:500]
    total = max(counting.count, len(passed) + len(failures) + bool(problem and not failures))
    if not problem and not failures:
        total = max(1, len(passed))
        passed = passed or [1]  # tests without asserts that ended well
    return {"passed": len(passed), "total": total, "problem": problem or (failures or [""])[0]}


def main() -> None:
    """Read the order, report the verdict."""
    order = json.loads(sys.stdin.read())
    wire.send(3, {"nonce": order["nonce"], **check(order)})
