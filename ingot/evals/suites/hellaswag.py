"""HellaSwag: which ending goes on with a description of an everyday scene (Zellers et al. 2019).

Rows are cleaned as the harness cleans them: marks of the WikiHow part in brackets go. `str.capitalize` also puts the rest of
`ctx_b` into lower case. Rows of one video or article are one cluster.
"""

from __future__ import annotations

import re
from typing import ClassVar

from ingot.envs.rows import Row, need
from ingot.evals.bases.choice_suite import ChoiceSuite
from ingot.evals.bases.choices import Item, gold_index

BRACKETS = re.compile(r"\[.*?\]")


class Hellaswag(ChoiceSuite):
    """HellaSwag: the likeliest ending of an everyday scene."""

    local: ClassVar[tuple[str, ...]] = ("hellaswag/val*.jsonl*",)
    hub: ClassVar[tuple[str, ...]] = ("hf:Rowan/hellaswag:validation",)
    shot_hub: ClassVar[tuple[str, ...]] = ("hf:Rowan/hellaswag:train",)
    drops_itself: ClassVar[bool] = True

    def item(self, row: Row, place: str) -> Item:
        """The scene of a row, with its endings."""
        label, before = need(row, "activity_label", str, place), need(row, "ctx_a", str, place)
        endings = tuple(cleaned(ending) for ending in need(row, "endings", list, place))
        scene = cleaned(f"{label}: {before} {need(row, 'ctx_b', str, place).capitalize()}")
        gold = gold_index(row.get("label"), len(endings), place)
        return Item(scene, endings, gold, cluster=str(row.get("source_id") or ""))


def cleaned(text: str) -> str:
    """A text without the marks of WikiHow."""
    return BRACKETS.sub("", text.strip().replace(" [title]", ". ")).replace("  ", " ")
