"""LiveCodeBench's format: both kinds of problems with packed private tests, dates, and files that try to run something."""

from __future__ import annotations

import base64
import json
import os
import pickle
import tracemalloc
import zlib
from pathlib import Path
from typing import Any

import pytest

from ingot.evals.engine.request import Generation
from ingot.evals.suites import livecodebench
from ingot.evals.suites.livecodebench import Livecodebench, read_tests
from ingot.workspace.errors import DataError
from tests.evals.suites.asking import Script, last_text, measure, subject, units
from tests.evals.suites.test_humaneval_mbpp import needs_sandbox
from tests.making.rows import write_rows


def pack(tests: list[dict[str, Any]]) -> str:
    """As the published files hold private tests."""
    return base64.b64encode(zlib.compress(pickle.dumps(json.dumps(tests)))).decode()


READS = {
    "question_id": "reads",
    "question_content": "Print the sum of the numbers.",
    "starter_code": "",
    "contest_date": "2024-05-01T00:00:00",
    "public_test_cases": json.dumps([{"input": "1 2\n", "output": "3\n", "testtype": "stdin"}]),
    "private_test_cases": pack([{"input": "5 -7", "output": "-2", "testtype": "stdin"}]),
    "metadata": "{}",
}
METHOD = {
    "question_id": "method",
    "question_content": "Return the pairs that sum to k.",
    "starter_code": "class Solution:\n    def pairs(self, numbers: List[int], k: int) -> List[List[int]]:\n        ",
    "contest_date": "2024-09-01",
    "public_test_cases": json.dumps([{"input": "[1, 2, 3]\n3", "output": "[[1, 2]]", "testtype": "functional"}]),
    "private_test_cases": pack([{"input": "[]\n0", "output": "[]", "testtype": "functional"}]),
    "metadata": json.dumps({"func_name": "pairs"}),
}
RIGHT = {
    "reads": "print(sum(map(int, input().split())))",
    "method": "class Solution:\n    def pairs(self, numbers: List[int], k: int) -> List[List[int]]:\n"
    "        return [(a, b) for a, b in combinations(numbers, 2) if a + b == k]",
}
HALF = {  # right on the public tests only
    "reads": "print(abs(sum(map(int, input().split()))))",
    "method": "class Solution:\n    def pairs(self, numbers, k):\n        return [[1, 2]]",
}


@needs_sandbox
def test_hidden_tests_decide(tmp_path: Path) -> None:
    file = write_rows(tmp_path / "rows.jsonl", (READS, METHOD))
    suite, about = Livecodebench(files=(str(file),)), subject(form="chat")
    for programs, verdict in ((RIGHT, 1.0), (HALF, 0.0)):
        found = measure(suite, _script(programs), about)
        assert units(found) == {"livecodebench/pass@1": {"reads": verdict, "method": verdict}}


def _script(programs: dict[str, str]) -> Script:
    def script(request: Generation) -> str:
        kind = "method" if "class Solution" in last_text(request) else "reads"
        return f"```python\n{programs[kind]}\n```"

    return script


def test_dates(tmp_path: Path) -> None:
    file = write_rows(tmp_path / "rows.jsonl", (READS, METHOD))

    def chosen(**days: str) -> list[str]:
        return [item.id for item in Livecodebench(files=(str(file),), **days).items(subject())]

    assert chosen(since="2024-05-01") == ["reads", "method"] and chosen(since="2024-05-02") == ["method"]
    assert chosen(before="2024-09-01") == ["reads"] and chosen(since="2024-05-02", before="2024-09-01") == []


class Runs:
    def __reduce__(self) -> Any:
        return os.mkdir, ("should-not-be-there",)


def test_a_packed_file_cannot_run_anything(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    packed = base64.b64encode(zlib.compress(pickle.dumps(Runs()))).decode()
    with pytest.raises(DataError, match=r"it names .*mkdir"):
        read_tests({"private_test_cases": packed}, "private_test_cases", "row 1")
    assert not any(tmp_path.iterdir())
    with pytest.raises(DataError, match="cannot be read"):
        read_tests({"private_test_cases": "not base64!"}, "private_test_cases", "row 1")


def test_damaged_tests_are_named_with_their_row() -> None:
    whole = zlib.compress(pickle.dumps(json.dumps([])))
    for content, problem in (
        (zlib.compress(pickle.dumps("[{")), "Expecting property name"),
        (zlib.compress(pickle.dumps("[" * 100_000)), "recursion"),
        (whole[:-3], "cut off"),
    ):
        packed = base64.b64encode(content).decode()
        with pytest.raises(DataError, match=rf"private tests cannot be read: .*{problem}") as found:
            read_tests({"private_test_cases": packed}, "private_test_cases", "row 7")
        assert found.value.place == "row 7"
    for value in ({"input": 1}, [1], [{"input": 1}]):
        with pytest.raises(DataError, match="is not a list of tests"):
            read_tests({"private_test_cases": json.dumps(value)}, "private_test_cases", "row 7")


def test_tests_that_unpack_to_too_much(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is unpacked stops at the limit: a row of some kilobytes cannot take gigabytes."""
    packed = base64.b64encode(zlib.compress(b"\0" * 30_000_000, 9)).decode()
    monkeypatch.setattr(livecodebench, "UNPACKED", 1_000_000)
    tracemalloc.start()
    with pytest.raises(DataError, match="more than 1,000,000 bytes"):
        read_tests({"private_test_cases": packed}, "private_test_cases", "row 7")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 10_000_000
