"""The step `fix_text` repairs mojibake and takes out invisible characters.

Mojibake is text decoded with the wrong charset: UTF-8 read as Windows-1252 turns `é` into `Ã©`. ftfy (Speer 2019) finds
such lines by pairs of characters that hardly ever stand together, and undoes the decoding if the result is valid UTF-8.
That is slow (3 MB/s), so that a compiled scan first tells which texts, and then which lines, could have such a pair at all:

    a C1 control character; one of Œ œ Ã Â; or two neighbours beyond ASCII that are not both plain Greek or Cyrillic letters

is necessary for each alternative of ftfy's expression. Everything else passes as bytes.

Taken out: control characters but tab and newline, the soft hyphen, zero-width space and joiner of words, byte order marks.
(The zero-width joiner and non-joiner stay: Persian, Indic scripts and emoji are spelt with them.) `\r\n`, `\r`,
U+2028 and U+2029 become `\n`.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pyarrow
from numpy.typing import NDArray

from ingot.data.native import kernel, load_8
from ingot.data.step import PerDocument
from ingot.data.text.texts import Texts, rewritten
from ingot.workspace.errors import IngotError
from ingot.workspace.packages import install_extra

INVISIBLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u00ad\u200b\u2060\ufeff]")
LINE_ENDS = re.compile("\r\n|[\r\u2028\u2029]")
CLASSES = "\x80-\u25ca\ufb01\ufb02\uf8ff\ufffd"  # the characters in ftfy's expression
ODD = "\x80-\u036f\u0402\u0460-\u25ca\ufb01\ufb02\uf8ff\ufffd"  # those, without plain Greek and Cyrillic letters
SIGNS = re.compile(f"[\x80-\x9fŒœÃÂ]|[{ODD}][{CLASSES}]|[{CLASSES}][{ODD}]")
HIGH_BITS = np.uint64(0x8080808080808080)
SPACES = np.uint64(0x2020202020202020)
DELETES = np.uint64(0x7F7F7F7F7F7F7F7F)
ONES = np.uint64(0x0101010101010101)


@kernel
def suspicious(data: np.ndarray, offsets: np.ndarray, out: np.ndarray) -> None:
    """Mark the texts that could hold mojibake or an invisible character."""
    for row in range(len(offsets) - 1):
        at, end = offsets[row], offsets[row + 1]
        before = 0  # the character before: 0 ASCII, 1 plain Greek or Cyrillic letter, 2 anything else
        while at < end:
            if at + 8 <= end:
                word = load_8(data, at)
                below_space = (word - SPACES) & ~word & HIGH_BITS
                deleted = word ^ DELETES
                deleted = (deleted - ONES) & ~deleted & HIGH_BITS
                if not (word & HIGH_BITS) | below_space | deleted:
                    at += 8
                    before = 0
                    continue
            byte = data[at]
            if byte < 0x80:
                if (byte < 0x20 and byte != 0x0A and byte != 0x09) or byte == 0x7F:
                    out[row] = 1
                    break
                before = 0
                at += 1
                continue
            if byte < 0xE0:
                code = ((byte & 0x1F) << 6) | (data[at + 1] & 0x3F)
                at += 2
            elif byte < 0xF0:
                code = ((byte & 0x0F) << 12) | ((data[at + 1] & 0x3F) << 6) | (data[at + 2] & 0x3F)
                at += 3
            else:
                code = 0x10000
                at += 4
            alone = code < 0xA0 or code == 0xAD or code == 0xC2 or code == 0xC3 or code == 0x152 or code == 0x153
            alone = alone or code == 0x200B or code == 0x2060 or code == 0xFEFF or code == 0x2028 or code == 0x2029
            if alone:
                out[row] = 1
                break
            # ftfy's classes end at U+25CA, but for two ligatures, the Apple logo and U+FFFD
            if code > 0x25CA and code != 0xFB01 and code != 0xFB02 and code != 0xF8FF and code != 0xFFFD:
                before = 0
                continue
            kind = 1 if 0x370 <= code < 0x460 and code != 0x402 else 2
            if before and before + kind > 2:
                out[row] = 1
                break
            before = kind


def suspects(texts: Texts) -> NDArray[np.int64]:
    """The rows that `fix_text` might change."""
    marks = np.zeros(len(texts), np.uint8)
    suspicious(texts.data, texts.offsets, marks)
    return np.flatnonzero(marks).astype(np.int64)


def fix_text(text: str) -> str:
    """The text with mojibake undone line by line, and without invisible characters."""
    ftfy = ftfy_module()
    if SIGNS.search(text):
        text = "\n".join([ftfy.fix_encoding(line) if SIGNS.search(line) else line for line in text.split("\n")])
    return INVISIBLE.sub("", LINE_ENDS.sub("\n", text))


def ftfy_module() -> Any:
    """The module, or how to get it."""
    try:
        import ftfy
    except ImportError:
        raise IngotError("the step `fix_text` needs ftfy", fix=install_extra("data")) from None
    return ftfy


class FixTextStep(PerDocument):
    """Repair texts that were decoded with the wrong charset (`cafÃ©`), and take out invisible characters."""

    rate = 46

    def writes(self) -> tuple[str, ...]:
        return ("text",)

    def annotate(self, documents: pyarrow.Table) -> dict[str, pyarrow.Array]:
        text = documents.column("text")
        return {"text": rewritten(text, suspects(Texts.of(text)), fix_text)}
