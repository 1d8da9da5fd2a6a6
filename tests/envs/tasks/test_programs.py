"""The program in a reply, in every form in which models write it: HumanEval's own solutions, which are right."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from textwrap import dedent, indent

import pytest

from ingot.envs.rows import Row
from ingot.envs.tasks._programs import blocks_of, defines, program_of
from ingot.envs.tasks.humaneval import Humaneval
from ingot.sandbox.run import isolation
from ingot.tokens.chat import Message
from tests.conftest import SHARED_DATA
from tests.making.rows import read_rows
from tests.slow import slow

PROBLEMS = SHARED_DATA / "humaneval" / "humaneval_dev.jsonl.gz"
SAYS = "Here is the function:\n\n"
FORMS: dict[str, Callable[[str], str]] = {
    "a block": lambda code: f"{SAYS}```python\n{code}\n```\nIt is right.",
    "an example after it": lambda code: f"```python\n{code}\n```\n\nExample:\n\n```python\nprint(has([1, 2]))\n```",
    "its output after it": lambda code: f"```python\n{code}\n```\n\nThis prints\n\n```\nTrue\n```",
    "a draft before it": lambda code: f"```python\n{code.split(':')[0]}: ...\n```\nBetter:\n```python\n{code}\n```",
    "python3": lambda code: f"{SAYS}```python3\n{code}\n```",
    "Python 3 and attributes": lambda code: f'{SAYS}``` Python 3.11 title="x.py"\n{code}\n```\n',
    "py and an output in another language": lambda code: f"```py\n{code}\n```\n```console\n$ python x.py\nTrue\n```",
    "no language": lambda code: f"{SAYS}```\n{code}\n```",
    "indented in a list": lambda code: "1. The function:\n\n" + indent(f"```python\n{code}\n```", "   "),
    "tabs before it": lambda code: indent(f"```python\n{code}\n```", "\t"),
    "tildes": lambda code: f"{SAYS}~~~python\n{code}\n~~~\nIt prints\n~~~\nTrue\n~~~",
    "a longer fence": lambda code: f"````python\n{code}\n````\n",
    "a block that is not closed": lambda code: f"{SAYS}```python\n{code}\n",
    "CRLF": lambda code: f"{SAYS}```python\n{code}\n```\nDone.\n```\nTrue\n```\n".replace("\n", "\r\n"),
    "nothing around it": lambda code: code,
    "nothing around it, CRLF": lambda code: code.replace("\n", "\r\n"),
}


@cache
def rows() -> list[Row]:
    if not PROBLEMS.exists():
        pytest.skip(f"{PROBLEMS} is not on this machine")
    return read_rows(PROBLEMS)[:10]


@pytest.mark.parametrize("form", FORMS)
def test_the_program_of_a_reply_is_found(form: str) -> None:
    for row in rows():
        code = (row["prompt"] + row["canonical_solution"]).strip("\n")
        assert program_of(FORMS[form](code), (row["entry_point"],)).strip("\n") == code


@pytest.mark.parametrize("form", [slow(form) for form in FORMS])
def test_a_right_program_earns_its_reward_in_every_form(form: str) -> None:
    check_rewards(form, rows())


def test_right_programs_earn_their_rewards() -> None:
    for form, row in zip(("an example after it", "indented in a list", "CRLF"), rows(), strict=False):
        check_rewards(form, [row])


def check_rewards(form: str, found: list[Row]) -> None:
    if isolation() == "process":
        pytest.skip("bwrap is not installed, or user namespaces are refused")
    environment = Humaneval(files=[str(PROBLEMS)], thinking=False)
    for row in found:
        reply = FORMS[form]((row["prompt"] + row["canonical_solution"]).strip("\n"))
        score = environment.score(environment.read(row, "here"), [Message("assistant", reply)])
        assert (score.reward, score.format_ok) == (1.0, True), row["task_id"]


def test_programs_over_a_limit_earn_nothing_and_are_counted() -> None:
    if isolation() == "process":
        pytest.skip("bwrap is not installed, or user namespaces are refused")
    environment = Humaneval(files=[str(PROBLEMS)], thinking=False, seconds=0.7)
    task = environment.read(rows()[0], "here")
    name = task.data["entry_point"]
    endless = "import os\n    while True: os.write(1, bytes(10**6))"
    ends = {"while True: pass": (1, 0), endless: (0, 1), "raise MemoryError": (0, 0)}
    for body, counts in ends.items():
        score = environment.score(task, [Message("assistant", f"```python\ndef {name}(*given):\n    {body}\n```")])
        assert (score.reward, score.correct, score.error) == (0.0, False, None)
        assert (score.detail["answers_too_slow"], score.detail["answers_too_large"]) == counts, body


def test_what_follows_the_prompt_alone_is_taken_too() -> None:
    """HumanEval allows the body without the function; then no block defines it, and the last Python block counts."""
    assert program_of("```python\n    return 1\n```\n```\n1\n```", ("f",)) == "    return 1"
    assert program_of("    return 1", ("f",)) == "    return 1"


def test_fences_inside_a_program_do_not_end_it() -> None:
    code = dedent('''
        def f():
            """Shows

            ```
            f()
            ```
            """
            return "```"
    ''').strip()
    for reply in (f"```python\n{code}\n```\nand\n```\n1\n```", indent(f"```python\n{code}\n```", "  ")):
        assert program_of(reply, ("f",)) == code
    assert blocks_of("Use ```f()``` here\n```` text\n```\n````\n") == [("text", "```")]
    assert blocks_of("~~~\n```\n~~~") == [("", "```")]


@pytest.mark.parametrize(
    ("program", "found"),
    [
        ("def f(x):", True),
        ("async  def f():", True),
        ("class f:", True),
        ("class A:\n    def f(self): pass", True),
        ("f = lambda x: x", True),
        ("f: object = g", True),
        ("print(f(3))", False),
        ("assert f\nf == 3", False),
        ("def ff(x): return f(x)", False),
        ("def g(f=1): pass", False),
        ("# def f", False),
    ],
)
def test_what_defines_a_name(program: str, found: bool) -> None:
    assert defines(program, "f") == found
