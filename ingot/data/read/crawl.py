"""Reads the pages of a crawl: which WARC records are documents, and what their text is.

    response     HTTP 200 with a text media type: the page as it was sent (HTML stays HTML: see `extract_html`)
    conversion   text that was extracted before (WET)
    resource     a page stored without HTTP

Requests, warcinfo, metadata and the like are no documents and are counted as `not a page`. The id is the record's own
(WARC-Record-ID), else NAME:PATH@OFFSET.
"""

from __future__ import annotations

from collections.abc import Iterator

from ingot.data.read.config import SourceConfig
from ingot.data.read.document import Document, checked
from ingot.data.read.http import declared_charset, decode_page, media_type, parse_response
from ingot.data.read.problem import ReadProblems
from ingot.data.read.split import FilePiece
from ingot.data.read.warc import WarcRecord, warc_records

TEXT_TYPES = ("text/html", "application/xhtml+xml", "text/plain", "text/markdown")


def read_warc(piece: FilePiece, source: SourceConfig, problems: ReadProblems) -> Iterator[Document]:
    """The pages among the records."""
    for record in warc_records(piece, source.max_document_bytes, problems):
        place = f"{piece.identity}@{record.offset}"
        document = page(record, place, source, problems)
        if document is not None:
            yield document


def page(record: WarcRecord, place: str, source: SourceConfig, problems: ReadProblems) -> Document | None:
    """The document in a record, or None."""
    damaged = "the record ends early" if record.truncated else ""
    payload, content_type, status = record.content, record.headers.get("content-type", ""), 200
    if record.type == "response" or (record.type == "resource" and payload.startswith(b"HTTP/")):
        response = parse_response(payload, source.max_document_bytes)
        if response is None:
            problems.add(place, "not a page", f"a response that is not HTTP ({content_type[:60]})", size=len(payload))
            return None
        payload, content_type, status = response.payload, response.headers.get("content-type", ""), response.status
        damaged = damaged or response.damaged
    elif record.type not in ("conversion", "resource"):
        problems.add(place, "not a page", f"a {record.type or 'nameless'} record", size=len(payload))
        return None
    if status != 200:
        problems.add(place, "not a page", f"status {status}", size=len(payload))
        return None
    mime = media_type(record.headers.get("warc-identified-payload-type", "") or content_type)
    if mime not in TEXT_TYPES:
        problems.add(place, "not text", f"({mime or 'no media type'})", size=len(payload))
        return None
    if len(payload) > source.max_document_bytes:
        problems.add(place, "too long", f"(more than {source.max_document_bytes:,} bytes)", size=len(payload))
        return None
    decoded = decode_page(payload, declared_charset(content_type))
    if decoded.damaged:
        kept = source.bad_text == "repair"
        problems.add(
            place,
            "not UTF-8" if decoded.charset == "utf-8" else "not in its charset",
            decoded.charset,
            size=len(payload),
            shown=payload,
            kept=kept,
        )
        if not kept:
            return None
    text = checked(decoded.text, place, source, problems)
    if text is None:
        return None
    if damaged:
        problems.add(place, "truncated", damaged, size=len(payload), kept=True)
    identity = record.headers.get("warc-record-id", "").strip("<>").removeprefix("urn:uuid:")
    known = {
        "url": record.headers.get("warc-target-uri") or None,
        "date": record.headers.get("warc-date") or None,
        "mime": mime,
    }
    return Document(identity or place, text, known)
