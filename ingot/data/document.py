"""A document, and what a step decides about one.

Invariant: an id is stable and unique (source name, relative path, row or part), so that a removed document can always
be traced to the file it came from. A step never changes a text; it annotates, keeps or removes.
"""

from __future__ import annotations

from dataclasses import dataclass, field

Annotation = float | int | str


@dataclass(slots=True)
class Document:
    """One text. `kind` is empty until the split step, unless the file type told it (`.py` is code)."""

    id: str
    text: str
    source: str
    kind: str = ""
    annotations: dict[str, Annotation] = field(default_factory=dict)

    @property
    def bytes(self) -> int:
        """Size of the text in UTF-8."""
        return utf8_size(self.text)


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a step says about one document: keep it (no `rule`) or remove it by a named rule with its numbers."""

    rule: str = ""
    detail: str = ""
    annotations: dict[str, Annotation] = field(default_factory=dict)
    kind: str = ""  # set by the split step
    duplicate_of: int | None = None  # position of the document that stays
    spans: tuple[tuple[int, int], ...] = ()  # characters of the text that the rule is about

    @property
    def removed(self) -> bool:
        """True if the document goes."""
        return bool(self.rule)


KEEP = Verdict()


def utf8_size(text: str) -> int:
    """Bytes of `text` in UTF-8; ASCII, the usual case, is counted without encoding."""
    return len(text) if text.isascii() else len(text.encode("utf-8"))
