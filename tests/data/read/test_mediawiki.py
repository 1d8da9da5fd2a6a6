"""MediaWiki dumps: pages against xml.etree on the whole file, and wikitext by hand."""

from __future__ import annotations

import bz2
import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from ingot.data.read.config import FilesSource
from ingot.data.read.mediawiki import plain_text
from tests.data.read.reading import read_all, texts

SAMPLE = "enwiki_sample/enwiki-articles-shortened.xml.bz2"
NAMESPACE = "{http://www.mediawiki.org/xml/export-0.10/}"


@pytest.fixture(scope="module")
def dump(shared_data: Path) -> bytes:
    return bz2.decompress((shared_data / SAMPLE).read_bytes())


def test_the_sample_dump(shared_data: Path, dump: bytes) -> None:
    articles, others, redirects = {}, 0, 0
    for page in ElementTree.fromstring(dump).iter(f"{NAMESPACE}page"):
        if page.findtext(f"{NAMESPACE}ns") != "0":
            others += 1
        elif page.find(f"{NAMESPACE}redirect") is not None:
            redirects += 1
        else:
            text = page.findtext(f"{NAMESPACE}revision/{NAMESPACE}text") or ""
            articles[page.findtext(f"{NAMESPACE}title")] = text
    table, problems = read_all(FilesSource(files=str(shared_data / SAMPLE), name="wiki"))
    assert table.column("title").to_pylist() == list(articles)
    assert problems.dropped == {"redirect": redirects, "other namespace": others}
    assert (len(articles), redirects, others) == (106, 99, 1)
    for title, text in zip(articles, texts(table), strict=True):
        assert not re.search(r"\{\{|\}\}|\[\[|\]\]|<ref|\{\||'''|</?(?:div|span|small)\b", text), title
        words = set(re.findall(r"[a-z]{4,}", text.lower()))
        known = re.sub(r"\[\[|\]\]|''+", "", articles[title]).lower()  # [[taxi]]s is one word
        assert len(words & set(re.findall(r"[a-z]{4,}", known))) > 0.99 * len(words), title
        assert len(text) < len(articles[title]), title
    assert 0.4 < sum(map(len, texts(table))) / sum(map(len, articles.values())) < 0.6  # the rest is markup and tables


def test_ranges_give_the_same_articles(tmp_path: Path, dump: bytes) -> None:
    (tmp_path / "a.xml").write_bytes(dump[:2_000_000])
    source = FilesSource(files=str(tmp_path), name="wiki")
    whole, problems = read_all(source)
    parts, part_problems = read_all(source, split_bytes=100_000)
    assert len(whole) > 20
    assert parts.combine_chunks() == whole.combine_chunks()
    assert part_problems.dropped == problems.dropped
    assert problems.dropped["truncated"] == 1


def test_a_broken_page_costs_itself_only(tmp_path: Path) -> None:
    page = "<page><title>T{0}</title><ns>0</ns><id>{0}</id><revision><text>Text {0}.</text></revision></page>\n"
    pages = [page.format(number) for number in range(5)]
    pages[2] = pages[2].replace("Text 2", "Text & 2")
    pages[3] = pages[3].replace("Text 3", "x" * 5000)
    (tmp_path / "a.xml").write_text("<mediawiki>" + "".join(pages) + "</mediawiki>")
    table, problems = read_all(FilesSource(files=str(tmp_path), name="s", max_document_bytes=1000))
    assert [(row["id"], row["title"], row["text"]) for row in table.to_pylist()] == [
        (f"s:{number}", f"T{number}", f"Text {number}.") for number in (0, 1, 4)
    ]
    assert problems.dropped == {"not XML": 1, "too long": 1}
    cut = bz2.compress(("<mediawiki>" + "".join(page.format(n) for n in range(9))).encode())
    (tmp_path / "b.xml.bz2").write_bytes(cut[:-30])
    assert read_all(FilesSource(files=str(tmp_path / "b.xml.bz2")))[1].dropped == {"truncated": 1}


@pytest.mark.parametrize(
    ("wikitext", "plain"),
    [
        ("'''Bold''' and ''italic''.", "Bold and italic."),
        ("A [[link]], [[page|text]], [[:Category:X|shown]], [[de:Seite]].", "A link, text, shown, ."),
        ("[[File:a.jpg|thumb|A [[caption]] here]]Text", "Text"),
        ("Text[[Category:Things]]", "Text"),
        ("See [http://x.y the site] and [http://z].", "See the site and ."),
        ("One{{cite|a={{b|c}}}} two", "One two"),
        ("{{Infobox\n| a = b\n}}\nText", "Text"),
        ("Before\n{| class=x\n|-\n| a\n{|\n| b\n|}\n|}\nAfter", "Before\n\nAfter"),
        ('Fact.<ref name="a">Source [[x]]</ref> More.<ref name=a /> End.', "Fact. More. End."),
        ("a<!-- hidden\n -->b", "ab"),
        ("== History ==\nText\n=== Early ===\nMore", "History\nText\nEarly\nMore"),
        ("Text\n== See also ==\n* [[x]]\n=== y ===\nz\n== After ==\nkept", "Text\nAfter\nkept"),
        ("== A ==\n=== B ===\n{|\n|}\n=== C ===\ntext\n== D ==\n", "A\nC\ntext"),
        ("x&nbsp;y &amp;ndash; z", "x y – z"),
        ("Born ({{lang|x}}) in 1900", "Born in 1900"),
        ("{{never closed\nsame\n\nnext paragraph", "next paragraph"),
        ("a }} b ]] c", "a }} b  c"),
        ("<math>x</math>Text<br/>more<sup>2</sup>", "Textmore2"),
        ("__NOTOC__Text", "Text"),
    ],
)
def test_wikitext(wikitext: str, plain: str) -> None:
    assert plain_text(wikitext) == plain
