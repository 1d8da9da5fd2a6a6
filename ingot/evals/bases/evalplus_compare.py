"""How EvalPlus compares what a program returns with what the reference returns. Standard library only: it runs in sandboxes.

Equal, or floats within a tolerance (1e-6 where the reference returns floats and the problem gives none) plus 1e-7 of their size.
Some problems have several right answers; they are compared in ways of their own, by the name of their function.
"""

from __future__ import annotations

import math
from typing import Any

RELATIVE, FLOATS = 1e-7, 1e-6
UNORDERED = (
    *("similar_elements", "find_char_long", "common_in_nested_lists", "extract_singly"),
    *("larg_nnum", "intersection_array", "find_dissimilar", "Diff"),
)
ANYTHING = ("check_str", "text_match_three", "text_starta_endb")  # a match object or None, or a bool


def same(name: str, arguments: list[Any], given: Any, expected: Any, tolerance: float) -> bool:
    """Whether `given` is a right answer of the function `name`."""
    if name == "find_zero":
        value = sum(factor * math.pow(given, power) for power, factor in enumerate(arguments[0]))
        return bool(abs(value) <= tolerance)
    if name in UNORDERED:
        return set(given) == set(expected)
    if name in ANYTHING:
        return bool((given if isinstance(given, bool) else given is not None) == (expected is not None))
    return bool(equal(given, expected, tolerance) or other_reading(name, arguments, given, tolerance))


def other_reading(name: str, arguments: list[Any], given: Any, tolerance: float) -> bool:
    """Whether it is right in another reading of a problem that can be read in two ways."""
    match name:
        case "are_equivalent":
            return True
        case "sum_div":
            return bool(given == 0)
        case "surface_Area":  # the height is the pyramid's, not that of its sides
            edge, height = arguments
            return bool(abs(given - round(edge**2 + 2 * edge * math.hypot(edge / 2, height))) <= tolerance)
        case "digit_distance_nums":  # digits are compared place by place
            long = max(len(str(number)) for number in arguments)
            pairs = zip(*(str(number).zfill(long) for number in arguments), strict=True)
            return bool(given == sum(abs(int(one) - int(other)) for one, other in pairs))
    return False


def equal(given: Any, expected: Any, tolerance: float) -> bool:
    """Equal, or close if there are floats."""
    if given == expected:
        return True
    if tolerance == 0 and floats(expected):
        tolerance = FLOATS
    return tolerance > 0 and type(given) is type(expected) and close(given, expected, tolerance)


def floats(value: Any) -> bool:
    """A float, or a list or tuple of nothing else."""
    if isinstance(value, list | tuple):
        return bool(value) and all(isinstance(item, float) for item in value)
    return isinstance(value, float)


def close(given: Any, expected: Any, tolerance: float) -> bool:
    """Numbers within the tolerance, in lists of equal lengths."""
    if isinstance(expected, list | tuple):
        alike = isinstance(given, list | tuple) and len(given) == len(expected)
        return alike and all(close(one, other, tolerance) for one, other in zip(given, expected, strict=True))
    size = abs(expected)
    return bool(given == expected or (size < math.inf and abs(given - expected) <= tolerance + RELATIVE * size))
