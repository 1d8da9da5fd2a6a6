"""Ids of questions: by what is asked, so that they are the same in every file, order and selection of rows.

Two evaluations are compared question by question; an id that was a row number would pair different questions as soon as a
file is filtered or cut.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from hashlib import blake2b, sha256


def digest(*texts: str) -> str:
    """A short name of some texts."""
    return blake2b("\x1f".join(texts).encode("utf-8", "surrogatepass"), digest_size=6).hexdigest()


def text_ids(texts: Iterable[str]) -> list[str]:
    """Stable ids of written questions that have none of their own."""
    return unique(sha256(text.encode("utf-8")).hexdigest()[:12] for text in texts)


def unique(ids: Iterable[str]) -> list[str]:
    """The ids, with a number after those that were there before: some sets ask a question twice."""
    seen: Counter[str] = Counter()
    found = []
    for each in ids:
        seen[each] += 1
        found.append(each if seen[each] == 1 else f"{each}-{seen[each]}")
    return found
