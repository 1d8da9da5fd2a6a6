"""The encoding of a web page, and its text.

In the order of the HTML standard's sniffing algorithm: a byte order mark, the charset of the HTTP header, the charset of
a `<meta>` among the first 1,024 bytes; a page that declares nothing is UTF-8 if it decodes as such, else Windows-1252.
As in browsers, `iso-8859-1` and `ascii` mean Windows-1252, and `gb2312` means its superset.
"""

from __future__ import annotations

import codecs
import re
from dataclasses import dataclass

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
class Page:
    """A decoded page: its text, what it was decoded as, and whether bytes had to be replaced."""

    text: str
    charset: str
    damaged: bool


def decode_page(raw: bytes, declared: str) -> Page:
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


def decode(raw: bytes, charset: str) -> Page:
    """The bytes in one charset, with U+FFFD for what is none."""
    try:
        return Page(raw.decode(charset), charset, False)
    except UnicodeDecodeError:
        return Page(raw.decode(charset, "replace"), charset, True)


def known_charset(label: str) -> str:
    """Python's name of a charset as browsers understand the label, or nothing if there is none."""
    try:
        name = codecs.lookup(label.strip().strip("\"'")).name if label else ""
    except (LookupError, ValueError):
        return ""
    return SUPERSETS.get(name, name)
