"""Rows that a reward model learns from, as tokens up to the end of each answer.

    {prompt, chosen, rejected, margin}     a pair in any of the forms of pair_rows.py; `margin` may be missing
    {prompt, completion, score}            an answer with the number that it should earn

A row is rendered once: with thinking if it says so or has a trace, else without. An answer ends with the last token that the
assistant writes, the end of its turn; what a template prints behind it is cut off.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ingot.envs.rows import read_rows
from ingot.post.data.pairs.pair import Answer
from ingot.post.data.pairs.pair_file import TooLong, encode_answers
from ingot.post.data.pairs.pair_rows import PreferenceRow, read_row
from ingot.tokens.batch import TokenSequence
from ingot.tokens.chat import ChatFormat
from ingot.workspace.errors import DataError


@dataclass(frozen=True)
class RewardRow:
    """The tokens of one or two answers (the first is the better one), and the margin or the score."""

    answers: tuple[list[int], ...]
    value: float

    def sequences(self) -> list[TokenSequence]:
        """As training sequences: every answer has one more token at its end, on which the streams stand."""
        if len(self.answers) == 1:
            return [marked(self.answers[0], {"rated": 1.0, "score": self.value})]
        chosen, rejected = self.answers
        better, worse = {"chosen": 1.0, "rejected": 0.0}, {"chosen": 0.0, "rejected": 1.0}
        return [marked(chosen, {**better, "margin": self.value}), marked(rejected, {**worse, "margin": self.value})]


def marked(tokens: Sequence[int], values: Mapping[str, float]) -> TokenSequence:
    """Tokens with one more behind them, which has these values: they are about the state at the last of `tokens`."""
    return TokenSequence([*tokens, 0], {name: [0.0] * len(tokens) + [value] for name, value in values.items()})


def until_its_end(answer: Answer) -> list[int]:
    """The tokens up to the last one that the assistant wrote."""
    marks = answer.sampled()
    return answer.tokens()[: max(place for place, one in enumerate(marks, 1) if one)]


def read_reward_rows(
    files: Sequence[str], chat: ChatFormat, longest: int, too_long: TooLong, *, paired: bool
) -> tuple[list[RewardRow], int]:
    """The rows of all files, and how many were left out because an answer has more than `longest` tokens."""
    found, left_out = [], 0
    for place, row in _encoded(files, chat, paired):
        length = max(map(len, row.answers))
        if length <= longest:
            found.append(row)
        elif too_long == "leave_out":
            left_out += 1
        else:
            raise DataError(
                f"the longer conversation has {length} tokens, a row of this stage takes {longest}",
                place=place,
                fix="raise the stage's sequence_length, or write too_long: leave_out",
            )
    return found, left_out


def _encoded(files: Sequence[str], chat: ChatFormat, paired: bool) -> Iterator[tuple[str, RewardRow]]:
    for place, values in (row for name in files for row in read_rows(name)):
        try:
            value = _number(values, "margin", 0.0) if paired else _number(values, "score", None)
            row = read_row(values if paired else {**values, "label": True})  # rated answers, rated by a number
            if paired and row.label is not None:
                raise DataError(
                    "this row is one answer, and the algorithm compares two", fix="use algorithm: regression"
                )
            thinking = row.thinking is True or (row.thinking is None and _has_trace(row))
            answers = encode_answers(chat, row.prompt, row.answers, row.tools, thinking)
            yield place, RewardRow(tuple(until_its_end(answer) for answer in answers), value)
        except DataError as error:
            where = f"{place}, {error.place}" if error.place else place
            raise DataError(error.problem, place=where, fix=error.fix) from error


def _number(row: Any, name: str, default: float | None) -> float:
    value = row.get(name, default) if isinstance(row, dict) else default
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise DataError(f"`{name}` is {value!r}", fix=f'write a number: {{…, "{name}": 0.5}}')
    return float(value)


def _has_trace(row: PreferenceRow) -> bool:
    return any(message.thinking is not None for part in (row.prompt, *row.answers) for message in part)
