"""The step `substring_dedup` cuts out every passage of L bytes or more that stands more than once in the corpus.

    anchors   a shard: where its windows of L bytes are anchored (substring_anchors.py), and the hashes of the grams
    repeated  a part of all hashes: those that more than one anchor has, back to the shards that have them
    contexts  a shard: the bytes around such anchors, to the part that the gram's hash belongs to
    strikes   a part of all contexts: which windows are equal byte for byte, back to their shards (substring_groups.py)
    cut       a shard: the texts without what was struck (substring_intervals.py)

The result is what a suffix array over the whole corpus would give: equal windows have anchors with equal grams at equal
distances, so they are always compared, and they are compared by their bytes. A suffix array sorts every byte of the
corpus and needs 5 to 9 bytes of memory for each; here one anchor for some 170 bytes is sorted, and a task holds a shard
or a partition.

Invariant: the result does not depend on how the documents are divided into shards.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow
from pydantic import Field

from ingot.data.engine.exchange import partitions, partitions_for, shard_partitions
from ingot.data.engine.shard import COLUMNS, Shard
from ingot.data.engine.work import FinishedTask, Work
from ingot.data.step import AcrossDocuments, Rule, at_least, numbers
from ingot.data.steps.substring_dedup.groups import context_type
from ingot.data.steps.substring_dedup.tasks import SEEN, collect, find, rewrite, select_repeated, strike


class SubstringDedupStep(AcrossDocuments):
    """Cut out every passage of at least `min_bytes` that stands more than once, in one document or in several.

    Lee et al. 2022 (arXiv 2107.06499) strike every copy of 100 bytes and more (50 tokens of 2 bytes); Olmo 3 strikes
    500 bytes and more and what is between two struck passages that nearly touch (`coverage`). Copies are found
    byte for byte: the result is that of a suffix array over the whole corpus. Cutting joins what was apart and may
    make new repeats; name the step twice to cut those too.
    """

    rate = 20
    decides: ClassVar[frozenset[str]] = frozenset({"min_words"})

    min_bytes: int = Field(
        default=500, ge=8, le=100_000, description="length of a repeat in UTF-8 bytes; Olmo 3: 500, Lee et al.: 100"
    )
    keep_first: bool = Field(
        default=True,
        description="leave the first copy in the order of the documents; false: strike every copy, as the code of Lee "
        "et al. does",
    )
    coverage: float = Field(
        default=0.95,
        gt=0,
        le=1,
        description="a stretch that begins and ends with struck passages is struck whole if they cover this share of it; "
        "1: only the passages themselves. Olmo 3's configuration has 0.95, its paper says 0.8",
    )
    min_words: int = Field(
        default=50,
        ge=1,
        description="a document from which something was cut goes if fewer white-space words are left (datatrove: 50)",
    )

    def writes(self) -> tuple[str, ...]:
        return ("text", "substring_bytes", "substring_words", "_substring_spans")

    def annotate(self, shards: Sequence[Shard], work: Work) -> list[Path]:
        length: dict[str, Any] = {"min_bytes": self.min_bytes}

        # One anchor for (L - k + 2) / 2 bytes, which is L / 3: the partitions hold each of them.
        seen_bytes = 3 * sum(shard.bytes for shard in shards) // self.min_bytes * SEEN.itemsize
        count = partitions_for(4 * seen_bytes)  # finding equal ones takes several times the memory
        anchored = self._run(work, "anchors", find, shards, length | {"partitions": count})
        folders = [done.folder for done in anchored]
        repeated = self._run(work, "repeated", select_repeated, partitions(anchored, count, shards))

        count = partitions_for(sum(done.report["anchors"] for done in repeated) * context_type(self.min_bytes).itemsize)
        items = shard_partitions(repeated, shards, folders)
        collected = self._run(work, "contexts", collect, items, length | {"partitions": count})
        options = length | {"keep_first": self.keep_first}
        struck = self._run(work, "strikes", strike, partitions(collected, count, shards), options)

        items = shard_partitions(struck, shards, folders)
        cuts = self._run(work, "cut", rewrite, items, options | {"coverage": self.coverage})
        return [done.file(COLUMNS) for done in cuts]

    def _run(
        self, work: Work, name: str, function: Any, items: Sequence[Any], options: Any = None
    ) -> list[FinishedTask]:
        return work.run(f"substring-{name}", function, items, options, version=self.version)

    def decide(self, columns: pyarrow.Table) -> list[Rule]:
        rule = at_least("words left after cutting repeats", numbers(columns, "substring_words"), self.min_words)
        spans: list[list[tuple[int, int]]] = [[] for _ in rule.broken]
        for row in np.flatnonzero(rule.broken).tolist():
            spans[row] = [(start, end) for start, end in columns.column("_substring_spans")[row].as_py()]
        return [replace(rule, spans=spans)]
