"""A data set that is nowhere to be found: the error says how to get it, in code that runs as it stands."""

from __future__ import annotations

import ast

import pytest

from ingot.evals.bases import file_suite
from ingot.evals.bases.file_suite import loading, rows_of
from ingot.evals.bases.suites import SUITES
from ingot.workspace.errors import DataError


def test_the_call_that_gets_a_data_set() -> None:
    assert loading("hf:openai/gsm8k:main:test") == "datasets.load_dataset('openai/gsm8k', 'main', split='test')"
    assert loading("hf:google/IFEval:train") == "datasets.load_dataset('google/IFEval', split='train')"
    specs = [spec for kind in SUITES.builtin().values() for spec in getattr(kind, "hub", ())]
    assert len(specs) > 20
    for spec in specs:
        ast.parse(loading(spec))


def test_without_rows_the_fix_has_that_call(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(spec: str) -> None:
        raise DataError("no network", place=spec)

    monkeypatch.setattr(file_suite, "read_rows", refuse)
    with pytest.raises(DataError, match="the hub did not give them: no network") as caught:
        rows_of(("gsm8k/test*.jsonl*",), ("hf:openai/gsm8k:main:test",), None, suite="gsm8k")
    assert "`datasets.load_dataset('openai/gsm8k', 'main', split='test')` once" in (caught.value.fix or "")
