"""An episode: a task, what the policy saw and wrote as nodes of tokens, how it ended, and what it earned.

Each node holds only the tokens that it adds; the nodes of a segment, one after the other, are the exact token sequence that the
policy saw and wrote. A new segment begins where the environment starts with a new context; each is a training sequence of its
own. Sampled nodes carry the policy's log-probability and version per token. From this a trainer takes tokens, mask and
log-probabilities of equal length, and a report takes one row of trajectories.jsonl.

An episode whose environment failed (`score.error`) has no reward: that is something else than a reward of 0, and code that
averages or trains on rewards leaves it out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from ingot.envs.errors import FailedPart
from ingot.envs.task import Task
from ingot.envs.verifiers.text.reply import final_content
from ingot.tokens.chat import Message
from ingot.tokens.tokenizer import Tokenizer

EndedBy = Literal["answer", "stopped", "malformed", "turns", "tokens", "time", "error", "cancelled", ""]
"""Why an episode ended: the policy answered; the environment's stop rule; a malformed turn; a limit; the environment failed."""


@dataclass(frozen=True)
class Score:
    """What a verifier says: `reward` for training, `correct` for accuracy, `detail` for measures of one environment.

    `rewards` are the parts of the reward by name, before their weights. With an `error` the rest says nothing, but for what it
    was that `failed`.
    """

    reward: float
    correct: bool
    format_ok: bool
    detail: Mapping[str, float] = field(default_factory=dict)
    rewards: Mapping[str, float] = field(default_factory=dict)
    error: str | None = None
    failed: FailedPart | None = None


UNSCORED = Score(0.0, False, False)
UNREAD = ("answers_too_large", "answers_too_slow", "answers_unreadable")
"""In `detail`, of answers that a verifier could not judge for a reason of their own: they earn nothing, and are counted."""
NO_COLUMNS: Mapping[str, Sequence[float]] = {}


@dataclass(frozen=True)
class Node:
    """Tokens that one side added: the prompt, the assistant (sampled), tools, or the environment.

    `ended` says why the policy's turn ended, `rewards` what that turn earned by itself; `messages` are what the tokens say, for
    code that reads them in another chat format.
    """

    role: str
    tokens: list[int]
    sampled: bool
    logprobs: list[float] = field(default_factory=list)
    versions: list[int] = field(default_factory=list)
    ended: str = ""
    rewards: dict[str, float] = field(default_factory=dict)
    messages: tuple[Message, ...] = field(default=(), compare=False)

    def __post_init__(self) -> None:
        expected = len(self.tokens) if self.sampled else 0
        if len(self.logprobs) != expected or len(self.versions) != expected:
            raise ValueError(
                f"a {self.role} node of {len(self.tokens)} tokens, sampled={self.sampled}, has "
                f"{len(self.logprobs)} log-probabilities and {len(self.versions)} versions"
            )


@dataclass
class Segment:
    """One token sequence: a prompt and what followed it. `tools` are those that the prompt offers, if not the task's."""

    nodes: list[Node]
    tools: tuple[dict[str, Any], ...] | None = None

    @property
    def length(self) -> int:
        """All tokens, the prompt's included."""
        return sum(len(node.tokens) for node in self.nodes)

    def tokens(self) -> list[int]:
        """The whole sequence."""
        return [token for node in self.nodes for token in node.tokens]

    def sampled(self) -> list[int]:
        """1 where the policy wrote the token, 0 where it was given; aligned with `tokens()`."""
        return [int(node.sampled) for node in self.nodes for _ in node.tokens]

    def logprobs(self) -> list[float]:
        """The policy's log-probability of each sampled token, 0 elsewhere; aligned with `tokens()`."""
        return [value for node in self.nodes for value in (node.logprobs or [0.0] * len(node.tokens))]

    def versions(self) -> list[int]:
        """The version of the weights that sampled each token, -1 where it was given; aligned with `tokens()`."""
        return [value for node in self.nodes for value in (node.versions or [-1] * len(node.tokens))]


@dataclass
class Episode:
    """One attempt at a task. `messages` is what the nodes after the prompts say, as the verifier reads it."""

    task: Task
    segments: list[Segment]
    messages: list[Message] = field(default_factory=list)
    score: Score = UNSCORED
    ended: EndedBy = ""
    seconds: dict[str, float] = field(default_factory=dict, compare=False)  # wall clock: sampling, tools, judging, all
    state: Any = field(default=None, repr=False, compare=False)  # what the environment's `setup` made, until it ends

    @property
    def failed(self) -> bool:
        """Whether the environment failed, so that there is no reward."""
        return self.score.error is not None

    @property
    def answer(self) -> str:
        """The content of the last message if that is an assistant's answer; empty otherwise."""
        return final_content(self.messages)

    @property
    def turns(self) -> int:
        """Turns of the policy so far."""
        return sum(node.sampled for node in self.nodes)

    @property
    def nodes(self) -> list[Node]:
        """The nodes of all segments."""
        return [node for segment in self.segments for node in segment.nodes]

    @property
    def context(self) -> list[Message]:
        """The messages that the policy goes on from: those of the last segment."""
        return [message for node in self.segments[-1].nodes for message in node.messages]

    @property
    def length(self) -> int:
        """The tokens of all segments, prompts included."""
        return sum(segment.length for segment in self.segments)

    @property
    def sampled_count(self) -> int:
        """Tokens that the policy wrote."""
        return sum(len(node.tokens) for node in self.nodes if node.sampled)

    def tokens(self) -> list[int]:
        """The sequences of all segments, one after the other."""
        return [token for segment in self.segments for token in segment.tokens()]

    def sampled(self) -> list[int]:
        """As of a segment; aligned with `tokens()`."""
        return [one for segment in self.segments for one in segment.sampled()]

    def logprobs(self) -> list[float]:
        """As of a segment; aligned with `tokens()`."""
        return [value for segment in self.segments for value in segment.logprobs()]

    def versions(self) -> list[int]:
        """As of a segment; aligned with `tokens()`."""
        return [value for segment in self.segments for value in segment.versions()]

    def split(self, row: Sequence[float]) -> list[list[float]]:
        """A value for every token of `tokens()`, segment by segment."""
        parts, start = [], 0
        for segment in self.segments:
            parts.append(list(row[start : start + segment.length]))
            start += segment.length
        return parts

    def reply(self, tokenizer: Tokenizer) -> str:
        """What followed the first prompt, as text with its special tokens."""
        return "".join(tokenizer.decode(node.tokens) for node in self.nodes[1:])

    def to_record(
        self,
        step: int,
        tokenizer: Tokenizer,
        advantages: Sequence[float | None] | None = None,
        columns: Mapping[str, Sequence[float]] = NO_COLUMNS,
    ) -> dict[str, Any]:
        """A row of trajectories.jsonl. `advantages` and further `columns` are aligned with `tokens()`; given tokens get none."""
        rows = columns if advantages is None else {"advantages": advantages, **columns}
        for name, row in rows.items():
            if len(row) != self.length:
                raise ValueError(f"{len(row)} {name} for {self.length} tokens")
        nodes, start = [], 0
        for node in self.nodes:
            end = start + len(node.tokens)
            nothing = [None] * len(node.tokens)
            own = {"logprobs": list(node.logprobs), "versions": list(node.versions)}
            own |= {name: list(row[start:end]) for name, row in rows.items()}
            nodes.append(
                {
                    "role": node.role,
                    "pieces": [tokenizer.piece(token) for token in node.tokens],
                    "sampled": node.sampled,
                    "ended": node.ended,
                    "rewards": dict(node.rewards),
                    "advantages": nothing,
                    **(own if node.sampled else dict.fromkeys(own, nothing)),
                }
            )
            start = end
        return {
            "step": step,
            "task_id": self.task.id,
            "kind": self.task.kind,
            "prompt": self.task.question,
            "reward": self.score.reward,
            "rewards": dict(self.score.rewards),
            "correct": self.score.correct,
            "format_ok": self.score.format_ok,
            "ended": self.ended,
            "error": self.score.error,
            "nodes": nodes,
        }
