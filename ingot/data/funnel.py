"""The funnel: what each step let through, what that cost, and samples of what was removed and why.

A row of funnel.json: {"step", "documents_in", "documents_out", "bytes_in", "bytes_out", "tokens_in", "tokens_out",
"seconds", "reasons"}. `reasons` counts the removed by rule; `bytes_cut`, where a step rewrites texts, is what it took
out of those that stay (negative: put in); `repaired` counts, by rule, what was read in spite of damage, or otherwise than
asked. Tokens are estimated from bytes. Seconds are processor time of all workers together, also of columns that an
earlier run had computed: what the step costs, not how long the run waited for it. Samples (removed.jsonl) are picked by the
hash of the document's id, in turns between the rules of a step, so that the same input shows the same samples and a
person sees a fair cut, not the first files of the alphabet.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

BYTES_PER_TOKEN = 4.2  # English web text with a vocabulary of 100,000; other languages and code have fewer
SAMPLE_CHARACTERS = 2000

Size = tuple[int, int]  # documents and bytes


@dataclass(frozen=True)
class FunnelRow:
    """One step: (documents, bytes) before and after."""

    step: str
    before: Size
    after: Size
    seconds: float
    reasons: dict[str, int] = field(default_factory=dict)
    repaired: dict[str, int] = field(default_factory=dict)  # by rule: read all the same
    cut: int = 0  # bytes taken out of texts that stay

    def as_json(self) -> dict[str, Any]:
        """A row of funnel.json."""
        row = {
            "step": self.step,
            "documents_in": self.before[0],
            "documents_out": self.after[0],
            "bytes_in": self.before[1],
            "bytes_out": self.after[1],
            "tokens_in": about_tokens(self.before[1]),
            "tokens_out": about_tokens(self.after[1]),
            "seconds": round(self.seconds, 3),
            "reasons": by_count(self.reasons),
        }
        row |= {"repaired": by_count(self.repaired)} if self.repaired else {}
        return row | ({"bytes_cut": self.cut} if self.cut else {})


def about_tokens(size: int) -> int:
    """Roughly how many tokens so many bytes are."""
    return round(size / BYTES_PER_TOKEN)


def shortened(line: str, width: int) -> str:
    """The line, or its beginning with a mark that more followed."""
    return line if len(line) <= width else f"{line[: width - 1]}…"


def by_count(reasons: dict[str, int]) -> dict[str, int]:
    """The most frequent first."""
    return dict(sorted(reasons.items(), key=lambda item: (-item[1], item[0])))


class Funnel:
    """Collects rows while the documents pass through the steps."""

    def __init__(self) -> None:
        self.rows: list[FunnelRow] = []
        self.problems: list[dict[str, Any]] = []  # what could not be read

    def add(self, row: FunnelRow) -> None:
        """The next row."""
        self.rows.append(row)

    def table(self, width: int = 200) -> str:
        """The rows as aligned text of at most `width` characters a line, for messages and logs."""
        cells = [("step", "documents", "megabytes", "tokens", "seconds")]
        reasons = ["removed most by"]
        for row in self.rows:
            documents = f"{row.before[0]:,} -> {row.after[0]:,}"
            megabytes = f"{row.before[1] / 1e6:,.2f} -> {row.after[1] / 1e6:,.2f}"
            tokens = f"{about_tokens(row.after[1]) / 1e6:,.1f} M"
            cells.append((row.step, documents, megabytes, tokens, f"{row.seconds:.1f}"))
            reason, count = next(iter(by_count(row.reasons).items()), ("", 0))
            reasons.append(f"{count:,} {reason.rstrip(':')}" if reason else "")
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        lines = []
        for (step, *numbers), reason in zip(cells, reasons, strict=True):
            aligned = (number.rjust(size) for number, size in zip(numbers, widths[1:], strict=True))
            lines.append(shortened("  ".join([step.ljust(widths[0]), *aligned, reason]).rstrip(), width))
        return "\n".join(lines)


def sample_key(identity: str) -> str:
    """A fair, machine-independent order for picking samples."""
    return blake2b(identity.encode(), digest_size=8, person=b"sample").hexdigest()


def first_difference(one: str, other: str) -> int:
    """The first position where two texts differ; the end of the shorter one if the other begins with it."""
    different = (index for index, (a, b) in enumerate(zip(one, other, strict=False)) if a != b)
    return next(different, min(len(one), len(other)))


def sample_row(row: dict[str, Any]) -> dict[str, Any]:
    """A row of removed.jsonl from one of removed/part-*.parquet. A span further down moves the text that is shown."""
    spans = row["spans"] or []
    start = 0
    if spans and spans[-1][1] > SAMPLE_CHARACTERS:
        start = max(0, spans[0][0] - SAMPLE_CHARACTERS // 4)
    end = start + SAMPLE_CHARACTERS
    sample: dict[str, Any] = {
        "id": row["id"],
        "source": row["source"],
        "step": row["step"],
        "rule": row["rule"],
        "reason": f"{row['step']}: {row['rule']} {row['detail']}".rstrip(),
        "text": row["text"][start:end],
        "bytes": len(row["text"].encode("utf-8")),
    }
    if row["duplicate_of"] is not None:
        sample["duplicate_of"] = row["duplicate_of"]
    if spans:
        sample["spans"] = [[a - start, min(b, end) - start] for a, b in spans if start <= a < end]
    return sample
