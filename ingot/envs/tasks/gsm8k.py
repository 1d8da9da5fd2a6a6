"""GSM8K (Cobbe et al. 2021, arXiv 2110.14168): word problems of primary school, with worked solutions.

Rows: {"question", "answer"}, where the answer ends in a line "#### NUMBER"; `<<48/2=24>>` marks what a calculator computed.
"""

from __future__ import annotations

import re
from typing import ClassVar

from ingot.envs.rows import Row, need
from ingot.envs.tasks._math_problems import MathProblems
from ingot.workspace.errors import DataError

MARKS = re.compile(r"<<[^<>]*>>")


class Gsm8k(MathProblems):
    """Word problems of primary school, answered by a number."""

    label: ClassVar[str] = "GSM8K"

    def problem(self, row: Row, place: str) -> tuple[str, str, str]:
        worked, mark, answer = need(row, "answer", str, place).rpartition("####")
        if not mark:
            raise DataError("the answer has no line ####", place=place, fix="give rows as GSM8K has them")
        return need(row, "question", str, place), answer.strip().replace(",", ""), MARKS.sub("", worked).strip()
