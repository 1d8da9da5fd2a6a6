"""The commands that messages name for what is not installed."""

from __future__ import annotations

import ast
import shlex
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

import ingot
from ingot.workspace import packages
from ingot.workspace.errors import IngotError
from ingot.workspace.packages import CLONE, check_installed, install_extra, pip_install

PACKAGE = Path(ingot.__file__).parent
OTHER_PYTHON = (
    "_verifiers_child.py",
    "_verifiers_worker.py",
)  # what they name is installed for another Python than ours


def test_an_extra_is_installed_from_the_clone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(CLONE)
    monkeypatch.setattr(sys, "executable", str(CLONE / ".venv/bin/python"))
    python = ".venv/bin/python -m pip install"
    assert install_extra("serve") == f"{python} -c constraints.txt -e '.[serve]'"
    assert install_extra("") == f"{python} -c constraints.txt -e ."
    assert install_extra("inspect") == f"{python} -e '.[inspect]'"
    assert pip_install("torch>=2") == f"{python} 'torch>=2'"
    monkeypatch.chdir(tmp_path)
    _, *_, constraints, _, source = shlex.split(install_extra("serve"))
    assert Path(constraints).is_file() and Path(source.removesuffix("[serve]"), "pyproject.toml").is_file()
    monkeypatch.setattr(packages, "CLONE", tmp_path)
    assert install_extra("serve").endswith("pip install 'FOLDER[serve]', where FOLDER is a clone of Ingot's repository")


def test_what_is_missing_is_named_with_its_place() -> None:
    check_installed(("json", "pathlib"), "serve", "ingot serve")
    with pytest.raises(IngotError, match=r"ingot ui: no_such_package is not installed\n  fix: .*\[serve\]"):
        check_installed(("json", "no_such_package"), "serve", "ingot ui")


def test_no_message_names_another_command() -> None:
    """Every extra that a message names exists, and none says `pip install` in words of its own."""
    known = tomllib.loads((CLONE / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    named, foreign = set(), []
    for path, node in _nodes():
        match node:
            case ast.Call(func=ast.Name(id="install_extra"), args=[ast.Constant(value=str(extra))]) if extra:
                named.add(extra)
            case ast.keyword(arg="fix", value=value) if "pip install" in ast.unparse(value):
                foreign.append(f"{path}:{value.lineno}")
    assert named >= {"data", "envs", "evals", "inspect", "ray", "serve", "track"} and named <= set(known)
    assert foreign == []


def _nodes() -> Iterator[tuple[Path, ast.AST]]:
    """Every node of every file that may name such a command."""
    for path in PACKAGE.rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        if path.name not in OTHER_PYTHON and ("pip install" in text or "install_extra(" in text):
            for node in ast.walk(ast.parse(text)):
                yield path, node
