"""Sequences of actions in the retail shop, right ones and odd ones, that Ingot's tools and tau2-bench's own carry out."""

from __future__ import annotations

import copy
import gzip
import hashlib
import json
import random
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

Action = tuple[str, dict[str, Any]]
WRITING = ("cancel", "modify", "exchange", "return")


def load(data: Path, name: str) -> Any:
    """A file of the domain."""
    return json.loads(gzip.decompress((data / "tau2" / f"{name}.json.gz").read_bytes()))


def sequences(data: Path) -> Iterator[list[Action]]:
    """The reference actions of each task, and changes of them."""
    for task in load(data, "retail_tasks"):
        actions = [(each["name"], each["arguments"]) for each in task["evaluation_criteria"]["actions"]]
        yield actions
        rng = random.Random(task["id"])
        writing = [number for number, (name, _) in enumerate(actions) if name.startswith(WRITING)]
        for number in writing:
            yield [*actions[:number], *actions[number + 1 :]]
            yield [*actions[: number + 1], *actions[number:]]
            for _ in range(2):
                changed = copy.deepcopy(actions)
                _change(changed[number][1], rng)
                yield changed
        if len(writing) > 1:
            yield actions[::-1]


def _change(arguments: dict[str, Any], rng: random.Random) -> None:
    name = rng.choice(sorted(arguments))
    value = arguments[name]
    if isinstance(value, list):
        changes: list[Callable[[], Any]] = [
            lambda: value[::-1],
            lambda: value * 2,
            lambda: value[1:],
            lambda: ["1", *value],
        ]
    else:
        changes = [lambda: "", lambda: value.upper(), lambda: "gift_card_7245904", lambda: "ordered by mistake"]
    arguments[name] = rng.choice(changes)()


def outcome(errors: list[bool], before: Mapping[str, Any], after: Mapping[str, Mapping[str, Any]]) -> str:
    """Which actions were refused, and what is different in the database afterwards, in few characters."""
    changed = {
        table: {key: row for key, row in sorted(rows.items()) if row != before[table][key]}
        for table, rows in after.items()
    }
    return hashlib.sha256(json.dumps([errors, changed], sort_keys=True).encode()).hexdigest()[:12]
