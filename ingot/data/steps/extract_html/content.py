"""Finds the main content of a page: paragraphs vote for the element that holds the article.

1. Scripts, styles, navigation and the like go. Elements whose class says that they are not the article
   (`class="related-links"`) go too, unless they hold more than `GUARD` of the page's paragraph text: then the name is wrong.
2. A paragraph is a <p>, <pre> or <blockquote>, or an element whose lines are cut by <br>. It counts with its length
   without links, times the square root of all paragraph text in the same parent. Teasers stand alone in
   their boxes, paragraphs of an article in a row; a paragraph inside a link counts nothing.
3. The article is the smallest element that holds `SHARE` of the votes, and it grows while an element around it adds
   mostly paragraphs (`GROWTH`).
4. In it, blocks that are mostly links (`LINKS`) go. What is left is written out by resiliparse.

A page with hardly any paragraphs (a gallery, a table, a forum) is left to resiliparse's own rules.
The idea of voting paragraphs is Readability's (Arc90 2009); the tree is lexbor's, through resiliparse, and all searching
in it happens there: Python sees some hundred elements a page.
"""

from __future__ import annotations

from typing import Any

GUARD = 0.5
MIN_GUARDED = 500  # characters: a footer may be all the paragraphs that an index has
SHARE = 0.8
GROWTH = 0.5
LINKS = 0.5
MIN_PARAGRAPH = 40  # characters without links
MIN_ARTICLE = 200  # characters in all paragraphs
MAX_STEPS = 300_000  # elements looked at in one page: more than any real page has, and a bound for made-up ones

DROPPED = (
    "script,style,noscript,template,svg,iframe,button,select,figure,figcaption,nav,aside,footer,[role=navigation],"
    "[role=complementary],[role=dialog],[hidden],[aria-hidden='true' i]"
)

OTHER_NAMES = (
    "comment", "disqus", "related", "recommend", "share", "sharing", "social", "sidebar",
    "newsletter", "subscri", "promo", "advert", "sponsor", "footer", "breadcrumb", "cookie",
    "popup", "modal", "tags", "bio", "byline", "caption", "most-read", "mostread",
    "popular", "trending", "taboola", "outbrain", "signup", "sign-up", "more-from", "readmore",
    "widget", "copyright", "navigation", "menu", "login", "toolbar", "rating", "pagination",
    "pager",
)  # fmt: skip
SUSPECTS = ",".join(
    ["form,[style*='display:none' i],[style*='display: none' i]", *(f"[class*='{name}' i]" for name in OTHER_NAMES)]
)  # no ids: those of sections are made from their headings, and a heading may be about sharing
NEVER_REMOVED = frozenset({"html", "body", "article", "main", "p"})
INLINE = frozenset({"a", "b", "i", "u", "em", "strong", "span", "font", "small", "code"})
PARAGRAPHS = frozenset({"p", "pre", "blockquote"})
BLOCKS = "ul,ol,dl,table,section,div"


def held_by(element: Any, votes: list[tuple[int, list[Any]]]) -> int:
    """Characters in the paragraphs inside of an element."""
    return sum(length for length, chain in votes if element in chain)


class TooMuch(Exception):
    """The page has more nested elements than a real page has."""


class Page:
    """A parsed page and the votes of its paragraphs."""

    def __init__(self, tree: Any) -> None:
        self.tree = tree
        self.body = tree.body
        self.steps = 0

    def article(self) -> str | None:
        """The HTML of the main content, or None if the page has hardly any paragraphs."""
        for element in self.body.query_selector_all(DROPPED):
            self.remove(element)
        votes = self.paragraphs()
        total = sum(length for length, _ in votes)
        if total < MIN_ARTICLE:
            return None
        inside: dict[Any, int] = {}
        for length, chain in votes:
            for element in chain:
                inside[element] = inside.get(element, 0) + length
        gone = set()
        for element in self.body.query_selector_all(SUSPECTS):
            if inside.get(element, 0) <= max(GUARD * total, MIN_GUARDED) and self.remove(element):
                gone.add(element)
        votes = [(length, chain) for length, chain in votes if gone.isdisjoint(chain)]
        if sum(length for length, _ in votes) < MIN_ARTICLE:
            return None
        best = self.winner(votes)
        for block in best.query_selector_all(BLOCKS):
            size = len(block.text.strip())
            if size and block != best and self.link_characters(block) > LINKS * size:
                self.remove(block)
        return str(best.html)

    def paragraphs(self) -> list[tuple[int, list[Any]]]:
        """Length without links, and the elements from the paragraph up to the body, of every paragraph."""
        found = []
        for paragraph in self.body.query_selector_all("p,pre,blockquote"):
            length = len(paragraph.text.strip())
            if length >= MIN_PARAGRAPH:
                length -= self.link_characters(paragraph)
            if length >= MIN_PARAGRAPH:
                found.append((length, paragraph))
        broken = set()
        for line_break in self.body.query_selector_all("br"):
            parent = line_break.parent
            while parent is not None and parent.tag in INLINE:
                parent = parent.parent
            if parent is None or parent in broken or parent.tag in PARAGRAPHS or parent.tag == "body":
                continue
            broken.add(parent)
            children = parent.child_nodes
            self.step(len(children))
            length = sum(len(child.text.strip()) for child in children if child.tag in INLINE or child.tag == "#text")
            if length >= 2 * MIN_PARAGRAPH:
                found.append((length, parent))
        return [(length, chain) for length, element in found if (chain := self.chain(element))]

    def chain(self, element: Any) -> list[Any]:
        """The element and those around it, up to the body; empty if one of them is a link."""
        chain = [element]
        around = element.parent
        while around is not None and around.tag != "body":
            if around.tag == "a":
                return []
            chain.append(around)
            around = around.parent
        self.step(len(chain))
        return chain if around is not None else []

    def winner(self, votes: list[tuple[int, list[Any]]]) -> Any:
        """The smallest element that holds `SHARE` of the votes."""
        siblings: dict[Any, int] = {}
        for length, chain in votes:
            parent = chain[1] if len(chain) > 1 else None
            siblings[parent] = siblings.get(parent, 0) + length
        total = 0.0
        held: dict[Any, float] = {}
        for length, chain in votes:
            vote = length * siblings[chain[1] if len(chain) > 1 else None] ** 0.5
            total += vote
            for element in chain:
                if element.tag != "p" and element.tag != "pre":
                    held[element] = held.get(element, 0.0) + vote
        large = [element for element, vote in held.items() if vote >= SHARE * total]
        return self.grown(min(large, key=lambda element: len(element.text), default=self.body), votes)

    def grown(self, best: Any, votes: list[tuple[int, list[Any]]]) -> Any:
        """The element, or one around it if what that adds is mostly paragraphs: the other sections of a long text."""
        element, size, held = best, len(best.text), held_by(best, votes)
        while element.tag != "body" and element.parent is not None and element.parent.tag != "body":
            element = element.parent
            size_around, held_around = len(element.text), held_by(element, votes)
            if held_around - held < GROWTH * (size_around - size):
                break
            if held_around > held:
                best = element
            size, held = size_around, held_around
        return best

    def link_characters(self, element: Any) -> int:
        """Characters of the element's text that are links."""
        links = element.query_selector_all("a")
        self.step(len(links))
        return sum(len(link.text.strip()) for link in links)

    def remove(self, element: Any) -> bool:
        """Take an element out of the tree; False if it has no parent."""
        parent = element.parent
        if parent is None or element.tag in NEVER_REMOVED:
            return False
        parent.remove_child(element)
        return True

    def step(self, count: int) -> None:
        """Count work, so that a made-up page cannot take forever. Not a clock: results must not depend on one."""
        self.steps += 1 + count
        if self.steps > MAX_STEPS:
            raise TooMuch
