"""Conversations of multi-turn questions, right ones and odd ones, that both Ingot and the leaderboard's own checker judge.

A conversation is what the model writes: for each turn its answers, as text.
"""

from __future__ import annotations

import ast
import hashlib
import json
import random
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from ingot.evals.suites.bfcl.apis import MODULES
from tests.evals.suites.bfcl.cases import read

EVERY = 12  # of so many questions one gets all the odd conversations
Call = tuple[str, dict[str, Any]]  # a function's name, and its arguments by name
Written = list[list[str]]  # turns, and their answers
Case = tuple[dict[str, Any], list[list[str]], Written]  # question, reference calls, conversation
SET = re.compile(r"\{'[^{}:]*'\}")
NO_CALLS = (
    "I am done.",
    "",
    "[]",
    "[cd(folder='x'",
    "cd(folder='x'))",
    "[cd]",
    "{'name': 'cd'}",
    "Sure! [pwd()]",
    "f(a={})",
    "[f(a=lambda: 1)]",
    "[*f()]",
)
FAILING = (
    "[no_such_function(a=1)]",
    "[_load_scenario(scenario={'root': {'a': 1}})]",
    "[__init__()]",
    "[GorillaFileSystem.cd(folder='x')]",
    "[exit()]",
    "[run(command='ls')]",
    "[f(**{'a': 1})]",
    "[f()()]",
    "[f(a=1e999)]",
    "[f(a=unknown_name)]",
    "[f(a={'b': {'c': 1}})]",
    "[f(a={'b': 1, 'c': {'d': {'e': 2}}})]",
)

NATIVE: tuple[Call, ...] = (
    ("cd", {"folder": "a 'b' (c)"}),
    ("mean", {"numbers": [1, 2.5, -3], "more": None}),
    ("f", {"a": {"b": {"c": True}}, "d": {}}),
    ("pwd", {}),
)


def questions(data: Path) -> list[tuple[dict[str, Any], list[list[str]]]]:
    """The questions with their reference calls."""
    references = {row["id"]: row["ground_truth"] for row in read(data, "possible_answer_multi_turn_base")}
    return [(row, references[row["id"]]) for row in read(data, "multi_turn_base")]


def functions(data: Path) -> dict[str, list[dict[str, Any]]]:
    """The functions of each service."""
    return {service: read(data, f"multi_turn_func_doc/{module}") for service, module in MODULES.items()}


def conversations(data: Path) -> Iterator[Case]:
    """Of every question the right conversation, and of some the odd ones."""
    described = functions(data)
    for number, (row, reference) in enumerate(questions(data)):
        offered = {each["name"]: each for service in row["involved_classes"] for each in described[service]}
        turns = [[named(text, offered) for text in turn] for turn in reference]
        yield row, reference, [[written(turn), "Done."] for turn in turns]
        if number % EVERY == 0:
            for conversation in odd(turns, offered, random.Random(number)):
                yield row, reference, conversation
            yield row, reference, [[f"[{', '.join(turn)}]"] for turn in reference]  # positional arguments are lost
            for extra in extras(offered, random.Random(number)):
                twice = [[*reference[0], *[written([extra])[1:-1]] * 2], *reference[1:]]
                for times in (1, 2):
                    yield (
                        row,
                        twice,
                        [[written([*turn, *[extra] * (times if turn is turns[0] else 0)])] for turn in turns],
                    )
            longer = {**row, "id": f"multi_turn_long_context_{number}"}
            yield longer, reference, [[written(turn)] for turn in turns]
            yield longer, reference, [[written([*turn, *extras(offered, random.Random(number))])] for turn in turns]


def odd(turns: list[list[Call]], offered: dict[str, dict[str, Any]], rng: random.Random) -> Iterator[Written]:
    """Conversations that differ from the right one, in a way that may or may not matter."""
    right = [[written(turn)] for turn in turns]
    at = rng.randrange(len(turns))
    steps = [written([call]) for call in turns[at]]

    def instead(*answers: str) -> Written:
        return [*right[:at], list(answers), *right[at + 1 :]]

    yield instead(*steps)
    yield instead(*reversed(steps))
    yield instead(*steps, *steps)
    for place in range(len(steps)):
        yield instead(*steps[:place], *steps[place + 1 :])
    yield instead(f"```python\n{written(turns[at])}\n```")
    yield instead(f"```\n{written(turns[at])[1:-1]}\n```")
    yield instead(f"I will call {written(turns[at])}")
    yield instead(*NO_CALLS)
    yield instead(rng.choice(NO_CALLS), written(turns[at]), rng.choice(NO_CALLS))
    yield instead(written(turns[at]), *FAILING)
    yield instead(rng.choice(FAILING))
    yield right[:-1]
    yield [*right, ["Done."]]
    yield [[written([call for turn in turns for call in turn])], *[["Done."]] * (len(turns) - 1)]
    yield [[written([call for turn in turns for call in turn])], *[["[no_such_function()]"]] * (len(turns) - 1)]
    yield [["Later."], *right[:-2], [*right[-2], *right[-1]]] if len(turns) > 1 else [["Later."]]
    if at:
        yield [*right[: at - 1], [*right[at - 1], *right[at]], ["[no_such_function()]"], *right[at + 1 :]]
    for extra in extras(offered, rng):
        yield instead(written([extra]), written(turns[at]))
        yield instead(written(turns[at]), written([extra]))
    for place, (name, arguments) in enumerate(turns[at]):
        for changed in altered(arguments, rng):
            yield instead(written([*turns[at][:place], (name, changed), *turns[at][place + 1 :]]))
    inner = [call for call in extras(offered, rng) if call[1]]  # without arguments it would be read as a text
    for place, (name, arguments) in enumerate(turns[at]):
        if arguments and inner:
            last = {**arguments, list(arguments)[-1]: Raw(written([rng.choice(inner)])[1:-1])}
            yield instead(written([*turns[at][:place], (name, last), *turns[at][place + 1 :]]))


def extras(offered: dict[str, dict[str, Any]], rng: random.Random) -> Iterator[Call]:
    """Calls that nobody asked for: without arguments most only read, with arguments most change something."""
    sample = {"string": "extra", "integer": 1, "float": 1.5, "boolean": True, "array": ["extra"], "dict": {"a": 1}}
    names = sorted(offered)
    for name in rng.sample(names, min(6, len(names))):
        parameters = offered[name]["parameters"]
        yield name, {each: sample[parameters["properties"][each]["type"]] for each in parameters["required"]}


def altered(arguments: dict[str, Any], rng: random.Random) -> Iterator[dict[str, Any]]:
    """The arguments with one of them changed, left out, or one too many."""
    yield {**arguments, "unknown_parameter": 1}
    for name, value in arguments.items():
        yield {each: other for each, other in arguments.items() if each != name}
        for change in (f"{value} (x)", f"{value}(x)", str(value), None, [value], (value,), rng.choice([0, 1.0, True])):
            yield {**arguments, name: change}
        if isinstance(value, int | float):
            yield {**arguments, name: value + 1}
            yield {**arguments, name: float(value)}
            yield {**arguments, name: Raw(f"+{value}")}


def named(text: str, offered: dict[str, dict[str, Any]]) -> Call:
    """A reference call with the names of its positional arguments; an argument that is no literal stays Python."""
    call = ast.parse(text.strip(), mode="eval").body
    assert isinstance(call, ast.Call) and isinstance(call.func, ast.Name)
    names = list(offered[call.func.id]["parameters"]["properties"])
    given = [*zip(names, call.args, strict=False), *((each.arg or "", each.value) for each in call.keywords)]
    return call.func.id, {name: literal(value) for name, value in given}


def literal(node: ast.expr) -> Any:
    try:
        return ast.literal_eval(node)
    except ValueError:
        return Raw(ast.unparse(node))


class Raw(str):
    """Python that is written as it is."""


def written(calls: Sequence[Call]) -> str:
    """Calls as a model writes them."""
    texts = [
        ", ".join(f"{n}={v if isinstance(v, Raw) else repr(v)}" for n, v in arguments.items()) for _, arguments in calls
    ]
    return f"[{', '.join(f'{name}({text})' for (name, _), text in zip(calls, texts, strict=True))}]"


def digest(tried: Sequence[Case]) -> str:
    """Changes if a conversation does: then the verdicts must be recorded again."""
    text = "\n".join(f"{row['id']} {reference!r} {conversation!r}" for row, reference, conversation in tried)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def digest_results(results: Sequence[str]) -> str:
    """A short name for all results of a conversation. Sets in them have the order of this process: they are sorted."""
    sorted_sets = [SET.sub(lambda found: str(sorted(found[0][1:-1].split(", "))), each) for each in results]
    return hashlib.sha256(json.dumps(sorted_sets).encode()).hexdigest()[:8]
