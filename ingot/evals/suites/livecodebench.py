"""LiveCodeBench (Jain et al. 2024, arXiv 2403.07974): contest problems with dates, to choose those after a model's data.

Rows, as published: {"question_id", "question_content", "starter_code", "contest_date", "difficulty", "public_test_cases",
"private_test_cases", "metadata"}, tests as JSON, private ones packed (zlib, base64). A problem without starter code is a
program that reads and prints; one with starter code is a method of `Solution`, called with the tests' arguments. Output is
compared line by line without space at the ends; the published checker also takes 1.0 for 1 there.
"""

from __future__ import annotations

import base64
import binascii
import io
import json
import pickle
import zlib
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, NoReturn

from pydantic import Field

from ingot.envs.rows import Row, need
from ingot.envs.tasks._programs import program_of
from ingot.envs.verifiers.code.tests import Calls, FunctionCall, InputOutput
from ingot.evals.bases.code_problems import CodeProblems
from ingot.evals.bases.generations import Item
from ingot.evals.bases.suite import Subject
from ingot.evals.engine.request import Question
from ingot.workspace.errors import DataError

IMPORTS = """from typing import *
from collections import *
from functools import *
from itertools import *
from heapq import *
from bisect import *
from math import *
import collections, functools, itertools, heapq, bisect, math, string, re, sys
"""
READS = "Read the input from standard input and print the answer to standard output. Answer with a Python code block."
METHOD = "Answer with a Python code block that begins with this code:\n\n```python\n{}\n```"
ENTRY = "_solve"
UNPACKED = 1 << 27  # bytes of the tests of one problem; a row of kilobytes could unpack to gigabytes


class Livecodebench(CodeProblems):
    """Contest problems with dates, graded by hidden tests."""

    local: ClassVar[tuple[str, ...]] = ("livecodebench/*.jsonl*", "livecodebench/*.parquet")
    labels: ClassVar[Mapping[str, str]] = {"pass@1": "LiveCodeBench, all tests passed"}

    max_new_tokens: int = Field(4096, ge=1, description="tokens of an answer at most")
    since: str = Field("", pattern=r"^(\d{4}-\d\d-\d\d)?$", description="only problems from this day on, as 2024-08-01")
    before: str = Field("", pattern=r"^(\d{4}-\d\d-\d\d)?$", description="only problems before this day")

    def items(self, subject: Subject) -> Sequence[Item]:
        return [self._item(row, place) for place, row in self.rows(subject) if self._wanted(row, place)]

    def _wanted(self, row: Row, place: str) -> bool:
        if not (self.since or self.before):
            return True
        day = str(row.get("contest_date") or "")[:10]
        if not day:
            raise DataError("the row has no contest_date", place=place, fix="leave out `since` and `before`")
        return day >= self.since and (not self.before or day < self.before)

    def _item(self, row: Row, place: str) -> Item:
        starter = str(row.get("starter_code") or "")
        ask = METHOD.format(starter.rstrip()) if starter.strip() else READS
        tests = [test for name in ("public", "private") for test in read_tests(row, f"{name}_test_cases", place)]
        if not tests:
            raise DataError("the row has no tests", place=place, fix="give public_test_cases")
        name = json.loads(row.get("metadata") or "{}").get("func_name", "")
        if starter.strip() and not name:
            raise DataError("there is starter code, and metadata has no func_name", place=place, fix="add it")
        text = f"{need(row, 'question_content', str, place)}\n\n{ask}"
        data = {"tests": tests, "name": name.rpartition(".")[2] if starter.strip() else "", "place": place}
        return Item(str(row.get("question_id", place)), Question(text), data=data)

    def program(self, item: Item, answer: str) -> str:
        name = item.data["name"]
        program = f"{IMPORTS}\n{program_of(answer, (name,) if name else ())}"
        return f"{program}\n\n\ndef {ENTRY}(*given):\n    return Solution().{name}(*given)\n" if name else program

    def tests(self, item: Item) -> Calls | InputOutput:
        tests, place = item.data["tests"], item.data["place"]
        if not item.data["name"]:
            return InputOutput([(str(test["input"]), str(test["output"])) for test in tests])
        calls = [FunctionCall(_values(test["input"], place), _value(test["output"], place)) for test in tests]
        return Calls(ENTRY, calls)


def read_tests(row: Row, column: str, place: str) -> list[dict[str, Any]]:
    """The tests of a column: a list, JSON, or JSON that was pickled, compressed and written in base64."""
    packed = row.get(column) or []
    if isinstance(packed, str):
        try:
            packed = json.loads(packed)
        except json.JSONDecodeError:
            packed = _unpack(packed, place)
    if not isinstance(packed, list) or any(not is_test(test) for test in packed):
        raise DataError(f"{column} is not a list of tests", place=place, fix='give [{"input": …, "output": …}]')
    return packed


def is_test(test: object) -> bool:
    """Whether it has the two fields of a test."""
    return isinstance(test, dict) and {"input", "output"} <= test.keys()


class _OnlyData(pickle.Unpickler):
    """Unpickles a text: a name of anything, which a pickle could have called, is refused."""

    def find_class(self, module: str, name: str) -> NoReturn:
        raise pickle.UnpicklingError(f"it names {module}.{name}")


def _unpack(packed: str, place: str) -> Any:
    """The JSON value that was pickled as a text, compressed and written in base64; at most `UNPACKED` bytes."""
    try:
        stream = zlib.decompressobj()
        pickled = stream.decompress(base64.b64decode(packed, validate=True), UNPACKED)
        if not stream.eof:
            raise ValueError(f"more than {UNPACKED:,} bytes" if len(pickled) == UNPACKED else "they are cut off")
        return json.loads(str(_OnlyData(io.BytesIO(pickled)).load()))
    except (binascii.Error, zlib.error, pickle.UnpicklingError, EOFError, ValueError, RecursionError) as error:
        raise DataError(
            f"the private tests cannot be read: {error}", place=place, fix="fetch the file again"
        ) from error


def _values(lines: str, place: str) -> list[Any]:
    """A JSON value a line."""
    return [_value(line, place) for line in lines.splitlines() if line.strip()]


def _value(text: str, place: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise DataError(f"a test is not JSON: {error}", place=place, fix="one argument a line") from error
