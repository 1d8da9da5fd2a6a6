"""A backward pass asks for its saved tensors once: with recomputation (torch.utils.checkpoint) a second time is an error."""

from __future__ import annotations

import ast
from pathlib import Path

import ingot

ROOT = Path(ingot.__file__).parent


def test_each_backward_pass_asks_once() -> None:
    readers = {}
    for path in ROOT.rglob("*.py"):
        source = path.read_text(encoding="utf-8")
        for node in ast.walk(ast.parse(source)) if "saved_tensors" in source else ():
            if isinstance(node, ast.FunctionDef):
                asked = [x.lineno for x in ast.walk(node) if isinstance(x, ast.Attribute) and x.attr == "saved_tensors"]
                if asked:
                    readers[f"{path.relative_to(ROOT)}: {node.name}"] = asked
    assert len(readers) >= 10  # it sees them
    assert [name for name, asked in readers.items() if len(asked) > 1] == []
