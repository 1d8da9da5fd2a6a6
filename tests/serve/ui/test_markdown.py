"""The page's Markdown against markdown-it, which was written by others: the same elements and the same words."""

from __future__ import annotations

from collections.abc import Callable
from html.parser import HTMLParser
from typing import Any

import pytest
from markdown_it import MarkdownIt

from tests.inference.fake_server import text
from tests.report.browsing import CHROMIUM
from tests.serve.ui.conftest import Script, say

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason="needs Debian's chromium (apt-get install chromium)"),
]
TEXTS = (
    "A paragraph\nof two lines.\n\nAnother with *emphasis*, **strength**, ***both***, `code` and ~~nothing~~.",
    "# One\n## Two\n### Three\n\nText right under\n# Four #",
    "- one\n- two\n  - inner\n  - inner too\n    - innermost\n- three\n\nAfter.",
    "1. first\n2. second\n   still second\n\n   a paragraph of it\n3. third",
    "5. five\n6. six",
    "* a\n* b\n\n1. c\n2. d",
    "```python\ndef f(x):\n    return x * 2  # **not bold**\n\n\nprint(f(2))\n```\nafter",
    "~~~\n``` inside\n~~~",
    "```\nnever closed\n",
    "> quoted *text*\n> more\n>\n> - item\n\nnot quoted",
    "| a | b |\n|---|:-:|\n| 1 | `x` |\n| **2** | y |\n\nend",
    "Above\n\n---\n\nBelow\n\n***",
    "[a link](https://example.com/x?y=1&z=2) and [another *one*](http://example.com).",
    "Escaped \\*stars\\* and snake_case_words and 5 * 6 * 7.",
    "- **Bold:** text\n- `code`: more\n\n  ```sh\n  ls -l\n  ```\n- last",
    "Line one\n- a list follows\n- at once",
    "1) one\n2) two",
    "``a ` b`` and `` `x` ``",
)


class Shape(HTMLParser):
    """Elements and words of a page, without what is ours: wrappers, captions, and paragraphs in list items."""

    def __init__(self, html: str, ours: bool) -> None:
        super().__init__()
        self.ours, self.events, self._open, self._skip = ours, list[str](), list[str](), 0
        self.feed(html)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        if tag in ("br", "hr"):
            self.events.append(tag)
            return
        self._skip += tag == "figcaption"
        self._open.append(tag)
        if self._hidden(tag):
            return
        if not self.ours and tag in ("h1", "h2", "h3"):
            tag = f"h{min(int(tag[1]) + 1, 4)}"  # the page's own heading is the first
        keep = {name: value for name, value in attributes if name in ("href", "start")}
        self.events.append(f"<{tag} {keep}>" if keep else f"<{tag}>")

    def handle_endtag(self, tag: str) -> None:
        if tag in ("br", "hr"):
            return
        assert self._open[-1] == tag
        if not self._hidden(tag):
            self.events.append("</>")
        self._open.pop()
        self._skip -= tag == "figcaption"

    def _hidden(self, tag: str) -> bool:
        return bool(self._skip) or tag in ("div", "figure") or (tag == "p" and "li" in self._open)

    def handle_data(self, data: str) -> None:
        if not self._skip and data.strip():
            words = data if "pre" in self._open else " ".join(data.split())
            if self.events and not self.events[-1].startswith("<") and self.events[-1] not in ("br", "hr"):
                self.events[-1] += words  # two text nodes that touch
            else:
                self.events.append(words.rstrip("\n"))


def test_answers_look_as_markdown_it_has_them(open_chat: Callable[..., Any], script: Script) -> None:
    reference = MarkdownIt("commonmark", {"breaks": True, "html": False}).enable(["table", "strikethrough"])
    script.say(*(text(*(source[at : at + 5] for at in range(0, len(source), 5))) for source in TEXTS))
    page = open_chat()
    ours, theirs = {}, {}
    for number, source in enumerate(TEXTS):
        say(page, f"Text {number}")
        html = page.locator(".turn.assistant > .markdown").last.evaluate("element => element.outerHTML")
        ours[source] = Shape(html, ours=True).events
        theirs[source] = Shape(reference.render(source), ours=False).events
    assert {source: (shape, theirs[source]) for source, shape in ours.items() if shape != theirs[source]} == {}


def test_a_product_is_no_emphasis(open_chat: Callable[..., Any], script: Script) -> None:
    """The one place where the page leaves CommonMark: 2*3*4 is not 2, an italic 3, and 4."""
    script.say(text("2*3*4 = 24 and f(x_1, x_2)"))
    page = open_chat()
    say(page, "Go")
    assert page.locator(".markdown").inner_html() == "<p>2*3*4 = 24 and f(x_1, x_2)</p>"


def test_a_long_hostile_answer_takes_no_time(open_chat: Callable[..., Any], script: Script) -> None:
    """Patterns that try every way to fail would stand still for minutes here."""
    parts = [
        "[" * 20_000,
        "*" * 20_000,
        "`" * 20_001,
        "_a" * 10_000,
        "> " * 5_000,
        "- " * 5_000,
        "|" * 20_000,
        "~~a" * 5_000,
    ]
    script.say(text("\n\n".join(parts)))
    page = open_chat()
    say(page, "Go")
    assert "[[[[" in page.locator(".markdown").last.inner_text()
