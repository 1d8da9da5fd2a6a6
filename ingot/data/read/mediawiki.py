"""Reads MediaWiki XML dumps (`pages-articles.xml.bz2`): one document an article, wikitext turned to plain text.

The dump is cut into `<page>…</page>` before anything is parsed, so that a damaged page costs itself only, a truncated
file gives the pages before its end, and a plain one can be read in byte ranges. (Inside the XML `<` is written `&lt;`:
the tags cannot appear in a text.) Ids are NAME:PAGE_ID.

What a reader of the article sees as prose:

    removed    comments, references, galleries, maths and other tags with their content; templates {{…}}, tables {|…|},
               files, images, categories and links to other languages; magic words (__TOC__), behaviour of signs
    left       the text of links ([[page|text]], [url text]), of headings (without =), of lists (with their sign)

Templates and tables nest, so that they are cut by counting brackets, not by expressions. The order matters: tags before
templates, templates before tables, links last. References at the end of an article hold no prose, nor do the sections
that follow (see `END_SECTIONS`).
"""

from __future__ import annotations

import html
import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator

from ingot.data.read.config import SourceConfig
from ingot.data.read.document import Document, checked
from ingot.data.read.problem import ReadProblems, Unreadable
from ingot.data.read.split import FilePiece
from ingot.data.read.streams import chunks, compression_of, opened

OPENS, CLOSES = b"<page>", b"</page>"
XML_SLACK = 4  # a page may be longer than its text: markup and entities


def read_mediawiki(piece: FilePiece, source: SourceConfig, problems: ReadProblems) -> Iterator[Document]:
    """The articles that begin in the piece's range. Redirects and pages of other namespaces are counted."""
    for offset, page in pages(piece, source.max_document_bytes * XML_SLACK, problems):
        place = f"{piece.identity}@{offset}"
        try:
            root = ElementTree.fromstring(page)
        except ElementTree.ParseError as error:
            problems.add(place, "not XML", f"({error})", size=len(page), shown=page)
            continue
        title = root.findtext("title") or ""
        if (root.findtext("ns") or "0") != "0":
            problems.add(place, "other namespace", title, size=len(page))
            continue
        if root.find("redirect") is not None:
            problems.add(place, "redirect", title, size=len(page))
            continue
        text = checked(plain_text(root.findtext("revision/text") or ""), place, source, problems)
        if text is not None:
            number = root.findtext("id")
            known = {"title": title, "date": root.findtext("revision/timestamp")}
            yield Document(f"{source.name}:{number}" if number else place, text, known)


def pages(piece: FilePiece, max_bytes: int, problems: ReadProblems) -> Iterator[tuple[int, bytes]]:
    """Offset (in the uncompressed file) and bytes of each page; longer ones are skipped without being held."""
    with opened(piece.path) as file:
        offset = piece.start
        file.seek(offset)
        buffer = b""
        skipping = False
        try:
            for chunk in chunks(file, compression_of(piece.path)):
                buffer += chunk
                while True:
                    if skipping:
                        begin = 0
                    elif (begin := buffer.find(OPENS)) < 0:
                        begin = max(0, len(buffer) - len(OPENS) + 1)
                        offset, buffer = offset + begin, buffer[begin:]
                        break
                    if not skipping and 0 <= piece.end <= offset + begin:
                        return
                    end = buffer.find(CLOSES, begin)
                    if end < 0:
                        if not skipping and len(buffer) - begin > max_bytes:
                            detail = f"(a page of more than {max_bytes:,} bytes)"
                            problems.add(f"{piece.identity}@{offset + begin}", "too long", detail)
                            skipping = True
                        if skipping:
                            begin = max(0, len(buffer) - len(CLOSES) + 1)
                        offset, buffer = offset + begin, buffer[begin:]
                        break
                    end += len(CLOSES)
                    if not skipping:
                        yield offset + begin, buffer[begin:end]
                    skipping = False
                    offset, buffer = offset + end, buffer[end:]
        except Unreadable as error:
            problems.add(f"{piece.identity}@{offset}", error.rule, error.detail)
            return
        if buffer.startswith(OPENS):
            problems.add(f"{piece.identity}@{offset}", "truncated", "the file ends within a page", size=len(buffer))


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
    r"^(?:References|External links|See also|Further reading|Notes|Bibliography|Footnotes|Sources)\s*$", re.IGNORECASE
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
    left, depth, at = [], 0, 0
    for mark in marks.finditer(text):
        if mark[0].endswith(opening):
            if depth == 0:
                left.append(text[at : mark.start()])
                at = mark.start()
            depth += 1
        elif depth:
            depth -= 1
            if depth == 0:
                at = mark.end()
    if depth:
        end = text.find("\n\n", at)
        at = end if end >= 0 else len(text)
    left.append(text[at:])
    return "".join(left)


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
    left: list[str] = []
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
            left += [body, title]
            below = level
    return "".join([text[: found[0].start()], *reversed(left)])
