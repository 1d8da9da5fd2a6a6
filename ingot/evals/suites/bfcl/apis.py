"""The services that multi-turn questions of the leaderboard call, and whether calls did what they should.

The services (a file system, mathematics, messages, posts, tickets, stocks, travel, a car) are the classes of the package
bfcl-eval, used as a library. A question names the classes and their initial state.

A call is text, such as `cd(folder='document')`. It is parsed and never evaluated: its name must be that of a public method of one
of the services, its arguments are literals or further calls. What a call raises is its result, in the leaderboard's words. (The
leaderboard evaluates the text as Python. There `print()` runs, too, and a text with a method's name before a parenthesis is
changed.)

    state      after each turn, every public attribute of every service equals that of services which the reference calls changed
    results    all results so far contain those of the turn's reference calls, in any order, each as often

A turn for which the reference has no calls is not checked.

`results` and `right` run in child processes (envs/tools/children.py), where a deadline can end them: a model may ask for a
logarithm of a billion digits. Each replays the conversation with services that it makes anew, so a child keeps no state. Random
numbers of the services come from seeds, so a replay gives the same results.
"""

from __future__ import annotations

import ast
import copy
import importlib.util
import inspect
import json
import re
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from ingot.workspace.python_source import parse_python

PACKAGE = "bfcl_eval.eval_checker.multi_turn_eval.func_source_code"
MODULES: Mapping[str, str] = {
    "GorillaFileSystem": "gorilla_file_system",
    "MathAPI": "math_api",
    "MessageAPI": "message_api",
    "TicketAPI": "ticket_api",
    "TradingBot": "trading_bot",
    "TravelAPI": "travel_booking",
    "TwitterAPI": "posting_api",
    "VehicleControlAPI": "vehicle_control",
}
LONG = "long_context"  # a category, and the module with what its services hold
STATELESS = ("MathAPI",)
REFUSED = ("kill", "exit", "quit", "remove", "unlink", "popen", "Popen", "run")  # of which the leaderboard says so
# The leaderboard rewrites names before parentheses, in texts too, and loses the blanks between: results depend on it.
BLANKS = re.compile(r"\b([a-zA-Z_]\w*)\s*(?=\()")


class Services:
    """The services of one question, in their initial state until they are called."""

    def __init__(self, question: Mapping[str, Any], classes: Mapping[str, type]) -> None:
        long_context = LONG in question["id"]
        self.instances: dict[str, Any] = {}
        self.methods: dict[str, Callable[..., Any]] = {}
        for name in question["involved_classes"]:
            instance = classes[name]()
            if name not in STATELESS:
                state = copy.deepcopy(question["initial_config"].get(name, {}))
                instance._load_scenario(state, long_context=long_context)
            self.instances[name] = instance
            members = inspect.getmembers(instance, inspect.ismethod)
            self.methods |= {each: method for each, method in members if not each.startswith("_")}

    def call(self, text: str) -> str:
        """The result of a call, as the model reads it."""
        try:
            return _as_text(self._value(parse_python(BLANKS.sub(r"\1", text), "eval", name="<string>").body))
        except Exception as error:  # noqa: BLE001 - a service may raise anything, and the model must read it
            return f"Error during execution: {error}"

    def same_state(self, other: Services) -> bool:
        """Whether all public attributes of all services are equal."""
        return not any(
            getattr(self.instances[name], attribute) != value
            for name, instance in other.instances.items()
            for attribute, value in vars(instance).items()
            if not attribute.startswith("_")
        )

    def _value(self, node: ast.expr) -> Any:
        match node:
            case ast.Call():
                method = self._method(node.func)
                positional = [self._value(each) for each in node.args]
                named = {str(each.arg): self._value(each.value) for each in node.keywords}
                return method(*positional, **named)
            case ast.List():
                return [self._value(each) for each in node.elts]
            case ast.Tuple():
                return tuple(self._value(each) for each in node.elts)
            case ast.Dict() if None not in node.keys:
                pairs = zip(node.keys, node.values, strict=True)
                return {self._value(key): self._value(value) for key, value in pairs if key is not None}
            case ast.Name():
                raise NameError(f"name '{node.id}' is not defined")
        return ast.literal_eval(node)

    def _method(self, node: ast.expr) -> Callable[..., Any]:
        """The public method of this name; `a.b` is none, because the services have no names that a call can use."""
        if isinstance(node, ast.Name) and node.id in self.methods:
            return self.methods[node.id]
        if isinstance(node, ast.Name) and node.id in REFUSED:
            raise PermissionError(f"Function call {node.id} is not allowed.")
        while isinstance(node, ast.Attribute):
            node = node.value
        raise NameError(f"name '{ast.unparse(node)}' is not defined")


def classes_of(question: Mapping[str, Any]) -> dict[str, type]:
    """The classes of a question's services, in modules that are loaded anew.

    `post_tweet` keeps mentions in a default value that all instances share, and long contexts are lists of a module. In the
    leaderboard's long process one conversation can so change another; here those that are compared share them, and no others.
    """
    if LONG in question["id"]:
        sys.modules.pop(f"{PACKAGE}.{LONG}", None)
    found = {}
    for name in question["involved_classes"]:
        spec = importlib.util.find_spec(f"{PACKAGE}.{MODULES[name]}")
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        found[name] = getattr(module, name)
    return found


def results(question: str, turns: list[list[list[str]]]) -> list[str]:
    """The results of the last step's calls, after all steps before it. The question is JSON."""
    row = json.loads(question)
    services = Services(row, classes_of(row))
    told: list[str] = []
    for step in (step for steps in turns for step in steps):
        told = [services.call(each) for each in step]
    return told


def right(question: str, turns: list[list[list[str]]], reference: list[list[str]]) -> bool:
    """Whether a conversation did what the reference calls do, turn by turn. The question is JSON."""
    if len(turns) != len(reference):
        return False
    row = json.loads(question)
    classes = classes_of(row)
    played, expected = Services(row, classes), Services(row, classes)
    told: Counter[str] = Counter()
    for steps, calls in zip(turns, reference, strict=True):
        told.update(played.call(each) for step in steps for each in step)
        wanted = Counter(expected.call(each) for each in calls)
        if calls and not (any(steps) and played.same_state(expected) and wanted <= told):
            return False
    return True


def _as_text(result: Any) -> str:
    if type(result) is not dict:
        return str(result)
    try:
        return json.dumps(result)
    except (TypeError, ValueError):
        return str(result)
