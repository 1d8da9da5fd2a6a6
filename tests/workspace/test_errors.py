"""Errors that a person can act on."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from ingot.workspace.errors import cannot_import


def failed(statement: str) -> ImportError:
    with pytest.raises(ImportError) as raised:
        exec(statement)
    return raised.value


def test_a_package_that_is_not_there_and_one_that_needs_what_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second is installed: to install it again would help nobody."""
    (tmp_path / "halfway.py").write_text("import nowhere_at_all")
    (tmp_path / "older.py").write_text("from json import spelled_otherwise")
    monkeypatch.syspath_prepend(tmp_path)
    assert cannot_import("Halfway", failed("import halfway_gone"), "halfway_gone") == "Halfway is not installed"
    assert cannot_import("Halfway", failed("import halfway"), "halfway") == (
        "Halfway cannot be imported: No module named 'nowhere_at_all'"
    )
    assert "cannot be imported: cannot import name 'spelled_otherwise'" in cannot_import(
        "Older", failed("import older"), "older"
    )
    assert "halfway" not in sys.modules
