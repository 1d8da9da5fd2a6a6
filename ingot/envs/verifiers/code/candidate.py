"""Runs the program under test in its sandbox, and answers calls. Started by `asserts.py` and `calls.py`.

It is given the program's source and no test. Descriptor 4 brings requests, answers go to 5 (`wire.py`): the value of a
name, a call, an attribute. An object that is not plain data stays here; the other side has a number for it. A function of the
other side's is called by a request in the other direction. What the program can do to this process, which is its own, is send
other data: it then answers the same questions wrongly.
"""

from __future__ import annotations

import itertools
import json
import os
import sys
import types
from collections.abc import Callable
from typing import Any

from ingot.envs.verifiers.code import wire

BATCH = 256  # items of an iterator in one answer


class CandidateServer:
    """The objects that the other side knows, and the answers."""

    def __init__(self, names: dict[str, Any], reading: int, writing: int) -> None:
        self.names, self.reading, self.writing = names, reading, writing
        self.objects: list[object] = []

    def refer(self, value: object) -> dict[str, Any]:
        """A number for an object."""
        self.objects.append(value)
        return {"object": len(self.objects) - 1}

    def find(self, kind: str, held: Any) -> object:
        """The object of a number; below zero, a function of the other side. A name is one of Python's own functions."""
        if kind == "builtin":
            return wire.BUILTINS[held]
        return self.objects[held] if held >= 0 else self.distant(held)

    def distant(self, number: int) -> Callable[..., Any]:
        """A function that calls one of the other side."""

        def call(*arguments: Any) -> Any:
            data = [wire.encode(item, self.refer) for item in arguments]
            wire.send(self.writing, {"callback": number, "arguments": data})
            reply = wire.receive(self.reading)
            if "error" in reply:
                raise RuntimeError(reply["error"])
            return wire.decode(reply["value"], self.find)

        return call

    def serve(self) -> None:
        """Answer until the other side ends."""
        while True:
            try:
                request = wire.receive(self.reading)
            except EOFError:
                return
            wire.send(self.writing, self.answer(request))

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """The answer to one request; an exception is an answer too."""
        try:
            arguments = [wire.decode(item, self.find) for item in request.get("arguments", ())]
            keywords = {name: wire.decode(item, self.find) for name, item in request.get("keywords", {}).items()}
            value = self.do(request["do"], arguments, keywords)
            reply = {"value": wire.encode(value, self.refer)}
            if request["do"] == "call":
                reply["changed"] = [
                    wire.encode(item, self.refer) if isinstance(item, list | dict | set) else None for item in arguments
                ]
            return reply
        except BaseException as error:  # noqa: BLE001 - the program may fail in any way, and the tests are told how
            return {"error": [type(error).__name__, str(error)[:1000]]}

    def do(self, what: str, arguments: list[Any], keywords: dict[str, Any]) -> object:
        """One operation; the object it is done to is the first argument."""
        match what:
            case "name":
                return self.names[arguments[0]]
            case "call":
                return arguments[0](*arguments[1:], **keywords)
            case "take":
                return list(itertools.islice(arguments[0], BATCH))
        functions: dict[str, Callable[..., object]] = {
            "get": getattr,
            "set": setattr,
            "iterate": iter,
            "next": next,
            "length": len,
            "text": str,
            "shown": repr,
            "item": lambda value, key: value[key],
            "put": lambda value, key, item: value.__setitem__(key, item),
            "contains": lambda value, item: item in value,
        }
        return functions[what](*arguments)


def load(source: str) -> dict[str, Any]:
    """Run the program's source as a module; its names."""
    module = types.ModuleType("candidate")
    sys.modules["candidate"] = module
    exec(compile(source, "candidate.py", "exec"), module.__dict__)
    return module.__dict__


def call_all(request: dict[str, Any]) -> list[dict[str, Any]]:
    """The answer to every call of a list of arguments."""
    server = CandidateServer(load(request["source"]), -1, -1)
    function = server.refer(server.names[request["function"]])
    return [
        server.answer({**call, "do": "call", "arguments": [function, *call["arguments"]]}) for call in request["calls"]
    ]


def main() -> None:
    """Serve the tests, or answer a list of calls on descriptor 3."""
    request = json.loads(sys.stdin.read())
    if "calls" in request:
        wire.send(3, {"nonce": request["nonce"], "answers": call_all(request)})
        return
    names = load(request["source"])
    wire.send(5, {"loaded": True})
    CandidateServer(names, 4, 5).serve()
    os._exit(0)
