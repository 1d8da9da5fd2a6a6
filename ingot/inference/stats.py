"""Counters of the sampling engine: what it holds now, and what it has done."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ingot.inference.request import Request


@dataclass
class Stats:
    """Numbers of an engine: what it holds now, and what it has done so far."""

    active: int = 0
    waiting: int = 0
    pages_used: int = 0
    pages_total: int = 0
    prompt_tokens: int = 0
    shared_tokens: int = 0  # of the prompts, that were found instead of read
    generated_tokens: int = 0
    preemptions: int = 0
    drafted_tokens: int = 0  # with speculation: read ahead of being drawn,
    accepted_tokens: int = 0  # and of these, that were drawn
    steps: int = 0

    def note_prompts(self, requests: Sequence[Request]) -> None:
        """These requests have entered; one that was preempted enters again, and is counted once."""
        for request in requests:
            if not request.entered:
                request.entered = True
                self.prompt_tokens += len(request.prompt)
                self.shared_tokens += request.shared_tokens
