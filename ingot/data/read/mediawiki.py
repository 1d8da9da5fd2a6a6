"""MediaWiki XML dumps (`pages-articles.xml.bz2`): one document an article, wikitext turned to plain text.

The dump is cut into `<page>…</page>` before anything is parsed, so that a damaged page costs itself only, a truncated
file gives the pages before its end, and a plain one can be read in byte ranges. (Inside the XML `<` is written `&lt;`:
the tags cannot appear in a text.) Ids are NAME:PAGE_ID.
"""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator

from ingot.data.read.config import SourceConfig
from ingot.data.read.document import Document, checked
from ingot.data.read.problem import Problems, Unreadable
from ingot.data.read.split import Piece
from ingot.data.read.streams import chunks, compression_of, opened
from ingot.data.read.wikitext import plain_text

OPENS, CLOSES = b"<page>", b"</page>"
XML_SLACK = 4  # a page may be longer than its text: markup and entities


def read_mediawiki(piece: Piece, source: SourceConfig, problems: Problems) -> Iterator[Document]:
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


def pages(piece: Piece, max_bytes: int, problems: Problems) -> Iterator[tuple[int, bytes]]:
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
