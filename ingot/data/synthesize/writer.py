"""Writers, which take prompts and give texts; here a server with OpenAI's chat completions API.

A request that meets a full queue (429), a server error (5xx) or no answer is sent again after a pause that doubles, or after
what the server asks for (Retry-After). Any other refusal (a wrong key, an unknown model) stops the work: it would meet every
request. Invariant: answers come back with the number of their prompt, in whatever order they arrive; every wait has an end.
"""

from __future__ import annotations

import json
import os
import random
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from typing import Any, Protocol

from ingot.data.synthesize.config import EndpointConfig
from ingot.workspace.errors import IngotError

CHAT, TEXT = "/chat/completions", "/completions"
FIRST_PAUSE, LONGEST_PAUSE = 0.5, 30.0


@dataclass(frozen=True)
class WriterPrompt:
    """A question and the seed of its answer: the same prompt gets another answer with another seed."""

    text: str
    seed: int


@dataclass(frozen=True)
class WriterSettings:
    """How answers are sampled."""

    temperature: float
    top_p: float
    max_tokens: int


class Writer(Protocol):
    """Answers prompts."""

    name: str

    def answers(self, prompts: Sequence[WriterPrompt], settings: WriterSettings) -> Iterator[tuple[int, str | None]]:
        """(number of the prompt, text), in any order; None for a prompt that got no answer in all its tries."""
        ...


class Endpoint:
    """A server."""

    def __init__(self, config: EndpointConfig) -> None:
        self.config, self.name = config, config.model
        self.key = os.environ.get(config.api_key_variable, "") if config.api_key_variable else ""
        if config.api_key_variable and not self.key:
            raise IngotError(
                f"the environment variable {config.api_key_variable} is empty",
                place="endpoint.api_key_variable",
                fix=f"export {config.api_key_variable}=KEY",
            )
        self.stopped = threading.Event()

    def answers(self, prompts: Sequence[WriterPrompt], settings: WriterSettings) -> Iterator[tuple[int, str | None]]:
        with ThreadPoolExecutor(self.config.concurrency) as pool:
            waiting = {pool.submit(self._ask, prompt, settings): at for at, prompt in enumerate(prompts)}
            try:
                for done in as_completed(waiting):
                    yield waiting[done], done.result()
            finally:
                self.stopped.set()
                pool.shutdown(wait=True, cancel_futures=True)
                self.stopped.clear()

    def _ask(self, prompt: WriterPrompt, settings: WriterSettings) -> str | None:
        body = {
            "model": self.config.model,
            "messages": [{"role": "user", "content": prompt.text}],
            "temperature": settings.temperature,
            "top_p": settings.top_p,
            "max_tokens": settings.max_tokens,
            "seed": prompt.seed,
        }
        return self.complete(body, prompt.seed)

    def complete(self, body: dict[str, Any], seed: int = 0) -> str | None:
        """The text that answers one request of the chat completions API; None if none came in all its tries."""
        choice = self.choose(body, seed)
        content = None if choice is None else choice["message"].get("content")
        return content if isinstance(content, str) else None

    def choose(self, body: dict[str, Any], seed: int = 0) -> dict[str, Any] | None:
        """The first choice of the answer, with its `message` and `finish_reason`; None if none came in all its tries."""
        choice = self.first_choice(CHAT, body, seed)
        if choice is not None and not isinstance(choice.get("message"), dict):
            raise _not_an_answer(self.config.url)
        return choice

    def first_choice(self, path: str, body: dict[str, Any], seed: int = 0) -> dict[str, Any] | None:
        """The first choice of the answer to a request of `path` (CHAT or TEXT); None if none came in all its tries."""
        pauses = random.Random(seed)  # spread out, so that refused requests do not return together
        for attempt in range(self.config.attempts):
            if self.stopped.is_set():
                return None
            pause = min(LONGEST_PAUSE, FIRST_PAUSE * 2**attempt) * (0.5 + pauses.random())
            try:
                return self._send(path, body)
            except urllib.error.HTTPError as error:
                if error.code != 429 and error.code < 500:
                    detail = error.read(500).decode("utf-8", "replace")
                    raise IngotError(
                        f"the server refuses: {error.code} {detail}",
                        place=self.config.url,
                        fix="check the model's name, the key and the length of the prompts",
                    ) from error
                asked = error.headers.get("Retry-After", "")
                pause = min(LONGEST_PAUSE, float(asked)) if asked.isdigit() else pause
            except (urllib.error.URLError, TimeoutError, ConnectionError):
                pass  # tried again below; the last time it counts as no answer
            if attempt + 1 < self.config.attempts:
                self.stopped.wait(pause)
        return None

    def _send(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        headers = {"Content-Type": "application/json"}
        if self.key:
            headers["Authorization"] = f"Bearer {self.key}"
        address = self.config.url.rstrip("/") + path
        request = urllib.request.Request(address, json.dumps(body).encode(), headers)
        deadline = time.monotonic() + self.config.timeout_seconds
        with urllib.request.urlopen(request, timeout=self.config.timeout_seconds) as response:
            parts = []
            while part := response.read(65_536):
                parts.append(part)
                if time.monotonic() > deadline:
                    raise TimeoutError("the answer did not end in time")
        try:
            return dict(json.loads(b"".join(parts))["choices"][0])
        except (json.JSONDecodeError, KeyError, IndexError, TypeError, ValueError) as error:
            raise _not_an_answer(address) from error


def _not_an_answer(address: str) -> IngotError:
    return IngotError(
        "the server's answer is not a completion", place=address, fix="give the address of an OpenAI-compatible server"
    )
