"""Parts that all answers share: id and model, token counts, and the form of a server-sent event."""

from __future__ import annotations

import json
import time
import uuid
from typing import Any

from ingot.serve.openai.service import Service

DONE = b"data: [DONE]\n\n"


class Heading:
    """The id, the time and the model of one answer."""

    def __init__(self, service: Service, prefix: str, kind: str) -> None:
        self.unique = uuid.uuid4().hex
        self._kind = kind
        self._fields = {"id": f"{prefix}-{self.unique}", "created": int(time.time()), "model": service.name}

    def whole(self, choices: list[dict[str, Any]], counts: dict[str, Any]) -> dict[str, Any]:
        """The answer in one piece."""
        return self._fields | {"object": self._kind, "choices": choices, "usage": counts}

    def piece(self, choices: list[dict[str, Any]], counts: dict[str, Any] | None, with_usage: bool) -> dict[str, Any]:
        """A piece of a stream; OpenAI's has a null for the counts where they were asked for and come later."""
        kind = f"{self._kind}.chunk" if self._kind == "chat.completion" else self._kind
        fields = self._fields | {"object": kind, "choices": choices}
        return fields | {"usage": counts} if with_usage else fields


def usage(prompt: int, completion: int, cached: int, reasoning: int) -> dict[str, Any]:
    """Tokens read and written."""
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "prompt_tokens_details": {"cached_tokens": cached},
        "completion_tokens_details": {"reasoning_tokens": reasoning},
    }


def event(value: Any) -> bytes:
    """A server-sent event."""
    return b"data: " + json.dumps(value, separators=(",", ":")).encode("ascii") + b"\n\n"
