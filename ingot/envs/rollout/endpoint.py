"""A policy behind an OpenAI-compatible server: it answers the messages of an episode.

The server keeps its tokens to itself, so an episode holds the tokens of a chat format of ours, without log-probabilities: good
for measuring and for trying an environment, not for training. An answer that does not come is a failure of the environment.
"""

from __future__ import annotations

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
from ingot.tokens.chat import ChatFormat
from ingot.tokens.openai_messages import from_reply, to_openai

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
            "messages": to_openai(episode.context, thinking=False),
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
        spoken = as_turn(from_reply(choice["message"], thinking=waited.thinking), self.chat, waited.thinking, LONGEST)
        end = -1 if waited.finish == "length" else None  # of an answer that is cut, the end of the turn was not written
        waited.tokens, waited.logprobs = spoken.tokens[:end], spoken.logprobs[:end]
        waited.versions = spoken.versions[:end]
