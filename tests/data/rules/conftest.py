"""Two thousand real documents: web pages, C4, encyclopaedia markup, HTML, specifications, textbooks, novels, 300 languages."""

from __future__ import annotations

import bz2
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

LONGEST = 2000  # characters: datatrove's own filters are what takes time here


@pytest.fixture(scope="session")
def real_documents(shared_data: Path, rows_of: Callable[[str], list[dict[str, Any]]]) -> list[str]:
    def texts(name: str, count: int, column: str = "text") -> list[str]:
        return [row[column] for row in rows_of(name)[:count]]

    with bz2.open(shared_data / "enwiki_sample" / "enwiki-articles-shortened.xml.bz2", "rt", encoding="utf-8") as dump:
        pages = re.findall(r"<text[^>]*>(.*?)</text>", dump.read(), re.DOTALL)
    documents = [
        *texts("dclm_human_quality/docs.jsonl.gz", 480),
        *texts("llamafactory_demo/c4_demo.jsonl.gz", 300),
        *texts("article_extraction_benchmark/pages_dev.jsonl.gz", 60, "html"),
        *texts("udhr/udhr.jsonl.gz", 300),
        *texts("peps/peps_half.jsonl.gz", 200),
        *texts("openstax/modules.jsonl.gz", 260),
        *texts("standard_ebooks/books.jsonl.gz", 200),
    ]
    documents += [page for page in pages if page][: 2000 - len(documents)]
    return [text[:LONGEST] for text in documents]
