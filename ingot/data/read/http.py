"""HTTP responses inside WARC records, with their encodings undone, and the charset of a page.

The charset is found in the order of the HTML standard's sniffing algorithm: a byte order mark, the charset of the HTTP header,
the charset of a `<meta>` among the first 1,024 bytes; a page that declares nothing is UTF-8 if it decodes as such, else
Windows-1252. As in browsers, `iso-8859-1` and `ascii` mean Windows-1252, and `gb2312` means its superset.
"""

from __future__ import annotations

import codecs
import re
from dataclasses import dataclass

from ingot.data.read.streams import Decompressor, damage_of

MARKS = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"))
SUPERSETS = {
    "iso8859-1": "cp1252",
    "ascii": "cp1252",
    "latin-1": "cp1252",
    "iso8859-9": "cp1254",
    "gb2312": "gb18030",
    "gbk": "gb18030",
    "shift_jis": "cp932",
    "euc_kr": "cp949",
    "big5": "big5hkscs",
    "tis-620": "cp874",
}
META = re.compile(rb"""<meta[^>]{0,500}?charset\s*=\s*["']?\s*([\w.:-]+)""", re.IGNORECASE)
DECLARED_BYTES = 1024


@dataclass(frozen=True, slots=True)
class DecodedPage:
    """A decoded page: its text, what it was decoded as, and whether bytes had to be replaced."""

    text: str
    charset: str
    damaged: bool


def decode_page(raw: bytes, declared: str) -> DecodedPage:
    """The text of a page; `declared` is the charset of its HTTP header, if any."""
    for mark, charset in MARKS:
        if raw.startswith(mark):
            return decode(raw[len(mark) :], charset)
    charset = known_charset(declared)
    if not charset and (meta := META.search(raw[:DECLARED_BYTES])):
        charset = known_charset(meta[1].decode("ascii", "replace"))
        if charset.startswith("utf-16"):  # it could not have been read as ASCII then
            charset = "utf-8"
    if charset:
        page = decode(raw, charset)
        if not page.damaged or charset == "utf-8":
            return page
        undeclared = decode(raw, "utf-8")  # a wrong label is more common than a damaged page
        return page if undeclared.damaged else undeclared
    page = decode(raw, "utf-8")
    return decode(raw, "cp1252") if page.damaged else page


def decode(raw: bytes, charset: str) -> DecodedPage:
    """The bytes in one charset, with U+FFFD for what is none."""
    try:
        return DecodedPage(raw.decode(charset), charset, False)
    except UnicodeDecodeError:
        return DecodedPage(raw.decode(charset, "replace"), charset, True)


def known_charset(label: str) -> str:
    """Python's name of a charset as browsers understand the label, or nothing if there is none."""
    try:
        name = codecs.lookup(label.strip().strip("\"'")).name if label else ""
    except (LookupError, ValueError):
        return ""
    return SUPERSETS.get(name, name)


@dataclass(slots=True)
class Response:
    """A response; names of headers are in lower case. `damaged` says what was wrong with the payload, if anything."""

    status: int
    headers: dict[str, str]
    payload: bytes
    damaged: str = ""


def media_type(content_type: str) -> str:
    """`text/html` of `Text/HTML; charset=utf-8`."""
    return content_type.partition(";")[0].strip().lower()


def declared_charset(content_type: str) -> str:
    """`utf-8` of `text/html; charset=utf-8`."""
    for parameter in content_type.split(";")[1:]:
        name, _, value = parameter.partition("=")
        if name.strip().lower() == "charset":
            return value.strip().strip("\"'")
    return ""


def parse_response(content: bytes, max_bytes: int) -> Response | None:
    """The response, with a payload of at most `max_bytes`; None if this is no HTTP."""
    if not content.startswith(b"HTTP/"):
        return None
    head, blank, payload = content.partition(b"\r\n\r\n")
    if not blank:
        head, _, payload = content.partition(b"\n\n")
    lines = head.decode("latin-1").splitlines()
    words = lines[0].split(None, 2)
    status = int(words[1]) if len(words) > 1 and words[1].isdigit() else 0
    headers: dict[str, str] = {}
    name = ""
    for line in lines[1:]:
        if line[:1] in (" ", "\t") and name:
            headers[name] += " " + line.strip()
        else:
            name, _, value = line.partition(":")
            name = name.strip().lower()
            headers[name] = value.strip()
    damaged = ""
    if "chunked" in headers.get("transfer-encoding", "").lower():
        payload, damaged = unchunk(payload)
    for encoding in reversed(headers.get("content-encoding", "").lower().split(",")):
        payload, problem = decode_content(payload, encoding.strip(), max_bytes)
        damaged = damaged or problem
    return Response(status, headers, payload, damaged)


def unchunk(payload: bytes) -> tuple[bytes, str]:
    """A chunked payload in one piece. Crawlers store some payloads already joined: those are left as they are."""
    parts: list[bytes] = []
    at = 0
    while True:
        end = payload.find(b"\n", at)
        size_text = payload[at : end if end >= 0 else len(payload)].split(b";")[0].strip()
        try:
            size = int(size_text, 16)
        except ValueError:
            return (b"".join(parts), "chunks end early") if parts else (payload, "")
        if size == 0:
            return b"".join(parts), ""
        if end < 0 or end + 1 + size > len(payload):
            parts.append(payload[end + 1 :] if end >= 0 else b"")
            return b"".join(parts), "chunks end early"
        parts.append(payload[end + 1 : end + 1 + size])
        at = end + 1 + size
        at += 2 if payload[at : at + 2] == b"\r\n" else 1 if payload[at : at + 1] == b"\n" else 0


def decode_content(payload: bytes, encoding: str, max_bytes: int) -> tuple[bytes, str]:
    """Undo a content encoding, up to `max_bytes` and one more. A payload that is not encoded as it says is left as it is."""
    if encoding in ("gzip", "x-gzip"):
        if not payload.startswith(b"\x1f\x8b"):
            return payload, ""  # crawlers store some payloads already decoded and keep the header
        return decompress(payload, ".gz", max_bytes)
    if encoding == "deflate":
        plain, problem = decompress(payload, "zlib", max_bytes)
        return decompress(payload, "deflate", max_bytes) if problem and not plain else (plain, problem)
    if encoding == "br":
        plain, problem = decompress(payload, ".br", max_bytes)
        return (payload, "") if problem else (plain, "")
    if encoding == "zstd":
        plain, problem = decompress(payload, ".zst", max_bytes)
        return (payload, "") if problem.startswith("content encoding broken") else (plain, problem)
    return payload, ""


def decompress(payload: bytes, compression: str, max_bytes: int) -> tuple[bytes, str]:
    """Decompress at most `max_bytes` and one more, as far as the payload goes; and what was wrong with it."""
    current = Decompressor(compression)
    parts: list[bytes] = []
    size = 0
    try:
        for part in current.parts(payload):
            parts.append(part)
            size += len(part)
            if size > max_bytes:
                return b"".join(parts)[: max_bytes + 1], ""
    except damage_of(compression) as error:
        return b"".join(parts), f"content encoding broken ({error})"
    return b"".join(parts), "" if current.finished else "content encoding ends early"
