"""Verifies whole programs: compiled once in a sandbox, then run in a new one for every input; output is compared here."""

from __future__ import annotations

import shutil
from dataclasses import dataclass, replace

from ingot.envs.verifiers.code.tests import OVER, InputOutput
from ingot.envs.verifiers.errors import VerifierError
from ingot.sandbox.pool import Pool
from ingot.sandbox.program import Limits, Outcome, Program
from ingot.sandbox.worker import SandboxError

FOLDERS = "/usr/local/bin:/usr/bin:/bin"  # what a sandbox sees
RESERVED = 2**40  # bytes of addresses for runtimes that reserve far more than they use
COMPILE = Limits(seconds=60, memory=2**32, address_space=RESERVED, file=2**27, folder=2**30, output=2**27)


@dataclass(frozen=True)
class Language:
    """How programs of a language run: the file of the source, the tool, the command that compiles to `program`, if one does."""

    file: str
    tool: str
    compile: str = ""
    run: tuple[str, ...] = ("./program",)
    reserves: bool = False


LANGUAGES = {
    "python": Language("program.py", "python3"),
    "c": Language("program.c", "gcc", "gcc -O2 -std=c17 -o program program.c -lm"),
    "c++": Language("program.cpp", "g++", "g++ -O2 -std=c++20 -o program program.cpp"),
    "rust": Language("program.rs", "rustc", "rustc -O -o program program.rs"),
    "go": Language("program.go", "go", "GOCACHE=/tmp/cache go build -o program program.go", reserves=True),
    "javascript": Language("program.js", "node", run=("node", "program.js"), reserves=True),
    "java": Language("program.java", "java", run=("java", "-XX:+UseSerialGC", "program.java"), reserves=True),
    "bash": Language("program.sh", "bash", run=("bash", "program.sh")),
}


def verify_programs(
    source: str, tests: InputOutput, pool: Pool, limits: Limits, *, stop_early: bool
) -> tuple[int, int, str]:
    """How many inputs give the expected output, how many there are, and the first problem."""
    language = find_language(tests.language)
    try:
        program, problem = _prepare(source, language, pool, limits)
        if problem:
            return 0, len(tests.cases), problem
        if language.reserves:
            limits = replace(limits, address_space=RESERVED)
        passed = 0
        for number, (stdin, expected) in enumerate(tests.cases, 1):
            wrong = _wrong(pool.run(replace(program, stdin=stdin.encode()), limits), expected)
            passed += not wrong
            problem = problem or (wrong and f"input {number}: {wrong}")
            if wrong and stop_early:
                break
    except SandboxError as error:
        raise VerifierError(error.problem, place="code verifier", fix=error.fix, part="sandbox") from error
    return passed, len(tests.cases), problem


def find_language(name: str) -> Language:
    """A language whose tools are on this machine, where a sandbox sees them."""
    if name not in LANGUAGES:
        problem = f"there is no language {name}"
        raise VerifierError(problem, place="code verifier", fix=f"choose from {', '.join(LANGUAGES)}")
    language = LANGUAGES[name]
    if name != "python" and shutil.which(language.tool, path=FOLDERS) is None:
        problem = f"{language.tool}, which {name} needs, is not in {FOLDERS}"
        raise VerifierError(problem, place="code verifier", fix=f"install {language.tool} for all users of the machine")
    return language


def _prepare(source: str, language: Language, pool: Pool, limits: Limits) -> tuple[Program, str]:
    """The program to run, or why there is none."""
    environment = {"PATH": FOLDERS}
    if language.file == "program.py":
        return Program(source=source), ""
    if not language.compile:
        tool = shutil.which(language.run[0], path=FOLDERS)
        assert tool is not None
        return Program((tool, *language.run[1:]), files={language.file: source}, environment=environment), ""
    command = ("/bin/sh", "-c", f"{language.compile} && cat program >&3")
    compiler = Program(command, files={language.file: source}, environment=environment)
    largest = min(COMPILE.output, limits.folder // 2)  # what is compiled must fit into the folder in which it runs
    outcome = pool.run(compiler, replace(COMPILE, output=largest, unsafe=limits.unsafe))
    if outcome.ended_by not in ("exit", "signal"):
        return Program(), f"its compiler is {OVER}{outcome.ended_by}"
    if outcome.exit != 0:
        return Program(), f"it does not compile: {outcome.stderr.decode('utf-8', 'replace')[:500]}"
    return Program(language.run, files={"program": outcome.result}, environment=environment), ""


def _wrong(outcome: Outcome, expected: str) -> str:
    """What is wrong with the end or the output of a program; empty if nothing is."""
    if outcome.ended_by not in ("exit", "signal"):
        return f"{OVER}{outcome.ended_by}"
    if outcome.exit != 0:
        return f"it ended with status {outcome.exit}: {outcome.stderr.decode('utf-8', 'replace')[-500:]}"
    printed = outcome.stdout.decode("utf-8", "replace")
    return "" if _lines(printed) == _lines(expected) else f"it printed {printed[:500]!r}"


def _lines(text: str) -> list[str]:
    return [line.rstrip() for line in text.rstrip().split("\n")]
