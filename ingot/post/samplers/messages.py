"""What learner and samplers say to each other: plain data, so that any transport can carry it.

    learner → sampler    Job, Cancel, NewWeights, Stop
    sampler → learner    Ready, Taken, Beat, Finished, Cancelled, Failed; and Lost, which the transport says of one that is gone

A task does not travel: it is a function of its number in the stream of tasks (task_stream.py), which both sides have. Episodes
travel, and are saved, as plain values without their task (envs/episode_plain.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


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
