"""A judge behind any server with OpenAI's chat completions API, `ingot serve` among them.

Retries, pauses and deadlines are those of `ingot.data.synthesize.writer`. At most `concurrency` requests are on their way at a
time; further threads wait for their turn. The reply's form is asked for with `response_format`, which a server that lacks it
refuses: `structured=False` then leaves it out. `fields` are further fields of a request, such as
{"chat_template_kwargs": {"enable_thinking": False}} for servers that know them.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Any

from ingot.data.synthesize.config import EndpointConfig
from ingot.data.synthesize.writer import Endpoint
from ingot.envs.verifiers.errors import VerifierError
from ingot.tokens.chat import Message
from ingot.tokens.openai_messages import to_openai
from ingot.workspace.errors import IngotError

WAITS = 10  # a thread waits for its turn as long as so many requests in a row may take


class EndpointJudge:
    """Asks a server. `calls` counts requests, so that no two tries of a judgement sample the same text."""

    def __init__(
        self,
        config: EndpointConfig,
        *,
        max_tokens: int = 512,
        temperature: float = 0.0,
        structured: bool = True,
        fields: Mapping[str, Any] | None = None,
    ) -> None:
        self.endpoint = Endpoint(config)
        self.fields = dict(fields or {})
        self.max_tokens, self.temperature, self.structured = max_tokens, temperature, structured
        self.calls = 0
        self._turns = threading.BoundedSemaphore(config.concurrency)
        self._counting = threading.Lock()
        self._longest_wait = WAITS * config.timeout_seconds * config.attempts

    def ask(self, messages: Sequence[Message], schema: Mapping[str, Any] | None = None) -> str:
        """The server's reply; a VerifierError if it gives none."""
        with self._counting:
            self.calls += 1
            seed = self.calls
        body: dict[str, Any] = {
            "model": self.endpoint.config.model,
            "messages": to_openai(messages, thinking=False),
            "temperature": self.temperature,
            "max_tokens": self.max_tokens,
            "seed": seed,
            **self.fields,
        }
        if schema is not None and self.structured:
            form = {"name": "verdict", "strict": True, "schema": dict(schema)}
            body["response_format"] = {"type": "json_schema", "json_schema": form}
        if not self._turns.acquire(timeout=self._longest_wait):
            raise self._failed("every connection to the judge is busy")
        try:
            reply = self.endpoint.complete(body, seed)
        except IngotError as error:
            raise VerifierError(error.problem, place=error.place, fix=error.fix, part="server") from error
        finally:
            self._turns.release()
        if reply is None:
            raise self._failed(f"the judge gave no answer in {self.endpoint.config.attempts} tries")
        return reply

    def _failed(self, problem: str) -> VerifierError:
        return VerifierError(
            problem, place=self.endpoint.config.url, fix="look at the server, or raise timeout_seconds", part="server"
        )
