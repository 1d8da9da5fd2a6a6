"""PIQA: which of two ways reaches a physical goal (Bisk et al. 2020), as cloze."""

from __future__ import annotations

from typing import ClassVar

from ingot.envs.rows import Row, need
from ingot.evals.bases.choice_suite import ChoiceSuite
from ingot.evals.bases.choices import Item, gold_index
from ingot.evals.bases.gauntlet import is_gauntlet, parts_of


class Piqa(ChoiceSuite):
    """PIQA: physical common sense, two ways to a goal."""

    local: ClassVar[tuple[str, ...]] = ("piqa/val*.jsonl*", "core_icl/piqa.jsonl*")
    hub: ClassVar[tuple[str, ...]] = ("hf:baber/piqa:validation",)
    shot_hub: ClassVar[tuple[str, ...]] = ("hf:baber/piqa:train",)
    drops_itself: ClassVar[bool] = True

    def item(self, row: Row, place: str) -> Item:
        """The goal of a row, with its ways."""
        if is_gauntlet(row):
            parts = parts_of(row, place)
            return Item(f"Question: {parts.question}\nAnswer:", parts.choices, parts.gold)
        ways = (need(row, "sol1", str, place), need(row, "sol2", str, place))
        return Item(f"Question: {need(row, 'goal', str, place)}\nAnswer:", ways, gold_index(row.get("label"), 2, place))
