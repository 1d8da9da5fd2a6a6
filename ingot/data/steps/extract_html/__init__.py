"""The step `extract_html` takes the main content out of HTML pages.

    method    F1 on 102 article pages   MB of HTML a CPU-second
    best      0.97                      42
    fast      0.91                      61    resiliparse
    precise   0.95                       5    trafilatura

`best` is described in content.py. The work on a page is bounded by its bytes, its depth (nesting.py) and a count of steps.
"""

from __future__ import annotations

import html
import re
import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import Any, Literal, NamedTuple

import numpy as np
import pyarrow
import pyarrow.compute as compute
from pydantic import Field, model_validator

from ingot.data.step import PerDocument, Rule
from ingot.data.steps.extract_html.content import Page, TooMuch
from ingot.data.steps.extract_html.nesting import depth_of
from ingot.data.text.texts import Texts
from ingot.workspace.errors import IngotError
from ingot.workspace.packages import install_extra

HTML_TYPES = ["text/html", "application/xhtml+xml"]

SCRIPTS = re.compile(r"<(script|style)\b.*?(?:</\1\s*>|\Z)|<!--.*?(?:-->|\Z)", re.IGNORECASE | re.DOTALL)
TAGS = re.compile(r"<[^<>]*>")
SPACES = re.compile(r"[^\S\n]+")
EMPTY_LINES = re.compile(r"\n[\s]*\n")


class TookTooLong(Exception):
    """A page took longer than it may."""


class Extracted(NamedTuple):
    """What was taken out of a page, and what was done otherwise than asked (or nothing)."""

    text: str
    title: str
    otherwise: str = ""


@contextmanager
def deadline(seconds: float) -> Iterator[None]:
    """Raise `TookTooLong` in the block after so many seconds. Only a process's main thread can be interrupted."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def ring(signal_number: int, frame: object) -> None:
        raise TookTooLong

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def raw_texts(texts: Texts) -> Iterator[bytes]:
    """The bytes of each text."""
    for row in range(len(texts)):
        yield texts.data[texts.offsets[row] : texts.offsets[row + 1]].tobytes()


def clean(text: str) -> str:
    """Without blank lines at the ends and white space at the ends of lines."""
    return "\n".join(line.rstrip() for line in text.strip().split("\n"))


def bare_text(page: str) -> str:
    """What is left of a page without its tags: for pages that no parser should see."""
    text = html.unescape(TAGS.sub(" ", SCRIPTS.sub(" ", page)))
    return clean(EMPTY_LINES.sub("\n", SPACES.sub(" ", text)))


def resiliparse() -> tuple[Any, Any]:
    """The HTML parser and the text writer of resiliparse, or how to get them."""
    try:
        from resiliparse.extract.html2text import extract_plain_text
        from resiliparse.parse.html import HTMLTree
    except ImportError:
        raise IngotError("the step `extract_html` needs resiliparse", fix=install_extra("data")) from None
    return HTMLTree, extract_plain_text


def trafilatura() -> Any:
    """The module trafilatura, or how to get it."""
    try:
        import trafilatura
    except ImportError as error:
        raise IngotError(f"`method: precise` needs trafilatura ({error})", fix=install_extra("data")) from None
    return trafilatura


class ExtractHtmlStep(PerDocument):
    """Take the main content out of HTML pages: without navigation, advertisements, comments and lists of links."""

    version = 2
    rate = 42  # of HTML

    where: dict[str, str | list[str]] = Field(
        default={"mime": HTML_TYPES}, description="the documents that are pages; the others pass untouched"
    )
    method: Literal["best", "fast", "precise"] = Field(
        default="best",
        description="`best`: paragraphs vote for the element that holds the article (content.py); `fast`: the main "
        "content of resiliparse; `precise`: trafilatura with `favor_precision`, as in FineWeb",
    )
    max_bytes: int = Field(default=4_000_000, gt=0, description="a longer page is cut here before it is parsed")
    max_depth: int = Field(
        default=512,
        gt=0,
        description="a page nested more deeply (browsers stop at 512) is not parsed: its tags are taken out and its text "
        "stays; parsers need time in the square of the depth",
    )
    seconds: float = Field(
        default=30.0, gt=0, description="`precise` only: a page that takes longer is read by the method `best`"
    )

    @model_validator(mode="after")
    def _has_a_clock(self) -> ExtractHtmlStep:
        if self.method != "precise":
            because = f"method: {self.method} is bounded by counting, not by a clock"
            self.refuse("seconds", because=because, instead="set method: precise")
        return self

    def reads(self) -> tuple[str, ...]:
        return (*super().reads(), "title")

    def writes(self) -> tuple[str, ...]:
        return ("text", "title", "_html_otherwise")

    @cached_property
    def modules(self) -> tuple[Any, Any, Any]:
        """Parser and text writer of resiliparse, and trafilatura where it is asked for."""
        return (*resiliparse(), trafilatura() if self.method == "precise" else None)

    def say(self) -> list[str]:
        _ = self.modules  # what is not installed is said before anything runs
        return []

    def annotate(self, documents: pyarrow.Table) -> dict[str, pyarrow.Array]:
        pages = [self.extract(text) for text in raw_texts(Texts.of(documents.column("text")))]
        return {
            "text": pyarrow.array([page.text for page in pages], pyarrow.large_string()),
            "title": pyarrow.array([page.title or None for page in pages], pyarrow.string()),
            "_html_otherwise": pyarrow.array([page.otherwise or None for page in pages], pyarrow.string()),
        }

    def decide(self, columns: pyarrow.Table) -> list[Rule]:
        sizes = compute.binary_length(columns.column("text")).to_numpy()
        return [Rule("no content", sizes == 0, limit="in the page")]

    def notes(self, columns: pyarrow.Table) -> Sequence[str | None]:
        found: list[str | None] = columns.column("_html_otherwise").to_pylist()
        return found

    def extract(self, raw: bytes) -> Extracted:
        """Text and title of a page, given as UTF-8."""
        cut = f"longer than {self.max_bytes:,} bytes, cut there" if len(raw) > self.max_bytes else ""
        found = self._extract(raw[: self.max_bytes])
        return found._replace(otherwise="; ".join(filter(None, (cut, found.otherwise))))

    def _extract(self, raw: bytes) -> Extracted:
        page = raw.decode("utf-8", "ignore")  # a cut may fall into a character
        if depth_of(np.frombuffer(raw, np.uint8)) > self.max_depth:
            return Extracted(bare_text(page), "", f"nested more than {self.max_depth} deep, only its tags taken out")
        parser, plain_text, precise = self.modules
        tree = parser.parse(page)
        title = " ".join((tree.title or "").split())
        otherwise = ""
        if precise is not None:
            try:
                with deadline(self.seconds):
                    text = precise.extract(page, favor_precision=True, include_comments=False)
                return Extracted(clean(text or ""), title)
            except TookTooLong:
                otherwise = f"longer than {self.seconds:g} s by `precise`, read by `best`"
        if self.method != "fast" and tree.body is not None:
            try:
                article = Page(tree).article()
            except TooMuch:
                article = None
                otherwise = "; ".join(filter(None, (otherwise, "too many elements for `best`, read by `fast`")))
            if article is not None:
                return Extracted(clean(plain_text(article, links=False, alt_texts=False)), title, otherwise)
            tree = parser.parse(page)  # the first one has lost elements
        text = plain_text(tree, main_content=True, links=False, alt_texts=False, comments=False)
        return Extracted(clean(text), title, otherwise)
