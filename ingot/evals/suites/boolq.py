"""BoolQ: yes or no, after a passage (Clark et al. 2019). Questions on one passage are one cluster."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from ingot.envs.rows import Row, need
from ingot.evals.bases.choice_suite import ChoiceSuite
from ingot.evals.bases.choices import Item, Score
from ingot.evals.bases.gauntlet import is_gauntlet, parts_of
from ingot.evals.bases.identity import digest


class Boolq(ChoiceSuite):
    """BoolQ: yes or no, after a passage."""

    local: ClassVar[tuple[str, ...]] = ("boolq/val*.jsonl*", "core_icl/boolq.jsonl*")
    hub: ClassVar[tuple[str, ...]] = ("hf:aps/super_glue:boolq:validation",)
    shot_hub: ClassVar[tuple[str, ...]] = ("hf:aps/super_glue:boolq:train",)
    drops_itself: ClassVar[bool] = True
    scores: tuple[Score, ...] = Field(("raw",), min_length=1, description="how choices are ranked")

    def item(self, row: Row, place: str) -> Item:
        """The question of a row."""
        if is_gauntlet(row):
            parts = parts_of(row, place)
            passage, question, gold = parts.context, parts.question.removesuffix("?"), parts.gold
        else:
            passage, question = need(row, "passage", str, place), need(row, "question", str, place)
            gold = int(row["label"] if "label" in row else need(row, "answer", bool, place))
        return Item(f"{passage}\nQuestion: {question}?\nAnswer:", ("no", "yes"), gold, cluster=digest(passage))
