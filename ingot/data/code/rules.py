"""Rules for code: too short, minified, generated, or only data. The step `code_rules`.

Long lines, the mean line and the share of letters and digits are the filters of StarCoder (Li et al. 2023); marks of
generated files and tables of literals are the two kinds of dirt that an installed Python distribution is full of
(unicode tables, protocol stubs, codecs made by a script).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ingot.data.code.config import CodeRulesStep
from ingot.data.code.generated import generated_marks
from ingot.data.code.lines import ALNUM, CHARACTERS, DATA, FILLED, LINES, LONGEST, WORDS, count_lines
from ingot.data.step import PerDocument, Rule, at_least, at_most, numbers
from ingot.data.text.texts import Texts

if TYPE_CHECKING:
    import pyarrow


class CodeRules(PerDocument[CodeRulesStep]):
    """Counts lines, characters and literals; removes what breaks a threshold."""

    def annotate(self, documents: pyarrow.Table) -> dict[str, pyarrow.Array]:
        import pyarrow

        texts = Texts.of(documents.column("text"))
        counts = count_lines(texts).T
        return {
            "code_words": pyarrow.array(counts[WORDS]),
            "code_generated": pyarrow.array(
                generated_marks(texts, self.config.generated_marker_lines), pyarrow.string()
            ),
            "code_longest_line": pyarrow.array(counts[LONGEST]),
            "code_mean_line": pyarrow.array(counts[CHARACTERS] / np.maximum(counts[LINES], 1)),
            "code_alphanumeric": pyarrow.array(counts[ALNUM] / np.maximum(counts[CHARACTERS], 1)),
            "code_data_lines": pyarrow.array(counts[DATA] / np.maximum(counts[FILLED], 1)),
        }

    def rules(self, columns: pyarrow.Table) -> list[Rule]:
        config = self.config
        marks = columns.column("code_generated")
        return [
            at_least("word count", numbers(columns, "code_words"), config.min_words),
            Rule("generated file", marks.is_valid().to_numpy(), [f"({mark})" for mark in marks.to_pylist()]),
            at_most("longest line", numbers(columns, "code_longest_line"), config.max_line_length),
            at_most("mean line length", numbers(columns, "code_mean_line"), config.max_mean_line_length),
            at_least("letters and digits", numbers(columns, "code_alphanumeric"), config.min_alphanumeric),
            at_most("data lines", numbers(columns, "code_data_lines"), config.max_data_lines),
        ]
