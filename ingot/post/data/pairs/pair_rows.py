"""Rows of preference files as people have them, read into one form: a prompt and the messages of one or two answers.

    {prompt, chosen, rejected}                                 TRL; each a text or a list of messages
    {chosen, rejected}                                         the prompt is what both begin with; also "Human: …" transcripts
    {conversations, chosen, rejected}                          LLaMA-Factory (from/value, one message each)
    {instruction, input, chosen, rejected}                     Alpaca with preferences; `system`, `history`
    {input: {messages}, preferred_output, non_preferred_output}  OpenAI
    {prompt, completion, label}                                rated answers; label is true or false
    {messages, label}, {conversations, label}                  the same, the last message is the answer

A row may have `tools` and `thinking` as in conversation files. Everything is checked before it is rendered: a template prints a
list or a number as readily as a text. Errors name the field.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

from ingot.post.data.conversations import row_messages
from ingot.post.data.conversations.row_forms import sharegpt_turn, thinking_of, tools_of
from ingot.tokens.message import Message
from ingot.workspace.errors import DataError

PAIR = ("chosen", "rejected")
TRANSCRIPT = re.compile(r"\n\n(Human|Assistant):")
FORMS = (
    "write {prompt, chosen, rejected}, {chosen, rejected}, {conversations, chosen, rejected}, "
    "{instruction, input, chosen, rejected}, {input, preferred_output, non_preferred_output} or {prompt, completion, label}"
)


@dataclass(frozen=True)
class PreferenceRow:
    """A prompt with two answers, of which the first is preferred, or with one answer and its label."""

    prompt: list[Message]
    answers: tuple[list[Message], ...]
    label: bool | None = None
    tools: tuple[dict[str, Any], ...] = ()
    thinking: bool | None = None


def read_row(row: Any) -> PreferenceRow:
    """A row of any of the forms; a DataError names what is wrong with it."""
    if not isinstance(row, dict):
        raise DataError("not a mapping", fix=FORMS)
    row = {name: value for name, value in row.items() if value is not None}  # Arrow fills what is missing
    if isinstance(row.get("input"), dict):  # OpenAI's
        row = {"prompt": row["input"].get("messages"), "tools": row["input"].get("tools")} | {
            ours: row[theirs]
            for ours, theirs in (("chosen", "preferred_output"), ("rejected", "non_preferred_output"))
            if theirs in row
        }
    options = _tools_and_thinking(row)
    if "label" in row or "kto_tag" in row:
        return _rated(row, options)
    if not all(name in row for name in PAIR):
        raise DataError(f"neither a pair nor a rated answer: it has {', '.join(sorted(row)) or 'nothing'}", fix=FORMS)
    prompt = _prompt(row)
    if prompt is None and all(isinstance(row[name], str) and not TRANSCRIPT.match(row[name]) for name in PAIR):
        row, prompt = _split_texts(row)
    chosen, rejected = (_answer(row[name], name) for name in PAIR)
    if prompt is not None and not all(answer[: len(prompt)] == prompt for answer in (chosen, rejected)):
        chosen, rejected = prompt + chosen, prompt + rejected
    shared = _common(chosen, rejected)
    if not shared:
        problem = "there is no `prompt`, and `chosen` and `rejected` do not begin with the same messages"
        raise DataError(problem, fix="give `prompt`, or let both begin with it")
    return PreferenceRow(shared, (chosen[len(shared) :], rejected[len(shared) :]), **options)


def read_prompt(row: Any) -> PreferenceRow:
    """A row of a file of prompts: {prompt}, {messages} or {instruction, input}; an answer at its end is left out."""
    if not isinstance(row, dict):
        raise DataError("not a mapping", fix='write {"prompt": …}')
    row = {name: value for name, value in row.items() if value is not None}
    prompt = _prompt(row)
    while prompt and prompt[-1].role == "assistant":
        prompt = prompt[:-1]
    if not prompt:
        raise DataError("no prompt in this row", fix='write {"prompt": …} or {"messages": […]}')
    return PreferenceRow(prompt, (), **_tools_and_thinking(row))


def _rated(row: Mapping[str, Any], options: dict[str, Any]) -> PreferenceRow:
    label = row.get("label", row.get("kto_tag"))
    if not isinstance(label, bool):
        raise DataError(f"`label` is {label!r}", fix="write true for a good answer, false for a bad one")
    prompt = _prompt(row)
    if "completion" in row or "output" in row:
        name = "completion" if "completion" in row else "output"
        if prompt is None:
            raise DataError(
                f"there is a `{name}` without a `prompt`", fix='write {"prompt": …, "completion": …, "label": true}'
            )
        return PreferenceRow(prompt, (_answer(row[name], name),), label, **options)
    if prompt is None or prompt[-1].role != "assistant" or len(prompt) < 2:
        raise DataError("no answer in this row", fix='write {"prompt": …, "completion": …, "label": true}')
    return PreferenceRow(prompt[:-1], ([prompt[-1]],), label, **options)


def _prompt(row: Mapping[str, Any]) -> list[Message] | None:
    """The prompt of a row, if it stands by itself."""
    system = [Message("system", row["system"])] if isinstance(row.get("system"), str) and row["system"] else []
    for name in ("prompt", "messages", "conversations"):
        if name in row:
            value = row[name]
            return system + ([Message("user", value)] if isinstance(value, str) else read_messages(value, name))
    if "instruction" not in row:
        return None
    parts = [row["instruction"], row.get("input") or ""]
    if not all(isinstance(part, str) for part in parts):
        raise DataError("`instruction` or `input` is not a text", fix="write strings")
    turns = list[Message]()
    for question, answer in row.get("history") or ():
        turns += [Message("user", question), Message("assistant", answer)]
    return [*system, *turns, Message("user", "\n".join(part for part in parts if part))]


def _answer(value: Any, name: str) -> list[Message]:
    if isinstance(value, str):
        return _transcript(value) if TRANSCRIPT.match(value) else [Message("assistant", value)]
    messages = read_messages([value] if isinstance(value, dict) else value, name)
    if messages[-1].role != "assistant":
        raise DataError("the last message is not the assistant's", place=name, fix="end with an answer")
    return messages


def _transcript(text: str) -> list[Message]:
    """A conversation as Anthropic's hh-rlhf writes it."""
    _, *parts = TRANSCRIPT.split(text)
    turns = zip(parts[::2], parts[1::2], strict=True)
    return [Message("user" if who == "Human" else "assistant", said.strip()) for who, said in turns]


def _split_texts(row: Mapping[str, Any]) -> tuple[dict[str, Any], list[Message]]:
    """Two texts that begin alike: the words that they share are the prompt."""
    both = zip(*(row[name] for name in PAIR), strict=False)
    shared = "".join(one for one, _ in takewhile(lambda letters: letters[0] == letters[1], both))
    shared = shared[: shared.rfind(" ") + 1]
    if not shared.strip():
        raise DataError("there is no `prompt`, and `chosen` and `rejected` do not begin alike", fix=FORMS)
    cut = {name: row[name][len(shared) :] for name in PAIR}
    return {**row, **cut}, [Message("user", shared.strip())]


def _common(chosen: Sequence[Message], rejected: Sequence[Message]) -> list[Message]:
    """What both begin with, up to where the assistant answers in each; the last message of neither is part of it."""
    same = 0
    while same < min(len(chosen), len(rejected)) - 1 and chosen[same] == rejected[same]:
        same += 1
    while same and not chosen[same].role == rejected[same].role == "assistant":
        same -= 1
    return list(chosen[:same])


def read_messages(value: Any, name: str) -> list[Message]:
    """A list of messages, as conversation files have them."""
    if not isinstance(value, list) or not value:
        raise DataError(
            "neither a text nor a list of messages", place=name, fix='write [{"role": "user", "content": …}]'
        )
    try:
        return row_messages.read_messages([sharegpt_turn(each, number) for number, each in enumerate(value)], name)[0]
    except DataError as error:
        raise DataError(error.problem, place=f"{name}, {error.place}", fix=error.fix) from error


def _tools_and_thinking(row: Mapping[str, Any]) -> dict[str, Any]:
    return {"tools": tuple(tools_of(row)), "thinking": thinking_of(row)}
