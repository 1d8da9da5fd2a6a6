"""What layers share of a pass: no two of them keep another thing under the same key."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

MODEL = Path(__file__).parents[2] / "ingot" / "model"


def test_every_key_belongs_to_one_place() -> None:
    """Routers and recurrent mixers both kept their "sequences", so that models with both failed on a GPU."""
    places = defaultdict[str, list[str]](list)
    for path in sorted(MODEL.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "once":
                key = node.args[0].elts[0] if isinstance(node.args[0], ast.Tuple) else node.args[0]
                if isinstance(key, ast.Constant):
                    places[ast.unparse(node.args[0])].append(f"{path.name}:{node.lineno}")
    assert len(places) >= 12
    assert {key: found for key, found in places.items() if len(found) > 1} == {}
