"""A policy behind an OpenAI-compatible server: it answers the messages of an episode.

The server keeps its tokens to itself, so an episode holds the tokens of a chat format of ours, without log-probabilities: good
for measuring and for trying an environment, not for training. An answer that does not come is a failure of the environment.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from ingot.data.synthesize.config import EndpointConfig
from ingot.data.synthesize.writer import Endpoint
from ingot.envs.episode import Episode
from ingot.envs.errors import EnvironmentFailed
from ingot.envs.rollout.probes import as_turn
from ingot.inference.sampling import Sampling
from ingot.tokens.chat import ChatFormat, Message, ToolCall

POLL_SECONDS = 0.02
LONGEST = 10**9  # tokens of a turn: the server was told its limit


@dataclass(eq=False)
class Awaited:
    """A turn that the server writes."""

    thinking: bool
    most: int
    answer: Future[dict[str, Any] | None]
    tokens: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    versions: list[int] = field(default_factory=list)
    finish: str | None = None
    waiting: bool = False  # a server does not say it
    failure: EnvironmentFailed | None = None


class EndpointPolicy:
    """A policy that asks a server. Use it with `with`, or close it."""

    def __init__(self, config: EndpointConfig, chat: ChatFormat) -> None:
        self.endpoint, self.chat = Endpoint(config), chat
        self._threads = ThreadPoolExecutor(config.concurrency, thread_name_prefix="ingot-endpoint")
        self._waiting: list[Awaited] = []

    def __enter__(self) -> EndpointPolicy:
        return self

    def __exit__(self, *exception: object) -> None:
        self.endpoint.stopped.set()
        self._threads.shutdown(wait=True, cancel_futures=True)

    def submit_episode(self, episode: Episode, tools: Sequence[dict[str, Any]], sampling: Sampling) -> Awaited:
        """Ask for the next turn."""
        body: dict[str, Any] = {
            "model": self.endpoint.config.model,
            "messages": to_openai(episode.context),
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "max_tokens": sampling.max_new_tokens,
            "seed": sampling.seed % 2**31,
        }
        if tools:
            body["tools"] = [{"type": "function", "function": tool} for tool in tools]
        answer = self._threads.submit(self.endpoint.choose, body, sampling.seed)
        waited = Awaited(episode.task.thinking, sampling.max_new_tokens, answer)
        self._waiting.append(waited)
        return waited

    def step(self) -> None:
        """Take the answers that have come."""
        if not any(waited.answer.done() for waited in self._waiting):
            time.sleep(POLL_SECONDS)
        for waited in [waited for waited in self._waiting if waited.answer.done()]:
            self._waiting.remove(waited)
            self._take(waited)

    def cancel(self, request: Awaited) -> None:
        """Do not wait for an answer any more."""
        request.answer.cancel()
        if request in self._waiting:
            self._waiting.remove(request)

    def _take(self, waited: Awaited) -> None:
        choice = waited.answer.result()
        if choice is None:
            tries = self.endpoint.config.attempts
            waited.failure = EnvironmentFailed(
                f"the server gave no answer in {tries} tries", place=self.endpoint.config.url, part="server"
            )
            waited.finish = "error"
            return
        waited.finish = str(choice.get("finish_reason") or "stop")
        spoken = as_turn(from_openai(choice["message"], waited.thinking), self.chat, waited.thinking, LONGEST)
        end = -1 if waited.finish == "length" else None  # of an answer that is cut, the end of the turn was not written
        waited.tokens, waited.logprobs = spoken.tokens[:end], spoken.logprobs[:end]
        waited.versions = spoken.versions[:end]


def to_openai(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """Messages as the chat completions API has them; calls are numbered, and a tool's answer names its call."""
    rows: list[dict[str, Any]] = []
    open_calls: list[str] = []
    for message in messages:
        row: dict[str, Any] = {"role": message.role, "content": message.content}
        if message.tool_calls:
            ids = [f"call_{len(rows)}_{number}" for number in range(len(message.tool_calls))]
            row["tool_calls"] = [
                {"id": id, "type": "function", "function": {"name": call.name, "arguments": json.dumps(call.arguments)}}
                for id, call in zip(ids, message.tool_calls, strict=True)
            ]
            open_calls = list(ids)
        elif message.role == "tool" and open_calls:
            row["tool_call_id"] = open_calls.pop(0)
        rows.append(row)
    return rows


def from_openai(row: dict[str, Any], thinking: bool) -> Message:
    """The server's message. A call whose arguments are no JSON object keeps them as text under `arguments`."""
    calls = [each.get("function", {}) for each in row.get("tool_calls") or ()]
    thought = row.get("reasoning_content") or row.get("reasoning")
    return Message(
        "assistant",
        str(row.get("content") or ""),
        str(thought or "") if thinking else None,
        [ToolCall(str(call.get("name")), _arguments(call.get("arguments"))) for call in calls],
    )


def _arguments(text: Any) -> dict[str, Any]:
    try:
        value = json.loads(text) if isinstance(text, str) else text
    except ValueError:
        value = None
    return value if isinstance(value, dict) else {"arguments": text}
