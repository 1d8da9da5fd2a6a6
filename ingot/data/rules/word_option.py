"""The option `words`, which several rules have: what a word is (text/words.py)."""

from __future__ import annotations

from typing import Literal

Words = Literal["whitespace", "letters"]
WORDS = "what a word is: `whitespace` as str.split(), `letters` as runs of \\w"
