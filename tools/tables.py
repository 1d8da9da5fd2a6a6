"""Writes what hand-written pages say and the code knows: kinds of stages, commands, figures, and how many of each part there are.

python tools/tables.py            write the tables
python tools/tables.py --check    fail if a table is not what the code says (CI)

A table stands between the lines `<!-- NAME: written by tools/tables.py -->` and `<!-- end of NAME -->` of its page. A number of
parts stands before its words wherever these occur: `12 RL algorithms`, `[12 RL algorithms](page.md)`.
"""

from __future__ import annotations

import functools
import json
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import typer

from ingot.checkpoints.families.table import FAMILIES
from ingot.cli.app import app
from ingot.cli.show_formats import thinking
from ingot.evals.bases.suites import SUITES
from ingot.model.presets.preset import presets
from ingot.post.algorithm import PREFER, RL
from ingot.recipe.stages import STAGES
from ingot.tokens.syntax import formats
from ingot.train.layouts.table import layout_table
from ingot.workspace.stage import Stage

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))  # to be run as a file

from benchmarks.figures import chart, figure_table, headline_table  # noqa: E402

DOCS = ROOT / "docs"
CHART = DOCS / "images" / "speeds.svg"


def main() -> int:
    """Write or check the tables; returns the exit code."""
    texts = {page: written(page) for page in pages()} | {CHART: chart()}
    stale = [page for page, text in texts.items() if not page.exists() or text != page.read_text(encoding="utf-8")]
    if "--check" in sys.argv and stale:
        named = ", ".join(str(page) for page in stale)
        sys.stderr.write(f"{named}: a table or a number is out of date; run `make reference` and commit it\n")
        return 1
    for page in stale:
        page.write_text(texts[page], encoding="utf-8")
    return 0


def pages() -> list[Path]:
    """README and the pages of docs/ that people write."""
    return [
        ROOT / "README.md",
        *sorted(page for page in DOCS.rglob("*.md") if page.parent.name not in ("log", "reference")),
    ]


def written(page: Path) -> str:
    """The page with its tables and numbers as the code has them."""
    text = page.read_text(encoding="utf-8")
    for words, number in numbers().items():
        text = re.sub(rf"\b\d+(?= {words}\b)", str(number), text)
    for name in (name for where, name in TABLES if where == page):
        text = with_table(page, text, name)
    return text


@functools.cache
def numbers() -> dict[str, int]:
    """How many there are of each part, by the words that a page counts it with."""
    return {
        "RL algorithms": len(RL.names()),
        "preference losses": len(PREFER.names()),
        "eval suites": len(SUITES.names()),
        "published systems": len({preset.system for preset in presets()}),
        "Hugging Face types": len({name for family in FAMILIES for name in family.types}),
    }


def with_table(page: Path, text: str, name: str) -> str:
    """The text with the table of this name as the code has it."""
    first, last = f"<!-- {name}: written by tools/tables.py -->", f"<!-- end of {name} -->"
    if text.count(first) != 1 or text.count(last) != 1:
        raise SystemExit(f"{page}: the lines {first} and {last} must stand there once")
    before, after = text[: text.index(first) + len(first)], text[text.index(last) :]
    return f"{before}\n\n{TABLES[page, name]()}\n\n{after}"


def stage_table() -> str:
    """Every kind of stage: what it does, needs and makes."""
    rows = ["| kind | what it does | needs | may take | makes |", "| --- | --- | --- | --- | --- |"]
    for kind in STAGES.values():
        needs = ", ".join(role(kind, name) for name in kind.needs if name not in kind.optional)
        takes = ", ".join(role(kind, name) for name in kind.optional)
        rows.append(f"| `{kind.kind}` | {kind.does} | {needs} | {takes} | {', '.join(kind.makes)} |")
    return "\n".join(rows)


def format_table() -> str:
    """Every chat format: how it writes a call and a trace, and who writes so."""
    rows = ["| format | models | thinking | the call `f(k=1)` |", "| --- | --- | --- | --- |"]
    for label, syntax in formats().items():
        example, shown = (text.replace("\n", "⏎").replace("|", "\\|") for text in (syntax.example, thinking(syntax)))
        trace = shown if shown.isalpha() or " " in shown else f"`{shown}`"
        quote = "````" if "`" in example else "`"
        rows.append(f"| `{label}` | {syntax.models} | {trace} | {quote}{example.strip()}{quote} |")
    return "\n".join(rows)


def role(kind: Stage, name: str) -> str:
    """A role, with its artifact where that has another name."""
    artifact = kind.needs[name]
    if name in kind.many:
        return f"{name} (all earlier ones, or those named)"
    if name in kind.several:
        return f"{name} (a {artifact}, or several)"
    return name if name == artifact else f"{name} (a {artifact})"


def command_table() -> str:
    """Every command of the program with its options."""
    rows = ["| command | what it does | options |", "| --- | --- | --- |"]
    for words, command in commands(typer.main.get_command(app), ["ingot"]):
        given = [each for each in command.params if each.param_type_name == "argument"]
        called = " ".join([*words, *(argument(each) for each in given)])
        options = [
            min(each.opts, key=lambda name: not name.startswith("--"))
            for each in command.params
            if each.param_type_name == "option" and not each.hidden
        ]
        what = re.split(r"\n\n", command.help or "")[0].replace("\n", " ").replace("|", "\\|")
        rows.append(f"| `{called}` | {what} | {' '.join(f'`{name}`' for name in options)} |")
    return "\n".join(rows)


def commands(command: Any, words: list[str]) -> Iterator[tuple[list[str], Any]]:
    """The commands that do something, each with the words that call it."""
    inside = getattr(command, "commands", {})
    if not inside:
        yield words, command
    for name, each in inside.items():
        yield from commands(each, [*words, name])


def argument(given: Any) -> str:
    """An argument as help shows it."""
    name = str(given.metavar or given.name.upper()).replace("...", "…")
    name += "…" * (given.nargs == -1 and not name.endswith("…"))
    return name if given.required or name.startswith("[") else f"[{name}]"


def layouts() -> str:
    """Which layouts have passed where: what `ingot doctor --layouts --json` has written into benchmarks/layouts/."""
    records = [
        json.loads(file.read_text(encoding="utf-8")) for file in sorted((ROOT / "benchmarks/layouts").glob("*.json"))
    ]
    return layout_table({record["how"]: record["cases"] for record in records})


TABLES: dict[tuple[Path, str], Callable[[], str]] = {
    (ROOT / "README.md", "headlines"): headline_table,
    (DOCS / "benchmarks.md", "figures"): figure_table,
    (DOCS / "guides" / "chat-formats.md", "formats"): format_table,
    (DOCS / "parallel.md", "layouts"): layouts,
    (DOCS / "recipes.md", "stages"): stage_table,
    (DOCS / "rooms" / "cli.md", "commands"): command_table,
}


if __name__ == "__main__":
    sys.exit(main())
