"""COPA: the likelier cause or effect (Roemmele et al. 2011).

The harness begins each choice with a space of its own, after its delimiter; so does this, to score the same text.
"""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from ingot.envs.rows import Row, need
from ingot.evals.bases.choice_suite import ChoiceSuite
from ingot.evals.bases.choices import Item, Score, gold_index
from ingot.evals.bases.gauntlet import is_gauntlet, parts_of

CONNECTORS = {"cause": "because", "effect": "therefore"}


class Copa(ChoiceSuite):
    """COPA: the likelier cause or effect."""

    local: ClassVar[tuple[str, ...]] = ("copa/val*.jsonl*", "core_icl/copa.jsonl*")
    hub: ClassVar[tuple[str, ...]] = ("hf:aps/super_glue:copa:validation",)
    shot_hub: ClassVar[tuple[str, ...]] = ("hf:aps/super_glue:copa:train",)
    drops_itself: ClassVar[bool] = True
    scores: tuple[Score, ...] = Field(("raw",), min_length=1, description="how choices are ranked")

    def item(self, row: Row, place: str) -> Item:
        """The premise of a row, with what may be its cause or effect."""
        if is_gauntlet(row):
            parts = parts_of(row, place)
            return Item(parts.question, tuple(f" {choice}" for choice in parts.choices), parts.gold)
        premise = need(row, "premise", str, place).strip()[:-1]
        choices = [need(row, column, str, place) for column in ("choice1", "choice2")]
        return Item(
            f"{premise} {CONNECTORS[row['question']]}",
            tuple(f" {choice[0].lower()}{choice[1:]}" for choice in choices),
            gold_index(row.get("label"), 2, place),
        )
