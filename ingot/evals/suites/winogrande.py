"""WinoGrande: whom a pronoun means (Sakaguchi et al. 2020). The choices stand before the ending, and the ending is scored.

    "Sarah was a much better surgeon than Maria so" + [" Sarah" | " Maria"] + " always got the easier cases."

Sentences come in twins that differ in a word: a twin pair is one cluster.
"""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from ingot.envs.rows import Row, need
from ingot.evals.bases.choice_suite import ChoiceSuite
from ingot.evals.bases.choices import Item, Score, gold_index
from ingot.evals.bases.identity import digest


class Winogrande(ChoiceSuite):
    """WinoGrande: whom a pronoun means."""

    local: ClassVar[tuple[str, ...]] = ("winogrande/val*.jsonl*", "core_icl/winogrande.jsonl*")
    hub: ClassVar[tuple[str, ...]] = ("hf:allenai/winogrande:winogrande_xl:validation",)
    shot_hub: ClassVar[tuple[str, ...]] = ("hf:allenai/winogrande:winogrande_xl:train",)
    drops_itself: ClassVar[bool] = True
    scores: tuple[Score, ...] = Field(("raw",), min_length=1, description="how choices are ranked")

    def item(self, row: Row, place: str) -> Item:
        """The sentence of a row, filled in both ways."""
        if "context_options" in row:
            return filled_item(row, place)
        before, _, after = need(row, "sentence", str, place).partition("_")
        contexts = tuple(before + need(row, option, str, place) for option in ("option1", "option2"))
        gold = gold_index(int(row["answer"]) - 1, 2, place)
        return Item("", (after.strip(),) * 2, gold, contexts=contexts, cluster=digest(before))


def filled_item(row: Row, place: str) -> Item:
    """A row with a context for each choice, and the ending that they share."""
    contexts = tuple(need(row, "context_options", list, place))
    ending, gold = need(row, "continuation", str, place).strip(), gold_index(row.get("gold"), len(contexts), place)
    return Item("", (ending,) * len(contexts), gold, contexts=contexts, cluster=digest(*contexts))
