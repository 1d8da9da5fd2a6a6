"""A choice that the model writes after thinking about it: how it is asked for, and how it is found in what was written.

The prompt is that of OpenAI's simple-evals for MMLU and GPQA: no worked examples, the choices with letters, and a last line
`Answer: X`. There the first match of

    (?i)Answer[ \\t]*:[ \\t]*\\$?([A-D])\\$?

is the choice. Here it is the last one, because a model weighs choices before it decides; marks of Markdown and LaTeX do not
count, the letter may stand in brackets, or alone on the line after `Answer:`; and it must stand by itself: `Because` is no B.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache

from ingot.evals.bases.choices import LETTERS, lettered

INSTRUCTION = (
    "Answer the following multiple choice question. The last line of your response should be of the following format: "
    "'Answer: $LETTER' (without quotes) where LETTER is one of {letters}. Think step by step before answering."
)
MARKS = re.compile(r"[*_`${}]|\\[()\[\]]|\\(?:boxed|fbox|text|textbf|mathbf|mathrm)(?![a-zA-Z])")


def ask_for_letter(question: str, choices: Sequence[str]) -> str:
    """The question with its choices, and what the answer should end with."""
    instruction = INSTRUCTION.format(letters=LETTERS[: len(choices)])
    return f"{instruction}\n\n{question}\n\n{lettered(choices, '{letter}) {choice}')}"


def written_choice(text: str, count: int) -> int | None:
    """The number of the choice that the text decides for, out of so many; None if it names none."""
    found = [after_word or alone for after_word, alone in _pattern(count).findall(MARKS.sub("", text))]
    return LETTERS.index(found[-1].upper()) if found else None


@cache
def _pattern(count: int) -> re.Pattern[str]:
    letter = rf"[(\[]?([A-{LETTERS[count - 1]}])"
    return re.compile(
        rf"answer[ \t]*[:：](?:[ \t]*{letter}(?!\w)|\s+{letter}[)\].]*[ \t]*$)", re.IGNORECASE | re.MULTILINE
    )
