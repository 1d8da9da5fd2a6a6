"""What learner and samplers say to each other: plain data, so that any transport can carry it.

    learner → sampler    Job, Cancel, NewWeights, Stop
    sampler → learner    Ready, Taken, Beat, Finished, Cancelled, Failed; and Lost, which the transport says of one that is gone

A task does not travel: it is a function of its number in the stream of tasks (task_stream.py), which both sides have. Episodes
travel, and are saved, as JSON-like mappings without their task.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from itertools import repeat
from typing import Any

from ingot.envs.episode import Episode, Node, Score, Segment
from ingot.envs.task import Task
from ingot.tokens.message import Message, ToolCall


@dataclass(frozen=True)
class Job:
    """Play a group: the number of its task in the stream, the longest turn, and the temperature.

    With `samples` only these of its answers; each `attempt` draws others. Numbers below 0 are of listed tasks (listed.py).
    """

    number: int
    max_new_tokens: int
    temperature: float = 1.0
    samples: tuple[int, ...] = ()
    attempt: int = 0


@dataclass(frozen=True)
class Cancel:
    """Give a group up that is in play; one that has just ended stays as it is."""

    number: int


@dataclass(frozen=True)
class NewWeights:
    """There are weights of a version; `checksum` is what they must have when they have been copied.

    `where` is the transport's: a slot of shared memory, or a reference into an object store.
    """

    version: int
    where: Any
    checksum: int


@dataclass(frozen=True)
class Stop:
    """Cancel what is under way, tear its states down, and end."""


Command = Job | Cancel | NewWeights | Stop


@dataclass(frozen=True)
class Ready:
    """The sampler waits for weights and jobs."""


@dataclass(frozen=True)
class Taken:
    """The sampler samples with this version from now on."""

    version: int


@dataclass(frozen=True)
class Beat:
    """The sampler is alive; what it did since its last beat, and the version of the oldest token of each group in play."""

    seconds: float
    idle_seconds: float
    tokens: int
    oldest: Mapping[int, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Finished:
    """A group has ended. `began` is the version that the sampler had when it began: caches hold nothing older."""

    number: int
    began: int
    episodes: tuple[dict[str, Any], ...]


@dataclass(frozen=True)
class Cancelled:
    """A group was given up, as the learner has asked; its states are torn down."""

    number: int


@dataclass(frozen=True)
class Failed:
    """The sampler cannot go on, and why."""

    problem: str


@dataclass(frozen=True)
class Lost:
    """The sampler is gone with all that it was playing; another one is being started in its place."""

    reason: str


Event = Ready | Taken | Beat | Finished | Cancelled | Failed | Lost


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
