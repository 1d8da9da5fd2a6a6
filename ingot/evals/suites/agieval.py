"""AGIEval's English exams with choices: LSAT and SAT (Zhong et al. 2023); rows are `query`, `choices`, `gold` as they are.

Questions on one passage are one cluster, which triples the standard error of the reading parts.
"""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from ingot.envs.rows import Row, need
from ingot.evals.bases.choice_suite import ChoiceSuite
from ingot.evals.bases.choices import Item, gold_index
from ingot.evals.bases.gauntlet import first, parts_of
from ingot.evals.bases.identity import digest

PARTS = ("lsat-ar", "lsat-lr", "lsat-rc", "sat-en")


class Agieval(ChoiceSuite):
    """AGIEval: the English exams with choices (LSAT, SAT)."""

    local: ClassVar[tuple[str, ...]] = ("agieval/*.jsonl*", "core_icl/agi_eval_*.jsonl*")
    hub: ClassVar[tuple[str, ...]] = tuple(f"hf:hails/agieval-{part}:test" for part in PARTS)

    def item(self, row: Row, place: str) -> Item:
        """The question of a row, as it is."""
        query, choices = need(row, "query", str, place), tuple(need(row, "choices", list, place))
        gold, *others = row["gold"] if isinstance(row["gold"], list) else [row["gold"]]
        return Item(
            query,
            choices,
            gold_index(first(gold), len(choices), place),
            group=part_of(place),
            cluster=digest(parts_of(row, place).context or query),
            also_gold=tuple(others),
        )


def part_of(place: str) -> str:
    """The exam that a row is of: the name of its file or data set."""
    name = Path(place.rpartition(":")[0]).name.partition(".")[0].partition(":")[0]
    return name.removeprefix("agi_eval_").removeprefix("agieval-")
