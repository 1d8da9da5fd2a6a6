"""What a teacher with another tokenizer reads in place of the student's tokens, and which tokens of both are compared.

Every answer is read by itself, behind the teacher's own prompt for it: the turns before it, rendered by the teacher's template
as that template renders them when the answer is to be written (some drop earlier traces). Only the bytes of answers are
compared; what both templates print around them is each model's own. The price is that a conversation of several answers is read
several times. A teacher with the student's tokens reads the student's sequence as it is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from ingot.envs.episode import Episode
from ingot.envs.tools.tool import Tool, schemas
from ingot.post.data.conversations.conversation import Conversation
from ingot.tokens.alignment import TokenGroup
from ingot.tokens.batch import TokenSequence
from ingot.tokens.chat import ChatFormat, Message
from ingot.tokens.respell import Respeller
from ingot.workspace.errors import DataError

PLACES = "teacher_place"
"""Vector of int32 [tokens, 4]: the view of a group (from 1), the token whose state is read, and the group's first and last."""


@dataclass(frozen=True)
class AnswerSpan:
    """Tokens start to stop of a sequence are the student's, after these messages."""

    start: int
    stop: int
    before: Sequence[Message]


@dataclass(frozen=True)
class Dialogue:
    """The answers of one sequence of the student's, and what its prompts were made from."""

    tokens: list[int]
    answers: Sequence[AnswerSpan]
    tools: Sequence[dict[str, Any]] = ()
    thinking: bool = True


@dataclass(frozen=True)
class View:
    """Tokens of the teacher, and the groups of the student's sequence that they spell."""

    tokens: list[int]
    groups: list[TokenGroup] = field(default_factory=list)


def episode_dialogues(episode: Episode, more_tools: Mapping[str, Tool]) -> list[Dialogue]:
    """One for each segment of an episode."""
    tools = schemas({**more_tools, **{tool.name: tool for tool in episode.task.tools}}.values())
    made = []
    for segment in episode.segments:
        answers, said, start = list[AnswerSpan](), list[Message](), 0
        for node in segment.nodes:
            stop = start + len(node.tokens)
            if node.sampled:
                answers.append(AnswerSpan(start, stop, list(said)))
            said += node.messages
            start = stop
        offered = tools if segment.tools is None else segment.tools
        made.append(Dialogue(segment.tokens(), answers, offered, episode.task.thinking))
    return made


def conversation_dialogue(sequence: TokenSequence, conversation: Conversation, chat: ChatFormat) -> Dialogue:
    """That of a conversation of a file: the turns that are learnt begin where the prompts for them end."""
    if conversation.plain:
        raise DataError(
            "a text without turns cannot be shown to a teacher with another chat template",
            fix="give conversations, or a teacher with the student's tokenizer",
        )
    thinking = conversation.thinking is not False
    learnt = sequence.streams["weight"]
    answers = []
    for number, message in enumerate(conversation.messages):
        if message.role != "assistant":
            continue
        before = conversation.messages[:number]
        start = len(chat.prompt(before, conversation.tools, thinking))
        stop = next((place for place in range(start, len(learnt)) if not learnt[place]), len(learnt))
        if stop > start and not learnt[start - 1]:
            answers.append(AnswerSpan(start, stop, before))
    return Dialogue(sequence.tokens, answers, conversation.tools, thinking)


def make_views(dialogue: Dialogue, respeller: Respeller | None) -> list[View]:
    """What the teacher reads: one text for each answer, or the student's own sequence."""
    if respeller is None:
        places = [place for each in dialogue.answers for place in range(each.start, each.stop)]
        return [View(dialogue.tokens, [TokenGroup(at, at + 1, at, at + 1) for at in places])]
    views = []
    for each in dialogue.answers:
        traces = respeller.other.syntax.thinks and dialogue.thinking
        before = [message if traces else message.without_thinking() for message in each.before]
        prompt = respeller.other.prompt(before, list(dialogue.tools) or None, dialogue.thinking)
        opened = respeller.chat.opens_trace(dialogue.tokens[: each.start])
        written = respeller.respell(
            dialogue.tokens[each.start : each.stop], opened, respeller.other.opens_trace(prompt)
        )
        moved = [group.moved(each.start, len(prompt)) for group in written.groups]
        views.append(View(prompt + written.tokens, moved))
    return views


def with_groups(sequence: TokenSequence, views: Sequence[View], first: int, last: bool) -> TokenSequence:
    """The sequence with the streams and vectors of groups (train/losses/gold.py); its views are numbered from `first`.

    `last`: a group's distribution is that of its last token, else that of its first. A group with a token that is not learnt is
    left out.
    """
    learnt = sequence.streams["response_mask"]
    starts = [float(one != 0) for one in learnt]
    bases = [0.0] * len(learnt)
    places = torch.zeros(len(learnt), 4, dtype=torch.int32)
    for number, view in enumerate(views, first):
        for group in view.groups:
            if not all(learnt[group.start : group.stop]):
                continue
            starts[group.start + 1 : group.stop] = [0.0] * (group.stop - group.start - 1)
            base, read = (group.stop - 1, group.other_stop - 1) if last else (group.start, group.other_start)
            bases[base] = 1.0
            places[base] = torch.tensor([number, read, group.other_start, group.other_stop - 1])
    streams = {**sequence.streams, "group_start": starts, "group_base": bases}
    return TokenSequence(sequence.tokens, streams, {**sequence.vectors, PLACES: places})
