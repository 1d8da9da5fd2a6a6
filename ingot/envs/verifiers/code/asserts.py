"""Verifies by tests that are code: the program in one sandbox, its tests in another, two pipes between them."""

from __future__ import annotations

import ast
import builtins
import json
import os
import secrets
import sys
from pathlib import Path

from ingot.envs.verifiers.code.tests import OVER, Asserts
from ingot.envs.verifiers.errors import VerifierError
from ingot.sandbox.pool import Pool
from ingot.sandbox.program import Limits, Outcome, Program
from ingot.sandbox.worker import SandboxError
from ingot.workspace.python_source import parse_python

HERE = Path(__file__).parent
WIRE = HERE / "wire.py"
CANDIDATE = HERE / "candidate.py"
CHECKS = HERE / "checks.py"


def verify_asserts(source: str, tests: Asserts, pool: Pool, limits: Limits, *, share: bool) -> tuple[int, int, str]:
    """How many asserts passed, how many there are, and the first problem."""
    names, modules = missing_names(tests)
    nonce = secrets.token_hex(16)
    order = {
        "nonce": nonce,
        "tests": tests.tests,
        "prelude": tests.prelude,
        "names": names,
        "modules": modules,
        "entry_points": tests.entry_points,
        "share": share,
    }
    answers, questions = os.pipe(), os.pipe()
    candidate = part(CANDIDATE, {"source": source}, (questions[0], answers[1]))
    checks = part(CHECKS, order, (answers[0], questions[1]))
    try:
        outcomes = pool.run_together([candidate, checks], [limits, limits])
    except SandboxError as error:
        raise VerifierError(error.problem, place="code verifier", fix=error.fix, part="sandbox") from error
    return _verdict(nonce, *outcomes)


def part(module: Path, order: object, links: tuple[int, ...] = ()) -> Program:
    """A program that runs `main` of one of our modules, with an order on its stdin."""
    files = {f"ingot/envs/verifiers/code/{path.name}": path.read_text(encoding="utf-8") for path in (WIRE, module)}
    source = f"from ingot.envs.verifiers.code.{module.stem} import main; main()"
    return Program(source=source, stdin=json.dumps(order).encode(), files=files, links=links)


def missing_names(tests: Asserts) -> tuple[list[str], list[str]]:
    """The names that tests use and nobody defines: those of the program, and modules of the standard library.

    A name of a built-in function is never the program's: a program that defines its own `abs` must not be asked for it.
    """
    try:
        trees = [parse_python(text) for text in (tests.prelude, tests.tests)]
    except (SyntaxError, ValueError) as error:
        raise VerifierError(
            f"the tests are not Python: {error}", place="code verifier", fix="correct the tests"
        ) from None
    used, called_on, defined = set(), set(), set()
    for node in (node for tree in trees for node in ast.walk(tree)):
        match node:
            case ast.Name(id=name, ctx=ast.Load()):
                used.add(name)
            case ast.Name(id=name) | ast.arg(arg=name) | ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                defined.add(name)
            case ast.alias(name=name, asname=alias):
                defined.add(alias or name.partition(".")[0])
            case ast.ExceptHandler(name=str(name)):
                defined.add(name)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            called_on.add(node.value.id)
    free = used - defined - set(dir(builtins)) - set(tests.entry_points)
    modules = free & called_on & sys.stdlib_module_names
    return sorted(free - modules), sorted(modules)


def _verdict(nonce: str, candidate: Outcome, checks: Outcome) -> tuple[int, int, str]:
    for outcome in (candidate, checks):
        if outcome.ended_by in ("time", "cpu", "memory", "processes", "output"):
            return 0, 1, f"{OVER}{outcome.ended_by}"
    try:
        report = json.loads(checks.result[4:])
        if report["nonce"] == nonce:
            return int(report["passed"]), int(report["total"]), str(report["problem"])
    except (ValueError, KeyError, TypeError):
        pass
    return 0, 1, f"the tests ended without a verdict (status {checks.exit})"
