"""The generated option reference: readable types, formulas with their lines, and a page that is up to date."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest

from ingot.model.config import BlockConfig, ModelConfig

TOOL = Path(__file__).parent.parent / "tools" / "reference.py"


@pytest.fixture(scope="module")
def reference() -> ModuleType:
    spec = importlib.util.spec_from_file_location("reference", TOOL)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_mapping_says_what_it_maps(reference: ModuleType) -> None:
    blocks = ModelConfig.model_fields["blocks"].annotation
    named = reference.type_name(blocks, lambda config: f"<{config.__name__}>")
    assert named == "mapping of str to <BlockConfig>"


def test_indented_lines_of_a_docstring_are_code(reference: ModuleType) -> None:
    first, table, last = reference.summary(BlockConfig).split("\n\n")
    assert first.endswith("residual rule:") and last.startswith("Either part")
    lines = table.split("\n")
    assert (lines[0], lines[-1], len(lines)) == ("```text", "```", 6)
    assert lines[1] == "pre            x + f(norm(x))"


def test_the_pages_are_what_the_classes_say(reference: ModuleType) -> None:
    on_disk = {path.name: path.read_text(encoding="utf-8") for path in reference.FOLDER.glob("*.md")}
    assert on_disk == reference.pages(), "run `make reference`"


def test_every_link_leads_to_a_table(reference: ModuleType) -> None:
    pages = reference.pages()
    headings = {
        name: {line[3:].lower() for line in text.splitlines() if line.startswith("## ")} for name, text in pages.items()
    }
    links = [
        (name, target or name, anchor)
        for name, text in pages.items()
        for target, anchor in re.findall(r"\]\(([a-z]*(?:\.md)?)#([a-z0-9]+)\)", text)
    ]
    assert len(links) > 300
    assert [link for link in links if link[2] not in headings[link[1]]] == []
