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

import pyarrow

from ingot.data.extract.fix import fix_text, suspects
from ingot.data.step import PerDocument
from ingot.data.text.texts import Texts, rewritten


class FixTextStep(PerDocument):
    """Repair texts that were decoded with the wrong charset (`cafÃ©`), and take out invisible characters."""

    rate = 46

    def writes(self) -> tuple[str, ...]:
        return ("text",)

    def annotate(self, documents: pyarrow.Table) -> dict[str, pyarrow.Array]:
        text = documents.column("text")
        return {"text": rewritten(text, suspects(Texts.of(text)), fix_text)}
