"""Prose or code? The rule of the split step.

A Python file is code and its docstrings are prose: the reader knows. Any other text is judged by its non-empty lines: a
line looks like code if it
- begins with a statement word and has its shape (`def name`, `import name`, `for … :`, `return …`), a decorator or a
  doctest or shell prompt,
- assigns (`name = …`, `name += …`),
- is a call and nothing else (`name(…)`), or
- ends as only code does, in `{`, `}`, `;`, `(` or `[`.
A text with more such lines than the threshold (default: half) is code. Data files (tables, word lists) are neither;
they count as prose and fall to the prose filters.
"""

from __future__ import annotations

import re

from ingot.data.config import SplitStep
from ingot.data.document import Verdict

STATEMENTS = "|".join(
    (
        r"(?:async\s+)?def\s+\w+\s*\(",
        r"class\s+\w+\s*[(:{]",
        r"(?:import\s+[\w.]+(?:\s+as\s+\w+)?(?:,.*)?$|from\s+[\w.]+\s+import\s)",
        r"(?:if|elif|for|while|with|except|else|try|finally)\b[^.?!]*:\s*(?:\#.*)?$",
        r"(?:return|raise|assert|yield|del|print|pass|break|continue)\b(?:\s*$|\s*[\w\[({\"'.]+\s*(?:$|[(\[.,+*/=<>-]))",
        r"(?:public|private|static|const|let|var|function|#include|\#define|using)\s+\S+.*[;{>)]\s*$",
        r"@\w[\w.]*(?:\(.*\))?\s*$",
        r"(?:>>>|\$)\s",
    )
)
CODE_LINE = re.compile(
    rf"^[ \t]*(?:{STATEMENTS}"
    r"|[\w.\[\]'\"]+(?:\s*,\s*[\w.\[\]'\"]+)*\s*(?:[-+*/|&%]?=)(?!=)\s*\S"
    r"|[\w.]+\([^\n]*\)[,;:]?\s*$"
    r"|[^\n]*[{};(\[]\s*$)",
    re.MULTILINE,
)
FILLED_LINE = re.compile(r"^.*\S.*$", re.MULTILINE)


def code_line_share(text: str) -> float:
    """The share of the non-empty lines that look like code."""
    lines = FILLED_LINE.findall(text)
    return sum(1 for line in lines if CODE_LINE.match(line)) / len(lines) if lines else 0.0


def split_kind(text: str, step: SplitStep) -> Verdict:
    """The kind of a text whose file type does not tell it. Removes nothing."""
    return Verdict(kind="code" if code_line_share(text) > step.max_code_lines else "prose")
