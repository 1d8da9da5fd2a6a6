"""An episode as plain values, for JSON and for other processes, and back. Its task and its state are not in it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from itertools import repeat
from typing import Any

from ingot.envs.episode import Episode, Node, Score, Segment
from ingot.envs.task import Task
from ingot.tokens.message import Message, ToolCall


def to_plain(episode: Episode) -> dict[str, Any]:
    """An episode without its task and state."""
    return {
        "segments": [
            [{**vars(node), "messages": [_plain_message(each) for each in node.messages]} for node in segment.nodes]
            for segment in episode.segments
        ],
        "tools": [segment.tools for segment in episode.segments],
        "messages": [_plain_message(message) for message in episode.messages],
        "score": {**vars(episode.score), "detail": dict(episode.score.detail), "rewards": dict(episode.score.rewards)},
        "ended": episode.ended,
        "seconds": dict(episode.seconds),
    }


def from_plain(plain: Mapping[str, Any], task: Task) -> Episode:
    """The inverse of `to_plain`."""
    segments = [
        Segment(
            [Node(**{**node, "messages": tuple(map(_message, node["messages"]))}) for node in nodes],
            None if tools is None else tuple(tools),
        )
        for nodes, tools in zip(plain["segments"], plain.get("tools") or repeat(None), strict=False)
    ]
    messages = [_message(each) for each in plain["messages"]]
    return Episode(task, segments, messages, Score(**plain["score"]), plain["ended"], dict(plain["seconds"]))


def _plain_message(message: Message) -> dict[str, Any]:
    """`asdict`, whose deep copies of texts take longer than to send them."""
    calls = [asdict(call) for call in message.tool_calls]
    return {**vars(message), "tool_calls": calls, "problems": list(message.problems)}


def _message(plain: Mapping[str, Any]) -> Message:
    return Message(**{**plain, "tool_calls": [ToolCall(**call) for call in plain["tool_calls"]]})
