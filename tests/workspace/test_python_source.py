"""Python is parsed in threads without the fault of `ast.parse` up to Python 3.11.7."""

from __future__ import annotations

import ast
import gc
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from ingot.workspace.python_source import parse_python

TEXT = f"f(a=1, b={'(' * 30}1{')' * 30}, c=[{'x + y * z, ' * 40}])"


@pytest.fixture
def _threads_change_inside_a_parse() -> Iterator[None]:
    """Garbage is collected often, and each time another thread may run: one of 300 plain parses fails then."""

    def let_others_run(phase: str, _: object) -> None:
        if phase == "stop":
            time.sleep(0)

    before = gc.get_threshold(), sys.getswitchinterval()
    gc.callbacks.append(let_others_run)
    gc.set_threshold(50)
    sys.setswitchinterval(1e-6)
    yield
    gc.callbacks.remove(let_others_run)
    gc.set_threshold(*before[0])
    sys.setswitchinterval(before[1])


@pytest.mark.usefixtures("_threads_change_inside_a_parse")
def test_threads_parse_at_the_same_time() -> None:
    with ThreadPoolExecutor(8) as pool:
        found = set(pool.map(lambda _: ast.dump(parse_python(TEXT, "eval")), range(600)))
    assert found == {ast.dump(ast.parse(TEXT, mode="eval"))}


def test_errors_are_those_of_the_parser() -> None:
    with pytest.raises(SyntaxError):
        parse_python("f(", "eval")
