"""The step `exact_dedup` removes exact copies: whole documents, or paragraphs or lines that were seen before.

Documents: documents.py. Paragraphs and lines: lines.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow

from ingot.data.engine.shard import Shard
from ingot.data.engine.work import Work
from ingot.data.keep import KEEP_DESCRIPTION as KEEP_DESCRIPTION
from ingot.data.keep import Keep as Keep
from ingot.data.keep import KeepConfig as KeepConfig
from ingot.data.step import Rule
from ingot.data.steps.exact_dedup import documents, lines
from ingot.data.steps.exact_dedup.options import ExactDedupOptions


class ExactDedupStep(ExactDedupOptions):
    """Remove what is the same: whole documents, or paragraphs or lines wherever they were seen before.

    `document` removes documents. `paragraph` and `line` rewrite the text instead: a paragraph or line that stood in an
    earlier document, or earlier in the same one, is cut out; a document that loses more than `max_removed` of its text
    is removed whole. Texts are compared by 128-bit hashes.
    """

    rate = 156

    def annotate(self, shards: Sequence[Shard], work: Work) -> list[Path]:
        return (documents if self.scope == "document" else lines).annotate(self, shards, work)

    def decide(self, columns: pyarrow.Table) -> list[Rule]:
        return documents.decide(columns) if self.scope == "document" else lines.decide(self, columns)
