"""The process in which math-verify and SymPy compare two expressions; started by `math_children.py`.

It speaks JSON, a line at a time: {"ready": true} once the libraries are loaded, then for every request {"reference", "given",
"seconds"} one answer {"same": bool}. A request that takes longer ends the process by its own alarm, also when nobody is left
who would kill it.
"""

from __future__ import annotations

import json
import logging
import os
import resource
import signal
import sys
from typing import Any

from latex2sympy2_extended import NormalizationConfig
from math_verify import LatexExtractionConfig, parse, verify
from sympy import Expr, N

MEMORY = 4 * 2**30  # bytes of address space
RATIO = 1e-12
GRACE = 1.0  # seconds that the parent has to be first


def read(text: str) -> Any:
    """A canonical text as what SymPy makes of it; an empty list if it makes nothing."""
    spelling = NormalizationConfig(basic_latex=True, units=False, malformed_operators=True, nits=False, boxed="none")
    config = LatexExtractionConfig(boxed_match_priority=-1, normalization_config=spelling)
    return parse(f"${text}$", [config], fallback_mode="no_fallback", parsing_timeout=None)


def same(reference: list[Any], given: list[Any]) -> bool:
    """The library's word; of two constants also their ratio, because it takes a difference below 1e-15 for nothing."""
    if not verify(reference, given, timeout_seconds=None):
        return False
    first, second = reference[0], given[0]
    if not (isinstance(first, Expr) and isinstance(second, Expr) and first.is_number and second.is_number):
        return True
    if first.is_zero or second.is_zero:
        return bool(first.equals(second))
    return bool(abs(N(first / second - 1, 30)) < RATIO)


def main() -> None:
    """Answer the requests on stdin until it ends."""
    logging.disable(logging.CRITICAL)  # the library warns that nobody keeps the time: the alarm does
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    same(read("x^2+2x+1"), read("(x+1)^2"))  # builds the grammar's tables

    def answer(value: dict[str, bool]) -> None:
        answers.write(json.dumps(value) + "\n")
        answers.flush()

    answer({"ready": True})
    for line in sys.stdin:
        request = json.loads(line)
        signal.setitimer(signal.ITIMER_REAL, request["seconds"] + GRACE)
        result = same(read(request["reference"]), read(request["given"]))
        signal.setitimer(signal.ITIMER_REAL, 0)
        answer({"same": result})


if __name__ == "__main__":
    main()
