"""The funnel: what each step let through and how long it took, and samples of what it removed and why.

A row of funnel.json: {"step", "documents_in", "documents_out", "bytes_in", "bytes_out", "seconds", "reasons"};
`reasons` counts the removed by rule. Samples are picked by the hash of the document's id, so that the same input
shows the same samples and a person sees a fair cut, not the first files of the alphabet.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from hashlib import blake2b
from typing import Any

from ingot.data.document import Document, Verdict

SAMPLE_CHARACTERS = 2000


class Funnel:
    """Collects rows and samples while the documents walk through the steps."""

    def __init__(self, samples: int) -> None:
        self.samples = samples
        self.rows: list[dict[str, Any]] = []
        self.removed: list[dict[str, Any]] = []

    def add(
        self,
        step: str,
        seconds: float,
        before: tuple[int, int],
        after: tuple[int, int],
        reasons: Counter[str],
        samples: Iterable[dict[str, Any]],
    ) -> dict[str, Any]:
        """Record one step: (documents, bytes) before and after, counts by rule, and candidates for the samples."""
        row = {
            "step": step,
            "documents_in": before[0],
            "documents_out": after[0],
            "bytes_in": before[1],
            "bytes_out": after[1],
            "seconds": round(seconds, 3),
            "reasons": dict(sorted(reasons.items(), key=lambda item: (-item[1], item[0]))),
        }
        self.rows.append(row)
        self.removed += sorted(samples, key=lambda sample: sample_key(sample["id"]))[: self.samples]
        return row

    def apply(
        self, step: str, seconds: float, documents: Sequence[Document], verdicts: Sequence[Verdict]
    ) -> list[Document]:
        """Annotate and keep what stays, record what goes."""
        kept: list[Document] = []
        reasons: Counter[str] = Counter()
        goes: list[tuple[Document, Verdict]] = []
        for document, verdict in zip(documents, verdicts, strict=True):
            if verdict.removed:
                reasons[verdict.rule] += 1
                goes.append((document, verdict))
            else:
                document.annotations.update(verdict.annotations)
                document.kind = verdict.kind or document.kind
                kept.append(document)
        goes.sort(key=lambda pair: sample_key(pair[0].id))
        samples = [removed_sample(step, document, verdict, documents) for document, verdict in goes[: self.samples]]
        self.add(step, seconds, size_of(documents), size_of(kept), reasons, samples)
        return kept

    def table(self) -> str:
        """The rows as aligned text, for messages and logs."""
        lines = [f"{'step':<18}{'documents':>19}{'megabytes':>19}{'seconds':>9}"]
        for row in self.rows:
            documents = f"{row['documents_in']:,} -> {row['documents_out']:,}"
            megabytes = f"{row['bytes_in'] / 1e6:.2f} -> {row['bytes_out'] / 1e6:.2f}"
            lines.append(f"{row['step']:<18}{documents:>19}{megabytes:>19}{row['seconds']:>9.1f}")
        return "\n".join(lines)


def size_of(documents: Sequence[Document]) -> tuple[int, int]:
    """Number of documents and their bytes."""
    return len(documents), sum(document.bytes for document in documents)


def sample_key(identity: str) -> bytes:
    """A fair, machine-independent order for picking samples."""
    return blake2b(identity.encode(), digest_size=8, person=b"sample").digest()


def removed_sample(step: str, document: Document, verdict: Verdict, documents: Sequence[Document]) -> dict[str, Any]:
    """A row of removed.jsonl. A span further down moves the window of text that is shown to it."""
    start = 0
    if verdict.spans and verdict.spans[-1][1] > SAMPLE_CHARACTERS:
        start = max(0, verdict.spans[0][0] - SAMPLE_CHARACTERS // 4)
    sample: dict[str, Any] = {
        "id": document.id,
        "source": document.source,
        "step": step,
        "reason": f"{step}: {verdict.rule} {verdict.detail}".rstrip(),
        "text": document.text[start : start + SAMPLE_CHARACTERS],
        "bytes": document.bytes,
    }
    if verdict.duplicate_of is not None:
        partner = documents[verdict.duplicate_of]
        sample["duplicate_of"] = partner.id
        sample["duplicate_text"] = partner.text[:SAMPLE_CHARACTERS]
    if verdict.spans:
        end = start + SAMPLE_CHARACTERS
        sample["spans"] = [[a - start, min(b, end) - start] for a, b in verdict.spans if start <= a < end]
    return sample
