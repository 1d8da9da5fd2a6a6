"""Wikitext to plain text: what a reader of the article sees as prose.

    removed    comments, references, galleries, maths and other tags with their content; templates {{…}}, tables {|…|},
               files, images, categories and links to other languages; magic words (__TOC__), behaviour of signs
    kept       the text of links ([[page|text]], [url text]), of headings (without =), of lists (with their sign)

Templates and tables nest, so that they are cut by counting brackets, not by expressions. The order matters: tags before
templates, templates before tables, links last. References at the end of an article hold no prose, nor do the sections
that follow (see `END_SECTIONS`).
"""

from __future__ import annotations

import html
import re

DROPPED_TAGS = (
    "ref|gallery|math|chem|timeline|imagemap|hiero|score|syntaxhighlight|source|graph|mapframe|templatestyles"
)
COMMENT = re.compile(r"<!--.*?(?:-->|\Z)", re.DOTALL)
SELF_CLOSED = re.compile(rf"<(?:{DROPPED_TAGS})\b[^<>]*/>", re.IGNORECASE)
WITH_CONTENT = re.compile(rf"<({DROPPED_TAGS})\b[^<>]*>.*?</\1\s*>", re.IGNORECASE | re.DOTALL)
TAG = re.compile(r"</?[a-zA-Z][^<>]*>")
TEMPLATE = re.compile(r"\{\{|\}\}")
TABLE = re.compile(r"^[ \t:]*\{\||^[ \t]*\|\}", re.MULTILINE)
LINK = re.compile(r"\[\[|\]\]")
EXTERNAL = re.compile(r"\[(?:https?:|ftp:|//|mailto:|news:)[^\s\]]*[ \t]*([^\]\n]*)\]", re.IGNORECASE)
QUOTES = re.compile(r"'{2,5}")
HEADING = re.compile(r"^(={1,6})[ \t]*(.+?)[ \t]*\1[ \t]*$", re.MULTILINE)
MAGIC_WORD = re.compile(r"__[A-Z]+__")
MEDIA = re.compile(r"^:?(?:file|image|category|media)\s*:", re.IGNORECASE)
LANGUAGE_LINK = re.compile(r"^(?:[a-z]{2,3}|simple|[a-z]{2,3}(?:-[a-z]+)+)\s*:(?!:)")
END_SECTIONS = re.compile(
    r"^(?:References|External links|See also|Further reading|Notes|Bibliography|Footnotes|Sources)\s*$",
    re.IGNORECASE,
)
EMPTY_BRACKETS = re.compile(r"[ \t]*\((?:[ \t]*[,;][ \t]*|[ \t]*)\)")
BLANK_LINES = re.compile(r"\n[ \t]*\n(?:[ \t]*\n)+")
TRAILING = re.compile(r"[ \t]+$", re.MULTILINE)


def plain_text(wikitext: str) -> str:
    """The prose of an article."""
    text = COMMENT.sub("", wikitext)
    text = SELF_CLOSED.sub("", text)
    text = WITH_CONTENT.sub("", text)
    text = without(text, TEMPLATE, "{{")
    text = without(text, TABLE, "{|")
    text = links(text)
    text = EXTERNAL.sub(r"\1", text)
    text = TAG.sub("", text)
    text = QUOTES.sub("", text)
    text = MAGIC_WORD.sub("", text)
    text = headings(text)
    text = html.unescape(html.unescape(text)).replace("\u00a0", " ")
    text = EMPTY_BRACKETS.sub("", text)
    text = TRAILING.sub("", text)
    return BLANK_LINES.sub("\n\n", text).strip()


def without(text: str, marks: re.Pattern[str], opening: str) -> str:
    """The text outside of brackets that nest. One that is never closed is dropped to the end of its paragraph."""
    kept, depth, at = [], 0, 0
    for mark in marks.finditer(text):
        if mark[0].endswith(opening):
            if depth == 0:
                kept.append(text[at : mark.start()])
                at = mark.start()
            depth += 1
        elif depth:
            depth -= 1
            if depth == 0:
                at = mark.end()
    if depth:
        end = text.find("\n\n", at)
        at = end if end >= 0 else len(text)
    kept.append(text[at:])
    return "".join(kept)


def links(text: str) -> str:
    """Internal links as the text they show; media, categories and links to other languages as nothing."""
    shown: list[list[str]] = [[]]  # by depth: a caption may hold links of its own
    at = 0
    for mark in LINK.finditer(text):
        shown[-1].append(text[at : mark.start()])
        at = mark.end()
        if mark[0] == "[[":
            shown.append([])
        elif len(shown) > 1:
            inside = "".join(shown.pop())
            shown[-1].append(link_text(inside))
    shown[-1].append(text[at:])
    return "".join(part for parts in shown for part in parts)


def link_text(inside: str) -> str:
    """What a link shows: `text` of `page|text`, `page` of `page`."""
    target, bar, rest = inside.partition("|")
    if MEDIA.match(target) and not target.startswith(":"):
        return ""
    if not bar and LANGUAGE_LINK.match(target):
        return ""
    return rest if bar and rest else target.lstrip(":")


def headings(text: str) -> str:
    """Headings as plain lines. Sections that hold no prose go with what is below them, and so do empty ones."""
    found = list(HEADING.finditer(text))
    if not found:
        return text
    ends = [heading.start() for heading in found[1:]] + [len(text)]
    kept: list[str] = []
    dropping = 0  # level of the section that is being dropped
    sections = []
    for heading, end in zip(found, ends, strict=True):
        level = len(heading[1])
        if dropping and level > dropping:
            continue
        dropping = level if END_SECTIONS.match(heading[2]) else 0
        if not dropping:
            sections.append((level, heading[2], text[heading.end() : end]))
    below = 0  # level of the section that follows and stays
    for level, title, body in reversed(sections):
        if body.strip() or below > level:
            kept += [body, title]
            below = level
    return "".join([text[: found[0].start()], *reversed(kept)])
