"""Pages of docs/: a method page fits a screen and says what its tests compare with; files and commands on a page exist."""

from __future__ import annotations

import ast
import re
import runpy
from math import ceil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import typer

from benchmarks.figures import figures
from ingot.cli.app import app
from ingot.recipe.stages import STAGES

ROOT = Path(__file__).parent.parent
METHODS = sorted(page for page in (ROOT / "docs" / "methods").glob("*.md") if page.name != "index.md")
GENERATED = ("reference", "systems", "log")
WRITTEN = (page for page in (ROOT / "docs").rglob("*.md") if page.relative_to(ROOT / "docs").parts[0] not in GENERATED)
PAGES = [ROOT / "README.md", ROOT / "examples" / "README.md", *sorted(WRITTEN)]
ENDINGS = ["Checked against others", "Checked against ourselves"]
DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
MAX_WORDS, MAX_LINES, WIDTH = 450, 50, 110
FOLDERS = ("examples", "ingot", "tests", "benchmarks", "recipes", "tools", "docs")
PROGRAM: Any = typer.main.get_command(app)
TABLES = SimpleNamespace(**runpy.run_path(str(ROOT / "tools" / "tables.py")))


def texts(pages: list[Path]) -> dict[str, str]:
    """Pages by their names."""
    return {str(page.relative_to(ROOT)): page.read_text(encoding="utf-8") for page in pages}


def sections(text: str) -> dict[str, str]:
    """Headings of a page with the text below each; code blocks hold no headings."""
    found, title, inside = {"": ""}, "", False
    for line in text.splitlines():
        inside ^= line.lstrip().startswith("```")
        if line.startswith("#") and not inside:
            title = line.lstrip("#").strip()
            found[title] = ""
        else:
            found[title] += line + "\n"
    return found


def expand(name: str) -> list[str]:
    """`a/{b,c}.py` to both names."""
    if not (braces := re.search(r"\{([^{}]*)\}", name)):
        return [name]
    return [name[: braces.start()] + part + name[braces.end() :] for part in braces[1].split(",")]


def missing_files(text: str, *implied: Path) -> list[str]:
    """Names in backticks that look like files of the repository and are none.

    `keys.py` or `engine/work.py` must be below an implied folder, a folder that the page names, or beside a file that it names.
    """
    missing, relative, folders = [], [], set(implied)
    for quoted in re.findall(r"`([^`\s]+)`", text):
        for name in expand(quoted):
            if name.split("/")[0] in FOLDERS and "/" in name and not re.search(r"[A-Z<>=:]{2}|…", name):
                found = list(ROOT.glob(name.rstrip("/")))
                folders |= {path if path.is_dir() else path.parent for path in found}
                missing += [] if found else [name]
            elif re.fullmatch(r"[a-z0-9_*/]+\.py", name):
                relative.append(name)
    return missing + [name for name in relative if folders and not any(any(folder.rglob(name)) for folder in folders)]


def room(page: Path) -> list[Path]:
    """The folder that a page of rooms/ or of examples is about; the index of methods names files below ingot/."""
    if page.parent.name == "rooms":
        return [ROOT / "ingot" / page.stem, ROOT / "tests"]
    if page.parent == ROOT / "examples":
        return [page.parent]
    return [ROOT / "ingot"] if page.name == "index.md" else []


def code_lines(text: str) -> list[str]:
    """Lines of fenced blocks, and what stands in backticks elsewhere."""
    parts = text.split("```")
    fenced = [line for block in parts[1::2] for line in block.splitlines()[1:]]
    return fenced + [quoted for part in parts[::2] for quoted in re.findall(r"`([^`\n]+)`", part)]


def unknown_commands(text: str) -> list[str]:
    """Commands and options of `ingot` in code of a page that the program does not have."""
    unknown = []
    for line in code_lines(text):
        if not (called := re.match(r"(?:\$ )?(?:\S*/|.* -m )?ingot ([a-z-].*)", line)):
            continue
        words = re.split(r" (?:--|#|\||&&|<|>|…)(?= |$)", called[1])[0].split()
        command = PROGRAM
        while words and (inside := getattr(command, "commands", {})) and words[0] in inside:
            command, words = inside[words[0]], words[1:]
            words = command.named(words) if hasattr(command, "named") else words
        options = {"--help", "-h", *(name for each in command.params for name in each.opts + each.secondary_opts)}
        if (
            getattr(command, "commands", {})
            and words
            and not command.invoke_without_command
            and words[0] not in options
        ):
            unknown.append(line)
        unknown += [f"{line}: {word}" for word in words if word.startswith("-") and word.split("=")[0] not in options]
    return unknown


def test_a_method_page_ends_with_its_checks() -> None:
    for name, text in texts(METHODS).items():
        found = sections(text)
        assert list(found)[-2:] == ENDINGS, name
        assert [title for title in found if "check" in title.lower()][-2:] == ENDINGS, name
        assert all(found[title].strip() for title in ENDINGS), f"{name}: an empty section: say that there is nothing"


def test_a_method_page_fits_a_screen() -> None:
    sizes = {name: (words_of(text), lines_of(text)) for name, text in texts(METHODS).items()}
    assert {name: size for name, size in sizes.items() if size[0] > MAX_WORDS or size[1] > MAX_LINES} == {}


def words_of(text: str) -> int:
    return sum(any(sign.isalnum() for sign in word) for word in text.split())


def lines_of(text: str) -> int:
    return sum(ceil(len(line) / WIDTH) for line in text.splitlines() if line.strip())


def test_named_files_exist() -> None:
    missing = {name: missing_files(text, *room(ROOT / name)) for name, text in texts(PAGES).items()}
    assert {name: files for name, files in missing.items() if files} == {}


def test_a_missing_file_is_found() -> None:
    text = "`ingot/none.py`, `ingot/cli/`, `ingot/{cli,none}`, `tests/test_*.py`, `loop.py`, `app.py`, `FILE.py`, `run/R.yaml`"
    assert missing_files(text) == ["ingot/none.py", "ingot/none", "loop.py"]
    assert missing_files("`guards/rules.py`, `rules/guards.py`", ROOT / "ingot" / "train") == ["rules/guards.py"]


def defined(path: Path, name: str) -> bool:
    """Whether a file defines a function or class, or a class in it a method."""
    scope: list[ast.stmt] = ast.parse(path.read_text(encoding="utf-8")).body
    for part in name.split("."):
        found = (each for each in scope if isinstance(each, DEFINITIONS) and each.name == part)
        one = next(found, None)
        if one is None:
            return False
        scope = one.body
    return True


def test_named_files_of_the_drawings_define_what_they_name() -> None:
    """docs/read-me-first.md: each hop is a file and a function in it, and each drawing has some."""
    page = (ROOT / "docs" / "read-me-first.md").read_text(encoding="utf-8")
    assert not missing_files(page)
    drawings = [text for text in sections(page).values() if "▼" in text]
    hops = [re.findall(r"(ingot/[\w/]+\.py) +([\w.]*\w)", text) for text in drawings]
    assert len(hops) == 4 and all(len(each) >= 10 for each in hops)
    assert [(file, name) for each in hops for file, name in each if not defined(ROOT / file, name)] == []
    assert not defined(ROOT / "ingot" / "train" / "loop.py", "Trainer.no_such_method")


def test_commands_exist() -> None:
    unknown = {name: unknown_commands(text) for name, text in texts(PAGES).items()}
    assert {name: commands for name, commands in unknown.items() if commands} == {}


def test_tables_and_numbers_are_what_the_code_says() -> None:
    for page in TABLES.pages():
        assert TABLES.written(page) == page.read_text(encoding="utf-8"), "run `make reference`"
    assert TABLES.CHART.read_text(encoding="utf-8") == TABLES.chart(), "run `make reference`"


README = (ROOT / "README.md").read_text(encoding="utf-8").splitlines()


def test_the_readme_is_read_in_one_sitting() -> None:
    """At most 130 lines of at most 130 characters, cells of at most 15 words."""
    assert len(README) <= 130
    assert [line for line in README if len(line) > 130] == []
    cells = [cell for line in README if line.startswith("|") for cell in line.strip("|").split("|")]
    assert [cell for cell in cells if len(cell.split()) > 15] == []


def test_every_module_begins_with_a_docstring() -> None:
    modules = [path for folder in ("ingot", "tools", "benchmarks") for path in (ROOT / folder).rglob("*.py")]
    assert len(modules) > 900
    assert [path for path in modules if not ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))] == []


def test_a_figure_names_a_benchmark_and_the_code_that_it_is_of() -> None:
    for name, figure in figures().items():
        named = [figure.command.split()[0], *figure.code]
        assert not [path for path in named if not (ROOT / path).exists()], name
        assert figure.commit in (ROOT / "docs" / "benchmarks.md").read_text(encoding="utf-8"), name
        assert figure.headline is None or f"{figure.headline.ours:,g}" in figure.ours, name
        assert figure.headline is None or f"{figure.headline.theirs:,g}" in figure.peer, name


MEASURED = re.compile(r"\bH200\b|\b(x86|N1|CPU|quiet|busy) (cores?|threads?|time)\b")
SPEED = re.compile(r"\d ?(ms|µs|tokens/s|MB/s|GB/s|TB/s|GiB|MiB|TFLOP/s|% MFU)\b|times as fast")
DATED = re.compile(r"\d{4}-\d\d-\d\d, [0-9a-f]{8}\b")


def test_a_speed_has_its_date_and_commit() -> None:
    """A paragraph that says how fast something was on a machine says when, and of which code."""
    paragraphs = [(name, each) for name, text in texts(PAGES).items() for each in re.split(r"\n\s*\n", text)]
    speeds = [(name, each) for name, each in paragraphs if MEASURED.search(each) and SPEED.search(each)]
    assert [(name, each) for name, each in speeds if not DATED.search(each)] == []


def test_every_command_is_in_the_room_of_commands() -> None:
    """By a second way through the program than the tool's: typer's own registers."""
    page = (ROOT / "docs" / "rooms" / "cli.md").read_text(encoding="utf-8")
    called = {tuple(line.split("`")[1].split()[:3]) for line in page.splitlines() if line.startswith("| `ingot")}
    wanted: set[tuple[str, ...]] = {("ingot", word(each)) for each in app.registered_commands}
    groups = [group.typer_instance for group in app.registered_groups if group.typer_instance is not None]
    wanted |= {("ingot", str(one.info.name), word(each)) for one in groups for each in one.registered_commands}
    assert len(wanted) > 30 and not {words for words in wanted if not any(one[: len(words)] == words for one in called)}


def word(command: Any) -> str:
    """The word that calls a command."""
    return str(command.name or command.callback.__name__)


def test_every_operation_is_in_the_room_of_kernels() -> None:
    """Whatever has a definition, an allow-list or a kernel of its name."""
    page = (ROOT / "docs" / "rooms" / "kernels.md").read_text(encoding="utf-8")
    files = [path for path in (ROOT / "ingot" / "kernels").rglob("*.py") if not path.stem.endswith("_kernel")]
    operations = [
        str(path.relative_to(ROOT / "ingot" / "kernels"))
        for path in files
        if path.with_name(f"{path.stem}_kernel.py").exists()
        or re.search(r"^def (\w+_definition|kernel_allowed)\(", path.read_text(encoding="utf-8"), re.MULTILINE)
    ]
    operations.remove("launch.py")  # launch_kernel.py holds functions for kernels
    assert len(operations) > 15 and not [name for name in operations if f"`{name}`" not in page]


def test_every_stage_stands_in_its_room() -> None:
    """The table of rooms lists the kinds of stages, each where its code is."""
    page = (ROOT / "docs" / "rooms" / "index.md").read_text(encoding="utf-8")
    rows = [line.split("|") for line in page.splitlines() if line.startswith("| [") and line.count("|") == 4]
    found = {row[1].split("[")[1].split("]")[0]: re.findall(r"`(\w+)`", row[3]) for row in rows}
    homes: dict[str, list[str]] = {}
    for kind in STAGES.values():
        homes.setdefault(type(kind).__module__.split(".")[1], []).append(kind.kind)
    assert {name: kinds for name, kinds in found.items() if kinds} == homes


def test_an_unknown_command_is_found() -> None:
    text = (
        "`ingot run R --to sft`, `ingot walk`\n\n```\nbin/ingot model swim\ningot run R --fast --json  # --slow\n```\n"
    )
    assert unknown_commands(text) == [
        "bin/ingot model swim",
        "ingot run R --fast --json  # --slow: --fast",
        "ingot walk",
    ]
