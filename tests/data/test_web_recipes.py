"""The recipes of published web data on the made-up crawl: each fault is found by the step that it was made for.

Filters, masks and cuts equal datatrove's and brute force; at full size the recipes are planned.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import fsspec
import pyarrow.parquet
import pytest

from ingot.data.config import CurateConfig
from ingot.data.plan import make_plan
from ingot.recipe.flow import run_recipe
from ingot.recipe.graph import hash_stages
from ingot.recipe.load import load_recipe
from ingot.recipe.recipe import Recipe
from ingot.workspace.errors import DataError
from ingot.workspace.outside import load_outside
from tests.data.dedup_substring.oracle import deduplicated
from tests.data.rules.datatrove_filters import decisions

RECIPES = Path(__file__).parents[2] / "recipes" / "data"
NAMES = ("fineweb", "dclm", "olmo3-web", "c4")
ADDRESS = {"listed-host": "listed url", "winning-casino-bonus": "listed url", "free-poker": "soft words in the url"}

REMOVED = {  # by recipe and page: the step and the rule that it was made for, or the one that comes before that here
    "fineweb": {
        **{name: ("url_filter", rule) for name, rule in ADDRESS.items()},
        "spanish": ("language", "language"),
        "short": ("gopher_repetition", "characters in the most frequent 3-gram"),
        "again": ("c4", "sentences"),  # Trafilatura leaves one of equal paragraphs
        "placeholder": ("c4", "lorem ipsum"),
        "verse": ("fineweb", "lines ending in punctuation"),
        "copy-first": ("near_dedup", "near duplicate of another document"),
        "near-old": ("near_dedup", "near duplicate of another document"),
    },
    "dclm": {
        **{name: ("url_filter", rule) for name, rule in ADDRESS.items()},
        "spanish": ("language", "language"),
        "short": ("gopher_quality", "words"),
        "again": ("gopher_repetition", "duplicate paragraphs"),
        "shouting": ("LineModifiersStep", "words in removed lines"),
        "copy-again": ("exact_dedup", "same text as another document"),
        "near-new": ("exact_dedup 2", "share of repeated paragraphs"),
        "advert": ("classify", "quality"),
    },
    "olmo3-web": {
        **{name: ("url_filter", rule) for name, rule in ADDRESS.items()},
        "spanish": ("gopher_quality", "stop words"),  # before the language is looked at
        "short": ("length", "characters"),
        "again": ("gopher_repetition", "duplicate paragraphs"),
        "shouting": ("LineModifiersStep", "words in removed lines"),
        "downloads": ("MadladStep", "questionable sentences"),
        "copy-again": ("exact_dedup", "same text as another document"),
        "near-old": ("near_dedup", "near duplicate of another document"),  # the newest stays
        "leak": ("decon", "holds an eval:"),
    },
    "c4": {
        "spanish": ("language", "language"),
        "short": ("c4", "sentences"),
        "verse": ("c4", "sentences"),  # few of its lines have three words
        "placeholder": ("c4", "lorem ipsum"),
        "advert": ("bad_words", "bad words"),
        "copy-again": ("exact_dedup", "share of repeated lines"),
    },
}


@pytest.fixture(scope="module")
def crawl(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A working directory with the pages, and all runs of this file."""
    folder = tmp_path_factory.mktemp("crawl")
    load_outside(f"{RECIPES}/pages.py:main")(folder / "pages")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        yield folder


def page_names() -> dict[str, str]:
    """The pages' names by the ids of their documents."""
    identity = load_outside(f"{RECIPES}/pages.py:identity")
    return {identity(name): name for name in load_outside(f"{RECIPES}/pages.py:pages")()}


def loaded(name: str, *changes: str) -> Recipe:
    return load_recipe(RECIPES / f"{name}.yaml", ["curate.workers=1", *changes])


def finished(name: str, *changes: str) -> Path:
    """The stage's folder after a run; runs of the same steps share what they have computed."""
    return run_recipe(loaded(name, *changes), Path("runs")).stages[0].folder


def rows_of(folder: Path, what: str) -> list[dict[str, Any]]:
    return [
        row for path in sorted((folder / what).glob("part-*")) for row in pyarrow.parquet.read_table(path).to_pylist()
    ]


def funnel(folder: Path) -> dict[str, dict[str, Any]]:
    return {row["step"]: row for row in json.loads((folder / "documents" / "funnel.json").read_text())}


@pytest.mark.parametrize("name", NAMES)
def test_each_fault_is_found_by_its_step(crawl: Path, name: str) -> None:
    folder, names = finished(name), page_names()
    removed = {names[row["id"]]: (row["step"], row["rule"]) for row in rows_of(folder, "removed")}
    assert {page: found for page, found in removed.items() if found[0] != "upsample"} == REMOVED[name]
    kept = {names[row["id"]]: row for row in rows_of(folder, "documents")}
    assert not kept.keys() & removed.keys() and len(kept) + len(removed) == len(names) == 37
    steps = [*funnel(folder).values()][1:]
    assert all(after["documents_in"] == before["documents_out"] for before, after in pairwise(steps))
    assert steps[-1]["bytes_out"] == sum(len(row["text"].encode()) for row in kept.values())
    if name == "olmo3-web":  # the lower two fifths of the tokens of a topic are not shown, the best up to seven times
        assert {row["topic"] for row in kept.values()} == {"gardens", "bridges", "kitchens"}
        assert all(1 <= row["copies"] <= 7 for row in kept.values())
        assert all(row["quality_bucket"] >= 7 for row in kept.values())


def test_code_of_this_package(crawl: Path) -> None:
    """recipes/data/stack.yaml: files under a copyleft licence, generated and minified ones go."""
    code = crawl / "code"
    source = Path(__file__).parents[2] / "ingot" / "workspace"
    texts = {
        path.name: path.read_text(encoding="utf-8")
        for path in sorted(source.glob("*.py"))
        if path.stat().st_size > 1000
    }
    texts["copyleft.py"] = f"# SPDX-License-Identifier: GPL-3.0-only\n{texts['files.py']}"
    texts["generated.py"] = f"# Generated by a tool. DO NOT EDIT.\n{texts['errors.py']}"
    texts["minified.js"] = "function f(a){return a+1};" * 200
    code.mkdir()
    for name, text in texts.items():
        (code / name).write_text(text, encoding="utf-8")
    folder = finished("stack")
    removed = {
        Path(row["id"]).name.rpartition(":")[2]: (row["step"], row["rule"]) for row in rows_of(folder, "removed")
    }
    assert removed == {
        "copyleft.py": ("licence", "licence"),
        "generated.py": ("code_rules", "generated file"),
        "minified.js": ("code_rules", "longest line"),
    }
    kept = rows_of(folder, "documents")
    assert {row["code_language"] for row in kept} == {"Python"} and len(kept) == len(texts) - 3


def datatrove_funnel(monkeypatch: pytest.MonkeyPatch, texts: list[str]) -> tuple[list[tuple[int, int]], list[str]]:
    """Documents and bytes after each of datatrove's filters in FineWeb's order, and the texts that are left."""
    sizes = []
    for module, name, options in (
        ("gopher_repetition_filter", "GopherRepetitionFilter", {}),
        ("gopher_quality_filter", "GopherQualityFilter", {}),
        ("c4_filters", "C4QualityFilter", {"filter_no_terminal_punct": False}),
        ("fineweb_quality_filter", "FineWebQualityFilter", {}),
    ):
        found = decisions(monkeypatch, module, name, texts, **options)
        texts = [text for reason, text in found if reason is None]
        sizes.append((len(texts), sum(len(text.encode()) for text in texts)))
    return sizes, texts


FILTERS = ("gopher_repetition", "gopher_quality", "c4", "fineweb")


def assert_equal_to_datatrove(monkeypatch: pytest.MonkeyPatch, *changes: str) -> list[tuple[int, int]]:
    recipe = loaded("fineweb", *changes)
    steps = recipe.stages[0].config.model_dump(mode="json")["steps"]
    before = finished("fineweb", *changes, f"curate.steps={json.dumps(steps[:3])}")
    texts = [row["text"] for row in rows_of(before, "documents")]
    expected, left = datatrove_funnel(monkeypatch, texts)
    rows = funnel(finished("fineweb", *changes))
    assert [(rows[step]["documents_out"], rows[step]["bytes_out"]) for step in FILTERS] == expected
    formatters = pytest.importorskip("datatrove.pipeline.formatters")
    masked = {formatters.PIIFormatter().format(text) for text in left}
    assert {row["text"] for row in rows_of(finished("fineweb", *changes), "documents")} <= masked
    return expected


def test_fineweb_equals_datatrove(crawl: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Documents and bytes after each filter, and what personal data became; MinHash only takes whole documents away."""
    expected = assert_equal_to_datatrove(monkeypatch)
    assert [documents for documents, _ in expected] == [32, 32, 30, 29]


def test_fineweb_equals_datatrove_on_real_pages(
    crawl: Path, monkeypatch: pytest.MonkeyPatch, rows_of: Callable[[str], list[dict[str, Any]]]
) -> None:
    real = crawl / "real"
    real.mkdir()
    for number, row in enumerate(rows_of("article_extraction_benchmark/pages_dev.jsonl.gz")[:20]):
        (real / f"{number:02d}.html").write_text(row["html"], encoding="utf-8")
    expected = assert_equal_to_datatrove(monkeypatch, f"curate.sources.0.files={real}")
    assert 5 < expected[-1][0] < 20


def test_repeated_passages_equal_brute_force(crawl: Path) -> None:
    """Olmo 3's substrings: the archive's notice of 571 bytes stays in the first of three pages."""
    steps = loaded("olmo3-web").stages[0].config.model_dump(mode="json")["steps"]
    before, after = (
        {
            row["id"]: row["text"]
            for row in rows_of(finished("olmo3-web", f"curate.steps={json.dumps(steps[:count])}"), "documents")
        }
        for count in (12, 13)
    )
    expected = deduplicated(list(before.values()), 500, True, 0.95)
    assert [after[name] for name in before] == expected
    names = page_names()
    notice = load_outside(f"{RECIPES}/pages.py:BOILERPLATE")
    assert [names[name] for name, text in before.items() if notice in text] == [
        f"boilerplate-{number}" for number in range(3)
    ]
    assert [names[name] for name, text in after.items() if notice in text] == ["boilerplate-0"]


@pytest.mark.parametrize("name", NAMES)
def test_planned_at_full_size(crawl: Path, name: str) -> None:
    """The same recipe with other sources: a crawl of 2,000 files on a remote file system, a cluster for an engine."""
    remote = fsspec.filesystem("memory")
    for number in range(2000):
        remote.pipe_file(f"/crawl/segments/{number % 100:02d}/warc/{number:05d}.warc.gz", b"0" * 1000)
    try:
        recipe = loaded(name, "curate.sources.0.files=memory://crawl/segments/*/warc/*.warc.gz", "curate.engine=ray")
        assert hash_stages(recipe) != hash_stages(loaded(name))
        config = recipe.stages[0].config
        assert isinstance(config, CurateConfig)
        plan = make_plan(config)
    finally:
        remote.rm("/crawl", recursive=True)
    assert (plan.sources[0].files, plan.sources[0].files_taken, plan.engine) == (2000, 2000, "ray")
    assert len(plan.steps) == len(config.steps) + 1 and plan.disk_bytes > plan.bytes > 0
    assert plan.seconds == pytest.approx(sum(step.seconds or 0 for step in plan.steps) / plan.workers)


def test_a_file_system_that_is_not_installed() -> None:
    from ingot.data.read.find import find

    with pytest.raises(DataError, match=r"oss://.*cannot be opened.*\n.*fix: .*pip install.* ossfs"):
        find("oss://bucket/x.jsonl", "sources: web")
