"""Hostile text in every place of a report: markup, the end of the script, marks that turn the direction of writing, long lines.

The page has no way to make markup of a text (a rule on its scripts); its data cannot leave their element (the page as a parser
sees it); and a browser that draws it runs nothing, asks for nothing and keeps its title.
"""

from __future__ import annotations

import json
import re
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

from ingot.report.build import contents, page
from ingot.report.read import read_run

from .browsing import CHROMIUM, Open, overflow
from .test_build import Elements

MARKUP = (
    "</script></style><script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\"><b>bold</b>"
)
TURNED = "\u202egnp.\u2066\u202b\u200fabc"  # an override and two embeddings that are never closed
LINE = 1_000_000
STRUCTURE = {
    "name",
    "kind",
    "status",
    "stage",
    "metric",
    "folder",
    "inputs",
    "id",
    "task",
    "checkpoint",
    "role",
    "step",
}
"""Names by which parts of the data refer to each other, and words of ours."""


def poisoned(value: Any, key: str = "") -> Any:
    """The data with the hostile text behind every text of a user."""
    if isinstance(value, dict):
        return {name: poisoned(each, name) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [poisoned(each, key) for each in value]
    return f"{value} {MARKUP}{TURNED}" if isinstance(value, str) and key not in STRUCTURE else value


def texts_in(value: Any) -> int:
    if isinstance(value, dict | list):
        return sum(map(texts_in, value.values() if isinstance(value, dict) else value))
    return int(isinstance(value, str) and MARKUP in value)


@pytest.fixture(scope="module")
def data(finished_run: Path) -> dict[str, Any]:
    found: dict[str, Any] = poisoned(json.loads(json.dumps(contents(read_run(finished_run)), default=str)))
    found["name"] = f"run {MARKUP}{TURNED}"
    found["stages"][3]["error"] = f"{MARKUP} {'x' * LINE}"
    found["stages"][4]["config"] = f"{MARKUP}{TURNED}: {'y' * LINE}\n# {MARKUP}\n- {'z ' * (LINE // 2)}\n"
    return found


def test_no_text_makes_an_element_or_is_changed(data: dict[str, Any]) -> None:
    assert texts_in(data) > 500
    html = page(data)
    seen = Elements(html)
    assert [tag for tag, _ in seen.tags] == [tag for tag, _ in Elements(page({"name": "plain"})).tags]
    assert html.count("</script") == 2 and MARKUP not in html
    assert json.loads(seen.raw["script"][0]) == data


def test_no_script_of_a_page_makes_markup_of_a_text() -> None:
    """Nor runs one, nor gives one to an attribute that could."""
    forbidden = re.compile(
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|createContextualFragment|DOMParser|srcdoc|\beval\(|new Function"
        r"|javascript:|setAttribute\(\s*[\"'`]on|\bset(?:Timeout|Interval)\(\s*[\"'`]"
    )
    scripts = sorted((files("ingot") / "report" / "page").iterdir(), key=str)
    found = {each.name: each.read_text("utf-8") for each in scripts if each.name.endswith(".js")}
    assert len(found) > 20
    assert {name: forbidden.findall(text) for name, text in found.items() if forbidden.search(text)} == {}


@pytest.mark.browser
@pytest.mark.skipif(CHROMIUM is None, reason="needs Debian's chromium (apt-get install chromium)")
def test_a_browser_shows_it_as_text(data: dict[str, Any], open_page: Open, tmp_path: Path) -> None:
    """`open_page` fails for an exception, a message on the console or a request."""
    path = tmp_path / "report.html"
    path.write_text(page(data), encoding="utf-8")
    shown = open_page(path)
    for details in shown.locator("details").all():
        details.evaluate("each => { each.open = true }")
    shown.wait_for_timeout(100)
    assert "owned" not in shown.title().split("<script>")[0] and shown.title().startswith("run </script>")
    assert shown.locator("h1").inner_text().startswith("run </script></style><script>document.title='owned'")
    assert shown.evaluate("document.scripts.length") == 2
    assert shown.locator("main img, main b, main style").count() == 0
    assert overflow(shown) == 0
    # What a text does to the direction of writing ends with its element.
    every = "[...document.querySelectorAll('main :not(pre *, svg *, .token, .token *)')]"
    loose = f"{every}.filter(each => getComputedStyle(each).unicodeBidi === 'normal').length"
    assert shown.evaluate(loose) == 0
