"""Published training runs of systems that have recipes here, to compare estimates with.

A recipe is matched by its name. Reports count MFU in their own ways (most count attention as if it were not causal), so
the number to compare is tokens per second and device; `mfu` is as published. A run that gives only its hours includes its
restarts and waits. `reason` says why the estimate differs from the run as far as that is known, and `practices` are those of the
run that our trainer does not have: compare.py computes what each of them is worth.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ingot.planner.speed import Practice

NOT_MODELLED = "the estimate leaves out stragglers, checkpoints, failures and restarts"
"""Why an estimate is too fast."""


@dataclass(frozen=True)
class PublishedRun:
    """One run. Either `tokens_per_second` (per device) is given, or follows from hours and tokens."""

    system: str
    gpu: str
    source: str
    gpus: int | None = None
    tokens_per_second: float | None = None
    mfu: str | None = None
    gpu_hours: float | None = None
    tokens: float | None = None
    reason: str = NOT_MODELLED
    practices: tuple[Practice, ...] = ()

    @property
    def speed(self) -> float | None:
        """Tokens per second and device."""
        if self.tokens_per_second is not None or self.gpu_hours is None or self.tokens is None:
            return self.tokens_per_second
        return self.tokens / self.gpu_hours / 3600

    @property
    def text(self) -> str:
        """The facts in one line."""
        facts = [f"{self.speed:,.0f} tokens/s per {self.gpu.upper()}"] if self.speed is not None else []
        facts += [f"{self.mfu} MFU as published"] if self.mfu else []
        facts += [f"{self.gpus:,} devices"] if self.gpus else []
        facts += (
            [f"{self.gpu_hours / 1e6:.3g}M GPU-hours for {self.tokens / 1e12:g}T tokens"]
            if self.gpu_hours and self.tokens
            else []
        )
        return f"{self.system}: {', '.join(facts)} ({self.source})"


PUBLISHED: Mapping[str, PublishedRun] = {
    "olmo3-7b": PublishedRun("OLMo 3 7B", "h100", "arXiv 2512.13961", tokens_per_second=7700, mfu="43 %"),
    "olmo3-32b": PublishedRun("OLMo 3 32B", "h100", "arXiv 2512.13961", tokens_per_second=1960, mfu="41 %"),
    "smollm3-3b": PublishedRun(
        "SmolLM3 3B",
        "h100",
        "Hugging Face, Smol Training Playbook, 2025",
        gpus=384,
        mfu="about 30 %",
        gpu_hours=384 * 24 * 24,
        tokens=11.2e12,
    ),
    "deepseek-v3": PublishedRun(
        "DeepSeek-V3",
        "h800",
        "arXiv 2412.19437, table 1",
        gpus=2048,
        gpu_hours=2.664e6,
        tokens=14.8e12,
        reason="the published trainer did what ours does not (arXiv 2412.19437, section 3)",
        practices=(Practice.FLOAT8_EXPERTS, Practice.HIDDEN_EXCHANGES, Practice.PRODUCTS_KEPT),
    ),
    "llama-3.1-405b": PublishedRun(
        "Llama 3.1 405B",
        "h100",
        "arXiv 2407.21783, table 4; model card",
        gpus=16384,
        mfu="38 to 43 %",
        gpu_hours=30.84e6,
        tokens=15.6e12,
        reason="the published trainer reached more than ours is expected to; what makes the difference is not known",
    ),
}


def published(recipe: str) -> PublishedRun | None:
    """The published run of the system that a recipe is named after."""
    return PUBLISHED.get(recipe)
