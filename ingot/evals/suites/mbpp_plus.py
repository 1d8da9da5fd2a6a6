"""MBPP+ (EvalPlus, arXiv 2305.01210): 378 problems of MBPP with about 35 times as many inputs (evalplus.py).

JSON has no tuples, sets and complex numbers; which arguments of which problem are such is part of the data set.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

from ingot.envs.rows import Row
from ingot.evals.bases.evalplus import EvalPlus, labels

Convert = Callable[[list[Any]], Any]


def _tuples(values: Any) -> list[Any]:
    """A list of lists as a list of tuples."""
    return list(map(tuple, values))


def _tuples_in_lists(values: Any) -> list[Any]:
    return [_tuples(value) for value in values]


def _deep(value: Any) -> Any:
    """All lists in it as tuples."""
    return tuple(map(_deep, value)) if isinstance(value, list) else value


def _sets(call: list[Any]) -> list[Any]:
    return [[set(item) if isinstance(item, list) and item else {} for item in call[0]]]


CONVERSIONS: tuple[tuple[Convert, tuple[int, ...]], ...] = (
    (
        _tuples,
        (2, 116, 132, 143, 222, 261, 273, 394, 399, 421, 424, 429, 470, 560, 579, 596, 616, 630, 726, 740, 744, 809),
    ),
    (_tuples_in_lists, (63, 64, 70, 94, 120, 237, 272, 299, 400, 409, 417, 438, 473, 614, 780)),
    (lambda call: [_tuples(call[0]), call[1]], (75, 413, 444, 753)),
    (lambda call: [call[0], tuple(call[1])], (106, 750)),
    (_sets, (115,)),
    (lambda call: [float(call[0]), complex(call[1])], (124,)),
    (lambda call: [tuple(call[0]), call[1]], (250, 405, 446, 617, 720, 763, 808)),
    (lambda call: _tuples(_tuples_in_lists(call)), (259, 401, 445)),
    (lambda call: [tuple(tuple(item) if isinstance(item, list) else item for item in call[0])], (278,)),
    (lambda call: [tuple(call[0]), call[1], call[2]], (307,)),
    (lambda call: [{key: tuple(value) for key, value in call[0].items()}, *call[1:]], (722,)),
    (lambda call: [complex(call[0])], (252,)),
    (_deep, (580, 615, 791)),
)
BY_ID = {id: convert for convert, ids in CONVERSIONS for id in ids}


class MbppPlus(EvalPlus):
    """MBPP's functions against many more inputs."""

    local: ClassVar[tuple[str, ...]] = ("mbpp_plus/*.jsonl*", "evalplus/MbppPlus*.jsonl*")
    labels: ClassVar[Mapping[str, str]] = labels("MBPP+")
    more_stops: ClassVar[tuple[str, ...]] = ('\n"""', "\nassert")

    def arguments(self, row: Row, inputs: Sequence[Any]) -> Sequence[Any]:
        convert = BY_ID.get(int(str(row["task_id"]).rpartition("/")[2]), list)
        return [convert(call) for call in inputs]
