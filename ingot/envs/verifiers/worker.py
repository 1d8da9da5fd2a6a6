"""The process in which libraries judge what a model wrote; started by `children.py` with the name of a judge.

It speaks JSON, a line at a time: {"ready": true} once the judge is loaded, then for every request {"seconds": …, and what the
judge needs} one answer, with the seconds that it took. A request that takes longer ends the process by its own alarm, also when
nobody is left who would kill it. It imports nothing of this package, so that it starts fast and anywhere.
"""

from __future__ import annotations

import functools
import json
import logging
import os
import resource
import signal
import sys
import time
from collections.abc import Callable
from typing import Any

MEMORY = 8 * 2**30  # bytes of address space
RATIO = 1e-12
GRACE = 1.0  # seconds that the parent has to be first

Judge = Callable[[dict[str, Any]], dict[str, Any]]


def math() -> Judge:
    """math-verify and SymPy: {"reference", "given"}, in canonical spelling, to {"same"}."""
    from latex2sympy2_extended import NormalizationConfig, latex2sympy2, symbols
    from math_verify import LatexExtractionConfig, parse, parser, verify
    from sympy import Expr, N, Symbol

    # the library has no option for it: letters keep their case, and \Gamma is not \gamma
    cased = latex2sympy2.ConversionConfig(lowercase_symbols=False)
    parser.latex2sympy = functools.partial(latex2sympy2.latex2sympy, conversion_config=cased)
    symbols.sympy_singleton_map.pop("Gamma")

    spelling = NormalizationConfig(basic_latex=True, units=False, malformed_operators=True, nits=False, boxed="none")
    config = LatexExtractionConfig(boxed_match_priority=-1, normalization_config=spelling)

    def read(text: str) -> Any:
        return parse(f"${text}$", [config], fallback_mode="no_fallback", parsing_timeout=None)

    def same(reference: list[Any], given: list[Any]) -> bool:
        """The library's word, but for two things that it makes light of.

        The case of a letter with an accent or a name (\\Delta), and the ratio of two constants: it takes a difference below 1e-15
        for nothing.
        """
        if not verify(reference, given, timeout_seconds=None, allow_set_relation_comp=True):
            return False
        first, second = reference[0], given[0]
        if isinstance(first, Symbol) and isinstance(second, Symbol):
            return bool(first.name == second.name)
        if not (isinstance(first, Expr) and isinstance(second, Expr) and first.is_number and second.is_number):
            return True
        if not (first.is_finite and second.is_finite):
            return bool(first == second)
        if first.is_zero or second.is_zero:
            return bool(first.equals(second))
        return bool(abs(N(first / second - 1, 30)) < RATIO)

    same(read("x^2+2x+1"), read("(x+1)^2"))  # builds the grammar's tables
    return lambda request: {"same": same(read(request["reference"]), read(request["given"]))}


def reasoning_gym() -> Judge:
    """reasoning-gym's scorer: {"family", "settings", "seed", "reseeds", "answer"} to {"score"}.

    `reseeds`: one data set of the family serves all seeds, see envs/tasks/reasoning_gym.py.
    """
    import reasoning_gym

    @functools.lru_cache(maxsize=256)
    def dataset_of(family: str, settings: str, seed: int) -> Any:
        return reasoning_gym.create_dataset(family, seed=seed, size=1, **json.loads(settings))

    def score(request: dict[str, Any]) -> dict[str, Any]:
        settings, seed = json.dumps(request["settings"], sort_keys=True), request["seed"]
        dataset = dataset_of(request["family"], settings, 0 if request["reseeds"] else seed)
        dataset.seed = seed
        entry = dataset[0]
        try:
            return {"score": float(dataset.score_answer(request["answer"], entry))}
        except Exception:  # noqa: BLE001 - several scorers raise on an answer that they cannot read: it is wrong
            return {"score": 0.0}

    return score


def main() -> None:
    """Answer the requests on stdin until it ends."""
    logging.disable(logging.CRITICAL)  # math-verify warns that nobody keeps the time: the alarm does
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    judge = {"math": math, "reasoning_gym": reasoning_gym}[sys.argv[1]]()

    def answer(value: dict[str, Any]) -> None:
        answers.write(json.dumps(value) + "\n")
        answers.flush()

    answer({"ready": True})
    for line in sys.stdin:
        request = json.loads(line)
        signal.setitimer(signal.ITIMER_REAL, request["seconds"] + GRACE)
        began = time.monotonic()
        result = judge(request)
        signal.setitimer(signal.ITIMER_REAL, 0)
        answer({**result, "took": time.monotonic() - began})


if __name__ == "__main__":
    main()
