"""Runs tests that are code (asserts), in a sandbox where the program under test is not. Started by `asserts.py`.

The program's functions are stand-ins here: a call goes over descriptor 5 to the sandbox of the program, and what comes back over
4 is plain data of built-in types, or a stand-in for an object that stayed there. No function or type of this process comes back,
not even by name. Nothing that the program wrote runs here, so it can neither read the tests nor decide what is equal. Passes are
counted beside the tests' names, not among them. The verdict goes to descriptor 3.
"""

from __future__ import annotations

import ast
import builtins
import importlib
import json
import sys
from collections.abc import Iterator
from typing import Any

from ingot.envs.verifiers.code import wire

EXCEPTIONS = {  # those that a program may raise here: built from one text, and none that ends a loop or the tests
    name: kind
    for name, kind in vars(builtins).items()
    if isinstance(kind, type)
    and issubclass(kind, Exception)
    and not issubclass(kind, UnicodeError | BaseExceptionGroup | StopIteration | StopAsyncIteration)
}
TOLD = frozenset(
    {"__name__", "__qualname__", "__annotations__", "__defaults__", "__code__"}
)  # what tests ask of a function


class Ended(BaseException):
    """The program under test ended, or does not speak as agreed. Not for the tests to catch."""


class AssertFailed(BaseException):
    """An assert failed, and one failure is enough."""


class Candidate:
    """The other side."""

    def __init__(self, reading: int, writing: int) -> None:
        self.reading, self.writing = reading, writing
        self.functions: list[Any] = []
        self.lost = ""  # why there will be no more answers, once that is so

    def start(self) -> None:
        """Wait until the program is loaded."""
        self._receive()

    def ask(self, do: str, *arguments: Any, **keywords: Any) -> Any:
        """Have something done over there; its value, or its exception."""
        data = [wire.encode(item, self.refer) for item in arguments]
        named = {name: wire.encode(item, self.refer) for name, item in keywords.items()}
        self._send({"do": do, "arguments": data, "keywords": named})
        while "callback" in (reply := self._receive()):
            self._call_back(reply)
        if "error" in reply:
            raise self._error(reply["error"], do)
        changes = reply.get("changed", [])
        if not isinstance(changes, list):
            raise self._end("its answer has the wrong form")
        for argument, change in zip(arguments, changes, strict=False):
            self._change(argument, change)
        return self._decode(reply.get("value"))

    def _end(self, why: str) -> Ended:
        """Tests that catch everything do not catch this: there is no verdict for a program that is gone."""
        self.lost = self.lost or why
        return Ended(why)

    def _error(self, said: Any, do: str) -> Exception:
        """The exception that the program raised, if it is a built-in one. StopIteration would end a loop of the tests early."""
        if not (isinstance(said, list) and len(said) == 2 and all(isinstance(part, str) for part in said)):
            raise self._end("its answer has the wrong form")
        name, text = said
        if do == "next" and name == "StopIteration":
            return StopIteration(text)
        return EXCEPTIONS[name](text) if name in EXCEPTIONS else RuntimeError(f"{name}: {text}")

    def refer(self, value: object) -> dict[str, Any]:
        """A number for what is no plain data: a stand-in's own, or one below zero for a function of the tests."""
        if isinstance(value, StandIn):
            kind, held = object.__getattribute__(value, "_reference")
            return {kind: held}
        self.functions.append(value)
        return {"object": -len(self.functions)}

    def _decode(self, data: Any) -> Any:
        try:
            return wire.decode(data, lambda kind, held: StandIn(self, kind, held))
        except wire.WireError as error:
            raise self._end(f"its answer is not a value: {error}") from None

    def _receive(self) -> Any:
        if self.lost:
            raise Ended(self.lost)
        try:
            message = wire.receive(self.reading)
        except (EOFError, ValueError, RecursionError, OSError) as error:
            raise self._end(str(error)) from None
        if not isinstance(message, dict):
            raise self._end("its answer has the wrong form")
        return message

    def _send(self, message: dict[str, Any]) -> None:
        try:
            wire.send(self.writing, message)
        except OSError as error:
            raise self._end(str(error)) from None

    def _call_back(self, request: dict[str, Any]) -> None:
        """Call a function that the tests gave to the program."""
        number, arguments = request["callback"], request.get("arguments")
        if type(number) is not int or not -len(self.functions) <= number < 0 or not isinstance(arguments, list):
            raise self._end("it calls what it was not given")
        decoded = [self._decode(item) for item in arguments]
        try:
            reply = {"value": wire.encode(self.functions[-number - 1](*decoded), self.refer)}
        except Exception as error:  # noqa: BLE001 - the program is told, as a caller would be
            reply = {"error": f"{type(error).__name__}: {error}"}
        self._send(reply)

    def _change(self, argument: Any, data: Any) -> None:
        """Do to an argument what the program did to its copy."""
        if type(argument) not in (list, dict, set) or data is None:
            return
        new = self._decode(data)
        if type(new) is not type(argument):
            raise self._end("it changes an argument into something else")
        argument.clear()
        argument.extend(new) if type(argument) is list else argument.update(new)


class StandIn:
    """An object of the program. It has no equality, order or truth but its own: those would be the program's word."""

    def __init__(self, candidate: Candidate, kind: str, held: Any) -> None:
        object.__setattr__(self, "_candidate", candidate)
        object.__setattr__(self, "_reference", (kind, held))

    def _ask(self, do: str, *arguments: Any, **keywords: Any) -> Any:
        return object.__getattribute__(self, "_candidate").ask(do, self, *arguments, **keywords)

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        return self._ask("call", *arguments, **keywords)

    def __getattr__(self, name: str) -> Any:
        """No protocols: numpy would read this process's memory wherever an `__array_interface__` says."""
        if name.startswith("__") and name not in TOLD:
            raise AttributeError(name)
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


def check(order: dict[str, Any], reading: int = 4, writing: int = 5) -> dict[str, Any]:
    """Run the tests; what came of each assert that was reached."""
    candidate = Candidate(reading, writing)
    counting = Counting()
    tests = counting.visit(ast.parse(order["tests"], "tests.py"))
    passed, failures = [], []

    def fail(error: Exception) -> None:
        failures.append(f"{type(error).__name__}: {error}"[:500])
        if not order["share"]:
            raise AssertFailed

    counters = {"_passed": lambda: passed.append(1), "_failed": fail}
    names: dict[str, Any] = {"__name__": "tests", "__builtins__": vars(builtins) | counters}
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
    except AssertFailed:
        problem = failures[0]
    except Ended:
        pass
    except BaseException as error:  # noqa: BLE001 - the tests are code and may fail in any way
        problem = f"{type(error).__name__}: {error}"[:500]
    if candidate.lost:
        problem = problem or f"the program does not answer: {candidate.lost}"[:500]
    total = max(counting.count, len(passed) + len(failures) + bool(problem and not failures))
    if not problem and not failures:
        total = max(1, len(passed))
        passed = passed or [1]  # tests without asserts that ended well
    return {"passed": len(passed), "total": total, "problem": problem or (failures or [""])[0]}


def main() -> None:
    """Read the order, report the verdict."""
    order = json.loads(sys.stdin.read())
    wire.send(3, {"nonce": order["nonce"], **check(order)})
