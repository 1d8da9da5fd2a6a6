"""The process in which libraries judge what a model wrote; started by `children.py` with the name of a judge.

It speaks JSON, a line at a time: {"ready": true} once the judge is loaded, then for every request {"seconds": …, and what the
judge needs} one answer, with the seconds of the processor that it took. A request that takes more of them ends the process by its
own alarm (SIGPROF), also when nobody is left who would kill it. It imports nothing of this package, so that it starts fast and
anywhere.

An expression that would become too large is not compared: {"too_large": true}. How large is read from its tree, before
anything of it is computed: a sum to the power n has C(n + its terms - 1, n) terms, 2^n has n·log10(2) digits.
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
from math import exp, inf, isnan, lgamma, log10, nan, prod
from typing import Any

MOMENT = 0.001  # seconds; 0 would be no alarm
MEMORY = 8 * 2**30  # bytes of address space
RATIO = 1e-12
TERMS = 300  # of an expression that is multiplied out: SymPy needs a second for them
DIGITS = 40_000  # of a number
ROOT = 30  # times as long as a product of such numbers

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

    def verdict(reference: list[Any], given: list[Any]) -> dict[str, Any]:
        if reference != given and any(too_large(each) for each in reference + given):
            return {"too_large": True}
        return {"same": same(reference, given)}

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
    return lambda request: verdict(read(request["reference"]), read(request["given"]))


def too_large(tree: Any) -> bool:
    """Whether an expression of SymPy, of which nothing is computed yet, would become too large."""
    return not (_terms(tree) <= TERMS and _digits(tree) <= DIGITS)


def _value(tree: Any) -> float:
    """About the size of a number; infinite where that is no float, and not a number (NaN) for anything else."""
    parts = [_value(each) for each in tree.args]
    try:
        if tree.is_Rational:
            return float(abs(tree.p / tree.q))
        if tree.is_Pow:
            return float(parts[0] ** parts[1])
    except OverflowError:
        return inf
    if tree.is_Mul or tree.is_Add:
        return prod(parts) if tree.is_Mul else sum(parts)
    return nan


def _terms(tree: Any) -> float:
    """How many terms it has when it is multiplied out; where it is divided by a sum, at least its degree."""
    if not hasattr(tree, "args"):
        return sum(_terms(each) for each in tree)  # a matrix
    parts = [_terms(each) for each in tree.args]
    if tree.is_Pow:
        power = _value(tree.exp)
        return parts[0] if isnan(power) or parts[0] <= 1 else _choose(parts[0] - 1 + power, power)
    if tree.func.__name__ == "binomial" and not tree.is_number:
        return max(parts[0], _value(tree.args[1]))
    if tree.is_Mul and any(each.is_Pow and each.base.is_Add and each.exp.is_negative for each in tree.args):
        return max(prod(parts), _degree(tree))
    return prod(parts) if tree.is_Mul else max(1.0, sum(parts))


def _degree(tree: Any) -> float:
    """The highest power of anything with a letter."""
    highest = _value(tree.exp) if tree.is_Pow and tree.base.free_symbols else 1.0
    return max(0.0 if isnan(highest) else highest, *(_degree(each) for each in tree.args), 0.0)


def _choose(all: float, some: float) -> float:
    try:
        return exp(lgamma(all + 1) - lgamma(some + 1) - lgamma(all - some + 1))
    except OverflowError:
        return inf


def _digits(tree: Any) -> float:
    """How many digits its largest number has, about."""
    if not hasattr(tree, "args"):
        return sum(_digits(each) for each in tree)
    if tree.is_Rational:
        return float(len(str(abs(tree.p))) + len(str(tree.q)) - 1)
    found, values = sum(_digits(each) for each in tree.args), [_value(each) for each in tree.args]
    match tree.func.__name__:
        case "Pow" if values[1] >= 1:
            return found and found * values[1]
        case "Pow":  # a root: the number is looked through for factors
            return found * ROOT
        case "factorial" if values[0] > 1:
            return values[0] * log10(values[0])
        case "binomial" if values[0] > 1:
            return min(values[1], abs(values[0] - values[1])) * log10(values[0])
        case "Product" if len(tree.args[1]) == 3:
            _, first, last = map(_value, tree.args[1])
            return found * max(1.0, last - first)
    return found


def reasoning_gym() -> Judge:
    """reasoning-gym's scorer: {"family", "settings", "seed", "reseeds", "answer"} to {"score"}, or to {"error"} where it raises.

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
        except Exception as error:  # noqa: BLE001 - several scorers raise on an answer that they cannot read
            return {"error": f"{type(error).__name__}: {error}"[:200]}

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
        signal.setitimer(signal.ITIMER_PROF, max(MOMENT, request["seconds"]))
        began = time.process_time()
        result = judge(request)
        signal.setitimer(signal.ITIMER_PROF, 0)
        answer({**result, "took": time.process_time() - began})


if __name__ == "__main__":
    main()
