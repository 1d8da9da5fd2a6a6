"""What writes the replies of an episode: a sampling engine (`Policy`), or something that reads messages (`MessagePolicy`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

from ingot.envs.episode import Episode
from ingot.inference.sampling import Sampling


class PolicyCompletion(Protocol):
    """What a policy wrote: its tokens with the stop token, their log-probabilities, and which weights drew each."""

    @property
    def tokens(self) -> Sequence[int]: ...

    @property
    def logprobs(self) -> Sequence[float]: ...

    @property
    def versions(self) -> Sequence[int]: ...


class Writing(PolicyCompletion, Protocol):
    """A completion on its way: `finish` says why it ended, and is None until it has."""

    @property
    def finish(self) -> str | None: ...

    @property
    def waiting(self) -> bool:
        """Whether it waits in a queue, so that nothing is written."""


class Policy(Protocol):
    """Continues token sequences, many at a time."""

    def complete(self, prompts: list[list[int]], samplings: list[Sampling]) -> Sequence[PolicyCompletion]:
        """One completion per prompt, in the same order."""

    def submit(self, prompt: list[int], sampling: Sampling, *, follows: Any = None) -> Writing:
        """Begin a completion; `follows` is the one before it in the same conversation."""

    def step(self) -> None:
        """Move all completions on that were begun."""

    def cancel(self, request: Any) -> None:
        """Give up a completion; one that has ended stays as it is."""


@runtime_checkable
class MessagePolicy(Protocol):
    """A policy that answers an episode's messages, not its tokens: a script, or a server that keeps its tokens to itself.

    What it writes is given as tokens of the chat format, so that an episode looks the same; they are not the server's own.
    """

    def submit_episode(self, episode: Episode, tools: Sequence[dict[str, Any]], sampling: Sampling) -> Writing:
        """Begin the next turn of the episode."""

    def step(self) -> None:
        """Move all turns on that were begun."""

    def cancel(self, request: Any) -> None:
        """Give up a turn."""
