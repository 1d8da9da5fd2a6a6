"""Answers to questions of BFCL, right ones and odd ones, that both Ingot and the leaderboard's own checker judge."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from tests.making.rows import read_rows

CATEGORIES = ("simple_python", "multiple", "parallel", "parallel_multiple", "irrelevance")
EVERY = 41  # of so many questions one is asked, of unusual ones every third
Call = tuple[str, dict[str, Any]]
Case = tuple[str, dict[str, Any], list[Any], str]  # category, question, key, answer


def read(data: Path, name: str) -> list[dict[str, Any]]:
    """The rows of a file."""
    return read_rows(data / "bfcl" / f"{name}.jsonl.gz")


def cases(data: Path) -> Iterator[Case]:
    """Answers to some questions of every category."""
    for category in CATEGORIES:
        rows = read(data, category)
        keyed = category != "irrelevance"
        keys = [row["ground_truth"] for row in read(data, f"possible_answer_{category}")] if keyed else [[]] * len(rows)
        chosen = [
            number for number in range(len(rows)) if number % EVERY == 0 or (number % 3 == 0 and unusual(rows[number]))
        ]
        for number in chosen:
            for text in dict.fromkeys(answers(rows[number], keys[number], number)):
                yield category, rows[number], keys[number], text


def unusual(row: dict[str, Any]) -> bool:
    """Whether a parameter is a mapping, a tuple or a list of mappings: there are few, and their rules are the oddest."""
    parameters = [each for function in row["function"] for each in function["parameters"]["properties"].values()]
    return any(each["type"] in ("dict", "tuple", "any") or inner(each) in ("dict", "array") for each in parameters)


def inner(parameter: dict[str, Any]) -> str:
    return str(parameter.get("items", {}).get("type"))


def digest(tried: Sequence[Case]) -> str:
    """Changes if an answer does: then the verdicts must be recorded again."""
    text = "\n".join(f"{row['id']} {answer!r}" for _, row, _, answer in tried)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def answers(row: dict[str, Any], key: list[Any], number: int) -> Iterator[str]:
    """Answers to one question."""
    rng = random.Random(number)
    calls = [(name, chosen(values, rng, 0)) for each in key for name, values in each.items()]
    if not calls:
        function = row["function"][0]
        calls = [(function["name"], dict.fromkeys(function["parameters"]["properties"], 1))]
    text = written(calls)
    yield from (
        text,
        text[1:-1],
        f"```\n{text}\n```",
        f"Sure! {text}",
        f"{text} I hope this helps.",
        text[:-2],
        "[]",
        "",
    )
    yield from (
        "None of the functions can be used.",
        f"'{text}'",
        f"  {text}\n",
        text.replace("=", "=+", 1),
        "[f]",
        "x",
        "1",
    )
    yield from (
        f"```python\n{text}\n```",
        f"{text}, {text}",
        text.replace(", ", ","),
        text.replace("'", '"'),
        f"print({text})",
    )
    yield from (
        written(calls[::-1]),
        written(calls * 2),
        written(calls[:-1]),
        written([(f"a.{n}", a) for n, a in calls]),
    )
    yield written([(name, chosen(values, rng, 1)) for each in key for name, values in each.items()])
    yield written([(name, {**arguments, "unknown_parameter": 1}) for name, arguments in calls])
    yield written([(name.replace(".", "_"), arguments) for name, arguments in calls])
    for change in (*CHANGES, lambda value: rng.choice([value, 3, "x", [], None])):
        place = rng.randrange(len(calls))
        name, arguments = calls[place]
        for parameter in arguments:
            changed = {**arguments, parameter: change(arguments[parameter])}  # type: ignore[no-untyped-call]
            yield written([*calls[:place], (name, changed), *calls[place + 1 :]])
    for place, (name, arguments) in enumerate(calls):
        for parameter in arguments:
            fewer = {each: value for each, value in arguments.items() if each != parameter}
            yield written([*calls[:place], (name, fewer), *calls[place + 1 :]])


def chosen(values: dict[str, list[Any]], rng: random.Random, which: int) -> dict[str, Any]:
    """An argument for each parameter: one of the right ones, or nothing where that is right (which = 1)."""
    found = {}
    for parameter, right in values.items():
        real = [each for each in right if each != ""]
        if real and not (which and "" in right and rng.random() < 0.5):
            found[parameter] = settled(real[which % len(real)])
    return found


def settled(value: Any) -> Any:
    """A mapping of a key lists the right values of each entry: the first of them."""
    if isinstance(value, dict):
        return {
            each: settled(right[0]) for each, right in value.items() if isinstance(right, list) and right[:1] != [""]
        }
    return [settled(each) for each in value] if isinstance(value, list) else value


def written(calls: list[Call]) -> str:
    """Calls as a model writes them."""
    return f"[{', '.join(f'{name}({arguments_text(arguments)})' for name, arguments in calls)}]"


def arguments_text(arguments: dict[str, Any]) -> str:
    return ", ".join(f"{name}={value if isinstance(value, Raw) else repr(value)}" for name, value in arguments.items())


class Raw(str):
    """Python that is written as it is."""


def other_number(value: Any) -> Any:
    if isinstance(value, bool):
        return int(value)
    return float(value) if isinstance(value, int) else int(value) if isinstance(value, float) else value


def other_spelling(value: Any) -> Any:
    if isinstance(value, str):
        return value.upper().replace(" ", "-") + "."
    return [other_spelling(each) for each in value] if isinstance(value, list) else value


def other_container(value: Any) -> Any:
    if isinstance(value, dict):
        return {**value, "more": 1}
    if isinstance(value, list):
        return tuple(value)
    return [value]


def shorter(value: Any) -> Any:
    if isinstance(value, dict):
        return dict(list(value.items())[1:])
    return value[:-1] if isinstance(value, list | str) else value


def inside(value: Any) -> Any:
    """A change deep inside."""
    if isinstance(value, dict):
        return {key: other_number(each) if not isinstance(each, str) else each.title() for key, each in value.items()}
    if isinstance(value, list):
        return [inside(each) if isinstance(each, dict) else other_number(each) for each in value]
    return value


CHANGES: tuple[Callable[[Any], Any], ...] = (
    other_number,
    other_spelling,
    other_container,
    shorter,
    inside,
    str,
    lambda value: value[::-1] if isinstance(value, list) else value,
    lambda _: "",
    lambda _: [],
    lambda _: {},
    lambda _: True,
    lambda _: Raw("some_variable"),
    lambda _: Raw("other(1)"),
    lambda _: Raw("other(a=1)"),
    lambda _: Raw("table[0]"),
    lambda _: Raw("2 + 3 * 4"),
    lambda _: Raw("'a' + 'b'"),
    lambda _: Raw("2 ** 0.5"),
    lambda _: Raw("1 / 0"),
    lambda _: Raw("..."),
    lambda _: Raw("f'{1}'"),
    lambda _: Raw("lambda: 1"),
    lambda _: Raw("{1, 2}"),
    lambda _: Raw("not True"),
    lambda _: Raw("-x"),
    lambda value: Raw(f"+{value!r}"),
    lambda value: Raw(f"{value!r} + 0"),
)
