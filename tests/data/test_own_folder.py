"""A folder of one's own with files of every kind: pages come through as text, and what is not read is named."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ingot.cli.new import TEMPLATE
from ingot.data.config import CurateConfig
from ingot.data.curate import run
from ingot.data.plan import make_plan
from ingot.recipe.load import load_recipe
from ingot.workspace.errors import DataError
from ingot.workspace.files import read_json, write_jsonl
from ingot.workspace.stage import StageFolder
from tests.making.stages import Listener

from .dirty import article
from .test_curate import documents_of, stage_at

RECIPES = Path(__file__).parents[2] / "recipes"
TEXTS = {name: article(number) for number, name in enumerate("abcdefgh")}


def page(name: str) -> str:
    paragraphs = "".join(f"<p class='body text-block'>{sentence}.</p>" for sentence in TEXTS[name].split(". "))
    menu = "".join(f"<li><a href='/{n}' class='navigation-link'>Menu {n}</a></li>" for n in range(9))
    return (
        f"<!DOCTYPE html><html><head><title>Page {name}</title></head><body><nav>{menu}</nav>{paragraphs}</body></html>"
    )


def warc_record(kind: str, content: bytes, number: int) -> bytes:
    head = f"WARC/1.0\r\nWARC-Type: {kind}\r\nWARC-Record-ID: <urn:uuid:{number}>\r\nContent-Type: text/plain\r\n"
    return f"{head}Content-Length: {len(content)}\r\n\r\n".encode() + content + b"\r\n\r\n"


@pytest.fixture
def own(tmp_path: Path) -> Path:
    folder = tmp_path / "own"
    (folder / "papers").mkdir(parents=True)
    (folder / "a.html").write_text(page("a"))
    (folder / "b.htm").write_text(page("b"))
    (folder / "c.md").write_text(TEXTS["c"])
    (folder / "d.txt").write_text(TEXTS["d"])
    write_jsonl(folder / "rows.jsonl", [{"id": "e", "text": TEXTS["e"], "title": "Its own title"}])
    response = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n" + page("f").encode()
    records = [warc_record("response", response, 6), warc_record("conversion", TEXTS["g"].encode(), 7)]
    (folder / "crawl.warc").write_bytes(b"".join(records))
    (folder / "papers/one.pdf").write_bytes(b"%PDF-1.7" + bytes(992))
    (folder / "papers/two.PDF").write_bytes(b"%PDF-1.7" + bytes(1992))
    (folder / "program").write_bytes(b"\x7fELF" + bytes(96))
    return folder


def curated(own: Path, **options: Any) -> tuple[dict[str, dict[str, Any]], StageFolder, Listener]:
    recorder = Listener()
    folder = stage_at(own.parent / "stage", recorder)
    run(CurateConfig(sources=[{"files": str(own), "name": "own"}], workers=1, **options), {}, folder)
    return {row["id"]: row for row in documents_of(folder)}, folder, recorder


def words(text: str) -> list[str]:
    return text.replace(".", " ").split()


def test_default_steps_take_the_text_out_of_pages_once(own: Path) -> None:
    rows, folder, _ = curated(own)
    ids = {"a": "own:a.html", "b": "own:b.htm", "c": "own:c.md", "d": "own:d.txt", "e": "e", "f": "6", "g": "7"}
    assert set(rows) == set(ids.values())
    for name, each in ids.items():
        assert words(rows[each]["text"]) == words(TEXTS[name])
    for name in "cdeg":
        assert rows[ids[name]]["text"] == TEXTS[name], "what is no page is not touched"
    titles = [rows[ids[name]]["title"] for name in "abcef"]
    assert titles == ["Page a", "Page b", None, "Its own title", "Page f"]
    steps = [row["step"] for row in read_json(folder.path / "documents/funnel.json")]
    assert steps[:3] == ["select", "read", "extract_html"]


def test_files_of_other_kinds_have_a_row_in_the_funnel(own: Path) -> None:
    _, folder, recorder = curated(own)
    select, read = read_json(folder.path / "documents/funnel.json")[:2]
    assert select["reasons"] == {
        ".pdf is not read (3,000 bytes), as own:papers/one.pdf": 2,
        "a name without a suffix is not read (100 bytes), as own:program": 1,
    }
    assert (select["documents_in"], select["documents_out"], read["documents_in"]) == (9, 6, 6)
    assert select["bytes_in"] - select["bytes_out"] == 1000 + 2000 + 100
    assert "2 x .pdf is not read (3,000 bytes), as own:papers/one.pdf" in recorder.lines
    lines = make_plan(CurateConfig(sources=[{"files": str(own), "name": "own"}])).lines()
    assert "  .pdf is not read: 2 (3,000 bytes), as papers/one.pdf" in lines


def test_pages_that_keep_their_tags_are_said(own: Path) -> None:
    rows, _, recorder = curated(own, steps=[{"step": "exact_dedup"}])
    assert rows["own:a.html"]["text"] == page("a")
    [line] = [line for line in recorder.lines if "HTML" in line]
    assert line.startswith("3 HTML pages go on with their tags: `- step: extract_html`")
    for path in (own / "a.html", own / "b.htm", own / "crawl.warc"):
        path.unlink()
    assert not any("HTML" in line for line in curated_again(own))


def curated_again(own: Path) -> list[str]:
    recorder = Listener()
    config = CurateConfig(sources=[{"files": str(own)}], workers=1, steps=[{"step": "exact_dedup"}])
    run(config, {}, stage_at(own.parent / "again" / "stage", recorder))
    return recorder.lines


def test_nothing_that_can_be_read(own: Path) -> None:
    with pytest.raises(DataError, match=r"no file that can be read among those that match \(2 x \.pdf\)"):
        make_plan(CurateConfig(sources=[{"files": str(own / "papers")}]))


@pytest.mark.parametrize("recipe", [RECIPES / "own-text.yaml", TEMPLATE / "recipe.yaml"], ids=["own-text", "new"])
def test_recipes_for_texts_of_ones_own_take_the_text_out_of_pages(recipe: Path) -> None:
    [curate] = [stage for stage in load_recipe(recipe).stages if stage.kind == "curate"]
    assert curate.config.model_dump()["steps"][0]["step"] == "extract_html"
