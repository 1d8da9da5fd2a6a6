"""Preference pairs and rated answers from files: JSON Lines, CSV, Parquet, data sets of `datasets` (envs/rows.py).

The forms of their rows are in pair_rows.py. Prompt and answers are encoded by the chat format, and the prompt must be an exact
token prefix of each conversation; only what the assistant writes after it is compared. A row that does not say `thinking`, and
has no trace, is learnt in both modes of thinking, as in conversation files. What is wrong is an error with file, row and field.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from ingot.envs.rows import read_rows
from ingot.post.data.pairs.pair import FileAnswer, Pair
from ingot.post.data.pairs.pair_rows import PreferenceRow, read_row
from ingot.post.data.pairs.unpaired import Rated
from ingot.tokens.chat import ChatFormat, Message
from ingot.workspace.errors import DataError

TooLong = Literal["error", "leave_out"]


@dataclass
class FileRows:
    """What files hold, and how many of their rows were left out because they are too long."""

    pairs: list[Pair[FileAnswer]] = field(default_factory=list)
    rated: list[Rated] = field(default_factory=list)
    left_out: int = 0


def read_pairs(files: Sequence[str], chat: ChatFormat, longest: int, too_long: TooLong, *, paired: bool) -> FileRows:
    """The pairs of all files, or if not `paired` their rated answers; a conversation has at most `longest` tokens."""
    found = FileRows()
    for place, values in (row for name in files for row in read_rows(name)):
        try:
            row = read_row(values)
            _check_kind(row, paired)
            kinds = _modes(row)
            modes = [_encode(chat, row, thinking, opened=thinking and len(kinds) > 1) for thinking in kinds]
        except DataError as error:
            where = f"{place}, {error.place}" if error.place else place
            raise DataError(error.problem, place=where, fix=error.fix) from error
        length = max(len(written.ids) for answers in modes for written in answers)
        if length > longest:
            if too_long == "error":
                raise DataError(
                    f"the longer conversation has {length} tokens, a row of this stage takes {longest}",
                    place=place,
                    fix="raise the stage's sequence_length, or write pairs: {too_long: leave_out}",
                )
            found.left_out += 1
            continue
        for answers in modes[:1] if modes[0] == modes[-1] else modes:  # a template without modes renders both alike
            if paired:
                found.pairs.append(Pair(*answers))
            else:
                found.rated.append(Rated(answers[0], good=bool(row.label)))
    return found


def _check_kind(row: PreferenceRow, paired: bool) -> None:
    """Fail if a loss of pairs meets a rated answer, or the other way round."""
    if paired and row.label is not None:
        raise DataError(
            "this row is one rated answer, and the algorithm compares two",
            fix="use algorithm: kto, or rows of {prompt, chosen, rejected}",
        )
    if not paired and row.label is None:
        raise DataError(
            "this row is a pair, and the algorithm takes single rated answers",
            fix="use algorithm: dpo, or write two rows of {prompt, completion, label}",
        )


def _modes(row: PreferenceRow) -> list[bool]:
    """The modes of thinking in which a row is learnt: both, if it does not say."""
    traced = any(message.thinking is not None for part in (row.prompt, *row.answers) for message in part)
    return [row.thinking is not False] if traced or row.thinking is not None else [True, False]


def _encode(chat: ChatFormat, row: PreferenceRow, thinking: bool, opened: bool) -> list[FileAnswer]:
    """The row's conversations in one mode of thinking; with `opened` every answer begins with an empty trace."""
    prompt, *answers = ([_opened(each) if opened else each for each in part] for part in (row.prompt, *row.answers))
    return encode_answers(chat, prompt, answers, row.tools, thinking)


def _opened(message: Message) -> Message:
    """An assistant's message with an empty trace, as a model writes it that always opens one."""
    return replace(message, thinking="") if message.role == "assistant" else message


def encode_answers(
    chat: ChatFormat,
    prompt: Sequence[Message],
    answers: Sequence[Sequence[Message]],
    tools: Sequence[dict[str, Any]],
    thinking: bool,
) -> list[FileAnswer]:
    """Conversations with marks on what the assistant writes after the prompt, whose tokens are an exact prefix of each."""
    given, encoded = chat.prompt(prompt, tools, thinking), []
    for answer in answers:
        tokens, mask = chat.conversation([*prompt, *answer], tools, thinking)
        if tokens[: len(given)] != given:
            raise DataError(
                "the chat template renders the prompt differently once the answer is there: it is not a prefix",
                fix="leave the row out, or use a template that prints the same text before an answer",
            )
        encoded.append(FileAnswer(tokens, [0] * len(given) + mask[len(given) :]))
    return encoded
