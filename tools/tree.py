"""Writes docs/tree.md: every module of the package in one line, the first sentence of its docstring, by room.

python tools/tree.py            write the page
python tools/tree.py --check    fail if the page is not what the docstrings say (CI)

A module without a docstring is an error.
"""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "ingot"
PAGE = ROOT / "docs" / "tree.md"
HEAD = """# Tree of files

Every module in one line: the first sentence of its docstring, written by `make tree`. [Rooms](rooms/index.md) says what each room
is for and in which order rooms import each other.
"""


def main() -> int:
    """Write or check the page; returns the exit code."""
    text = page()
    if "--check" not in sys.argv:
        PAGE.write_text(text, encoding="utf-8")
        return 0
    if PAGE.exists() and PAGE.read_text(encoding="utf-8") == text:
        return 0
    sys.stderr.write(f"{PAGE} is out of date with the modules' docstrings; run `make tree` and commit it\n")
    return 1


def page() -> str:
    """The page: the package's own modules, then a section for each room."""
    parts = [HEAD, "## ingot\n", *lines(PACKAGE, sorted(PACKAGE.glob("*.py")))]
    for room in sorted(path.parent for path in PACKAGE.glob("*/__init__.py")):
        parts += [
            f"\n## {room.name}\n",
            f"{sentence(room / '__init__.py')}\n",
            *lines(room, sorted(room.rglob("*.py"))),
        ]
    return "\n".join(parts) + "\n"


def lines(folder: Path, modules: list[Path]) -> list[str]:
    """The lines of some modules; a room's own `__init__.py` is its heading."""
    named = [(path.relative_to(folder).as_posix(), path) for path in modules if path != folder / "__init__.py"]
    named += [("__init__.py", folder / "__init__.py")] if folder == PACKAGE else []
    return [f"- `{name}`: {sentence(path)}" for name, path in sorted(named)]


def sentence(path: Path) -> str:
    """The first sentence of a module's docstring, on one line and safe in Markdown."""
    docstring = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))
    if not docstring:
        raise SystemExit(f"{path.relative_to(ROOT)}: a module begins with a docstring")
    paragraph = " ".join(docstring.split("\n\n")[0].split())
    first = re.split(r"(?<=[.!?:])\s(?=[A-Z`\[{(])", paragraph, maxsplit=1)[0].rstrip(":. ")
    return re.sub(r"([<>*_\[\]{}|])", r"\\\1", first) if "`" not in first else _outside_code(first)


def _outside_code(text: str) -> str:
    """Escape Markdown's signs outside of `code`."""
    parts = text.split("`")
    return "`".join(re.sub(r"([<>*_\[\]|])", r"\\\1", part) if i % 2 == 0 else part for i, part in enumerate(parts))


if __name__ == "__main__":
    sys.exit(main())
