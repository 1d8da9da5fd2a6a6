"""The step `split` tells prose from code.

A Python file is code and its docstrings are prose: the reader knows. Any other text is judged by its non-empty lines: a
line looks like code if it
- begins with a statement word and has its shape (`def name`, `import name`, `for … :`, `return …`), a decorator or a
  doctest or shell prompt,
- assigns (`name = …`, `name += …`),
- is a call and nothing else (`name(…)`), or
- ends as only code does, in `{`, `}`, `;`, `(` or `[`.
A text with more such lines than the threshold (default: half) is code. Data files (tables, word lists) are neither;
they count as prose and fall to the prose filters.

The lines are counted by one regular expression that Arrow runs over the whole column with RE2, in linear time. Arrow
goes on behind each match as if a text began there, so a match takes the rest of its line with it.
"""

from __future__ import annotations

import numpy as np
import pyarrow
import pyarrow.compute
from numpy.typing import NDArray
from pydantic import Field

from ingot.data.step import PerDocument

# RE2's own \s and \w are ASCII only; these are Python's, without the newline.
BLANKS = r"\t\v\f\r \x1c-\x1f\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000}"
BLANK = f"[{BLANKS}]"
FILLED = rf"[^\n{BLANKS}]"
LETTERS = r"\pL\pN_"
WORD = f"[{LETTERS}]"
DOTTED = f"[{LETTERS}.]"
TARGET = rf"[{LETTERS}.\[\]'\"]"
END = f"{BLANK}*$"
CODE_LINE = "|".join(
    (
        rf"(?:async{BLANK}+)?def{BLANK}+{WORD}+{BLANK}*\(",
        rf"class{BLANK}+{WORD}+{BLANK}*[(:{{]",
        rf"import{BLANK}+{DOTTED}+(?:{BLANK}+as{BLANK}+{WORD}+)?(?:,.*)?$",
        rf"from{BLANK}+{DOTTED}+{BLANK}+import{BLANK}",
        rf"(?:if|elif|for|while|with|except|else|try|finally)\b[^.?!\n]*:{BLANK}*(?:#.*)?$",
        rf"(?:return|raise|assert|yield|del|print|pass|break|continue)\b"
        rf"(?:{END}|{BLANK}*[{LETTERS}\[({{\"'.]+{BLANK}*(?:$|[(\[.,+*/=<>-]))",
        rf"(?:public|private|static|const|let|var|function|#include|#define|using){BLANK}+{FILLED}+.*[;{{>)]{END}",
        rf"@{WORD}{DOTTED}*(?:\(.*\))?{END}",
        rf"(?:>>>|\$){BLANK}",
        rf"{TARGET}+(?:{BLANK}*,{BLANK}*{TARGET}+)*{BLANK}*[-+*/|&%]?=(?:{BLANK}+{FILLED}|[^=\n{BLANKS}])",
        rf"{DOTTED}+\(.*\)[,;:]?{END}",
        rf".*[{{}};(\[]{END}",
    )
)
CODE_LINES = rf"(?m)^[ \t]*(?:{CODE_LINE}).*"
FILLED_LINES = rf"{FILLED}.*"


def code_line_shares(texts: pyarrow.Array | pyarrow.ChunkedArray) -> NDArray[np.float64]:
    """By text, the share of the non-empty lines that look like code."""
    code = pyarrow.compute.count_substring_regex(texts, pattern=CODE_LINES).to_numpy()
    filled = pyarrow.compute.count_substring_regex(texts, pattern=FILLED_LINES).to_numpy()
    return np.asarray(code / np.maximum(filled, 1), np.float64)


class SplitStep(PerDocument):
    """Fill the `kind` column: prose or code. What the reader knows decides where it can, the lines elsewhere."""

    rate = 15

    max_code_lines: float = Field(
        default=0.5,
        ge=0,
        le=1,
        description="a text is code if more than this share of its non-empty lines look like code",
    )

    def reads(self) -> tuple[str, ...]:
        return (*super().reads(), "kind")

    def writes(self) -> tuple[str, ...]:
        return ("kind",)

    def annotate(self, documents: pyarrow.Table) -> dict[str, pyarrow.Array]:
        known = documents.column("kind").to_pylist()
        unknown = np.array([not kind for kind in known], bool)
        shares = code_line_shares(documents.column("text").filter(pyarrow.array(unknown)).fill_null(""))
        kinds = np.array([kind or "" for kind in known], dtype=object)
        kinds[unknown] = np.where(shares > self.max_code_lines, "code", "prose")
        return {"kind": pyarrow.array(kinds, pyarrow.string())}
