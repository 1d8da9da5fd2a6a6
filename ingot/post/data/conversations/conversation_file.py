"""Conversations of files as training sequences: read (row_forms.py), filtered, rendered by the template, weighted (learn.py).

A row that does not say `thinking`, and has no trace in a message, is learnt in both modes, so that it is answered whichever mode
a chat is in: with an empty trace, as a model writes it that always opens one, and in the mode without thinking. A model without
thinking tokens has one mode.

Everything is checked before it is rendered: a template prints a list or a number as readily as a text, and a model would
learn it. What is wrong is an error that names the file, the row and the field.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from ingot.envs.rows import stream_rows
from ingot.post.data.conversations.conversation import Conversation, in_mode
from ingot.post.data.conversations.conversation_filter import ConversationFilter
from ingot.post.data.conversations.learn import Learn, token_weights
from ingot.post.data.conversations.row_forms import AUTO, conversations_of, thinking_of
from ingot.tokens.batch import TokenSequence
from ingot.tokens.chat import ChatFormat, Message
from ingot.tokens.rendering import UnprintedTraceError
from ingot.tokens.tokenizer import THINK_START
from ingot.workspace.errors import DataError

TooLong = Literal["error", "leave_out", "cut"]
BadRows = Literal["error", "leave_out"]
Traces = Literal["learn", "drop"]
TOO_LONG, BAD_ROW = "too long", "bad row"
SHOWN = 2000  # characters of a dropped conversation that an example shows


@dataclass(frozen=True)
class RowReading:
    """How the rows of one file become sequences."""

    form: str = AUTO
    learn: Learn = "assistant"
    longest: int | None = None  # tokens of a sequence
    too_long: TooLong = "error"
    bad_rows: BadRows = "error"
    traces: Traces = "learn"
    filters: tuple[ConversationFilter, ...] = ()
    spare_tools: float = 0.0  # chance that a conversation without tools is offered
    offered: tuple[dict[str, object], ...] = ()  # these


@dataclass(frozen=True)
class Dropped:
    """A conversation that is not learnt from: what dropped it, why, and its beginning."""

    by: str
    reason: str
    place: str
    text: str = ""


@dataclass(frozen=True)
class Rendered:
    """A conversation as sequences, one for each mode of thinking in which it is learnt; `cut` of them lost their end.

    `said` are the conversations as each mode renders them.
    """

    sequences: list[TokenSequence]
    cut: int = 0
    said: list[Conversation] = field(default_factory=list, compare=False)


def file_conversations(path: Path, chat: ChatFormat, longest: int | None = None) -> list[TokenSequence]:
    """Every conversation of a file as training sequences of at most `longest` tokens: one, or one for each mode of thinking."""
    return [sequence for sequence, _ in rendered_conversations(path, chat, longest)]


def rendered_conversations(
    path: Path, chat: ChatFormat, longest: int | None = None
) -> list[tuple[TokenSequence, Conversation]]:
    """The same, each sequence with the conversation that it says."""
    reading = RowReading(longest=longest)
    made = (each for place, row in stream_rows(str(path)) for each in render_row(place, row, chat, reading))
    whole = [each for each in made if isinstance(each, Rendered)]
    return [pair for each in whole for pair in zip(each.sequences, each.said, strict=True)]


def render_row(
    place: str, row: Mapping[str, Any], chat: ChatFormat, reading: RowReading, kept: Sequence[bool] | None = None
) -> Iterator[Rendered | Dropped]:
    """What becomes of a row's conversations; those that are not `kept` are passed over."""
    for number, each in enumerate(read_row(place, row, reading)):
        if kept is not None and not kept[number]:
            continue
        if isinstance(each, Dropped):
            yield each
            continue
        try:
            yield _render(each, chat, reading)
        except TooLongError as error:
            if reading.too_long == "error":
                raise _placed(error, place) from error
            yield Dropped(TOO_LONG, error.problem, place, each.text[:SHOWN])
        except DataError as error:
            yield _bad(error, place, reading)


def read_row(place: str, row: Mapping[str, Any], reading: RowReading) -> Iterator[Conversation | Dropped]:
    """The conversations of a row, each of them unless a filter drops it."""
    try:
        found = list(conversations_of(row, reading.form))
    except DataError as error:
        yield _bad(error, place, reading)
        return
    for conversation in found:
        for each in reading.filters:
            if reason := each.reason(conversation):
                yield Dropped(each.short_name, reason, place, conversation.text[:SHOWN])
                break
        else:
            yield conversation if reading.traces == "learn" else _without_traces(conversation)


def can_follow(conversation: Conversation) -> bool:
    """Whether it can come after other questions as it is: no tools of its own, no system message, every answer learnt."""
    roles = {message.role for message in conversation.messages}
    whole = not conversation.plain and all(weight != 0 for weight in conversation.weights)
    whole = whole and not any(message.problems for message in conversation.messages)
    return whole and not conversation.tools and roles == {"user", "assistant"}


def _without_traces(conversation: Conversation) -> Conversation:
    """The conversation as if its row had none."""
    messages = [message.without_thinking() for message in conversation.messages]
    return replace(conversation, messages=messages, thinking=thinking_of(conversation.row))


class TooLongError(DataError):
    """A conversation that does not fit into a row of the stage."""


def _bad(error: DataError, place: str, reading: RowReading) -> Dropped:
    if reading.bad_rows == "error":
        raise _placed(error, place) from error
    return Dropped(BAD_ROW, str(_placed(error, "")), place)


def _placed(error: DataError, place: str) -> DataError:
    where = ", ".join(filter(None, (place, error.place)))
    fix = f"{error.fix}; or write traces: drop" if isinstance(error, UnprintedTraceError) else error.fix
    return DataError(error.problem, place=where or None, fix=fix)


def _render(conversation: Conversation, chat: ChatFormat, reading: RowReading) -> Rendered:
    for number, message in enumerate(conversation.messages):
        if message.problems:
            fix = "drop such rows: filters: [incomplete_thoughts]"
            raise DataError(message.problems[0], place=f"message {number}", fix=fix)
    if conversation.plain:
        made, said = [_plain(conversation, chat)], [conversation]
    else:
        modes = _modes(conversation, chat)
        made = [
            _in_mode(_with_spare(conversation, mode, reading), messages, mode, chat, reading.learn)
            for mode, messages in modes.items()
        ]
        made = made[:1] if made[0] == made[-1] else made  # a template without modes renders both alike
        said = [replace(conversation, messages=list(listed), thinking=mode) for mode, listed in modes.items()]
    whole = [_fitted(sequence, reading) for sequence in made]
    cut = sum(len(new.tokens) < len(old.tokens) for new, old in zip(whole, made, strict=True))
    return Rendered(whole, cut, said[: len(whole)])


def _modes(conversation: Conversation, chat: ChatFormat) -> dict[bool, Sequence[Message]]:
    """The messages by the modes of thinking in which the conversation is learnt."""
    messages = conversation.messages
    if conversation.thinking is not None:
        return {conversation.thinking: messages}
    if THINK_START not in chat.tokenizer.special:
        return {False: messages}
    return {True: in_mode(messages, True), False: messages}


def _with_spare(conversation: Conversation, thinking: bool, reading: RowReading) -> Conversation:
    """The conversation with tools that it does not need, as a chat offers them; drawn by its text, so every start draws alike."""
    if conversation.tools or not reading.offered:
        return conversation
    offered = random.Random(f"spare/{thinking}/{conversation.text}").random() < reading.spare_tools
    return replace(conversation, tools=list(reading.offered)) if offered else conversation


def _in_mode(
    conversation: Conversation, messages: Sequence[Message], thinking: bool, chat: ChatFormat, learn: Learn
) -> TokenSequence:
    tokens, mask = chat.conversation(messages, conversation.tools, thinking)
    return TokenSequence(tokens, {"weight": token_weights(chat, tokens, mask, conversation, learn)})


def _plain(conversation: Conversation, chat: ChatFormat) -> TokenSequence:
    """The texts one after the other, without a template, and the end of a text."""
    tokens = list(chat.tokenizer.opening)
    weights = [0.0] * len(tokens)
    for message, weight in zip(conversation.messages, conversation.weights, strict=True):
        part = chat.tokenizer.encode(message.content)
        tokens += part
        weights += [weight] * len(part)
    return TokenSequence([*tokens, chat.tokenizer.end_of_text], {"weight": [*weights, 1.0]})


def _fitted(sequence: TokenSequence, reading: RowReading) -> TokenSequence:
    """The sequence, without its end if it is too long and may be cut."""
    if reading.longest is None or len(sequence.tokens) <= reading.longest:
        return sequence
    cut = {name: values[: reading.longest] for name, values in sequence.streams.items()}
    if reading.too_long == "cut" and any(cut["weight"][1:]):
        return TokenSequence(sequence.tokens[: reading.longest], cut)
    raise TooLongError(
        f"the conversation has {len(sequence.tokens)} tokens, a row of this stage takes {reading.longest}",
        fix="raise the stage's sequence_length, or write too_long: leave_out or cut",
    )
