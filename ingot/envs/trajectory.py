"""A trajectory: a task, what the policy saw and wrote as nodes of tokens, and the score.

Each node holds only the tokens that it adds; their concatenation is the exact token sequence. Sampled nodes carry the
policy's log-probability and version per token. From this a trainer takes tokens, mask and log-probabilities of equal
length, and a report takes one row of trajectories.jsonl.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from ingot.envs.task import Score, Task
from ingot.tokens.chat import Message
from ingot.tokens.tokenizer import Tokenizer


@dataclass(frozen=True)
class Node:
    """Tokens that one side added: the prompt, the assistant (sampled), or tools."""

    role: str
    tokens: list[int]
    sampled: bool
    logprobs: list[float] = field(default_factory=list)
    versions: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        expected = len(self.tokens) if self.sampled else 0
        if len(self.logprobs) != expected or len(self.versions) != expected:
            raise ValueError(
                f"a {self.role} node of {len(self.tokens)} tokens, sampled={self.sampled}, has "
                f"{len(self.logprobs)} log-probabilities and {len(self.versions)} versions"
            )


@dataclass(frozen=True)
class Trajectory:
    """One episode. `messages` is what the nodes after the prompt say, as the verifier read it."""

    task: Task
    nodes: list[Node]
    messages: list[Message]
    score: Score

    @property
    def length(self) -> int:
        """All tokens, the prompt's included."""
        return sum(len(node.tokens) for node in self.nodes)

    @property
    def sampled_count(self) -> int:
        """Tokens that the policy wrote."""
        return sum(len(node.tokens) for node in self.nodes if node.sampled)

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

    def reply(self, tokenizer: Tokenizer) -> str:
        """What followed the prompt, as text with its special tokens."""
        return "".join(tokenizer.decode(node.tokens) for node in self.nodes[1:])

    def to_record(
        self, step: int, tokenizer: Tokenizer, advantages: Sequence[float | None] | None = None
    ) -> dict[str, Any]:
        """A row of trajectories.jsonl. `advantages` is aligned with `tokens()`; given tokens are shown without one."""
        if advantages is not None and len(advantages) != self.length:
            raise ValueError(f"{len(advantages)} advantages for {self.length} tokens")
        nodes, start = [], 0
        for node in self.nodes:
            end = start + len(node.tokens)
            shown = (
                list(advantages[start:end]) if advantages is not None and node.sampled else [None] * len(node.tokens)
            )
            nodes.append(
                {
                    "role": node.role,
                    "pieces": [tokenizer.piece(token) for token in node.tokens],
                    "sampled": node.sampled,
                    "advantages": shown,
                    "logprobs": list(node.logprobs) if node.sampled else [None] * len(node.tokens),
                }
            )
            start = end
        return {
            "step": step,
            "task_id": self.task.id,
            "kind": self.task.kind,
            "prompt": self.task.question,
            "reward": self.score.reward,
            "correct": self.score.correct,
            "format_ok": self.score.format_ok,
            "nodes": nodes,
        }
