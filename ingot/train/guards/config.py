"""Options of the guards."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from ingot.workspace.config import Config


class GuardsConfig(Config):
    """Which numbers of a run are watched, and what is done about them."""

    spike: Literal["off", "warn", "skip", "clip", "rewind"] = Field(
        "warn",
        description="when the loss or the gradient norm leaves its window: warn, skip the step (as a factor on the device), "
        "clip harder for a while, or rewind to the last good checkpoint and pass over the data since",
    )
    spike_sigmas: float = Field(
        6.0, gt=0, description="how many deviations above the window's level a value is a spike"
    )
    spike_score: Literal["robust", "standard"] = Field(
        "robust",
        description="level and deviation of the window: median and 1.4826 · MAD, which spikes in it do not move; or mean and "
        "standard deviation, as OLMo's skip rule has them",
    )
    window: int = Field(
        128,
        ge=8,
        description="steps that the windows hold; rules wait until half of them are known, and a shorter run says so",
    )
    rewinds: int = Field(3, ge=0, description="rewinds before the run stops")
    gradient_limit: float = Field(1000.0, gt=0, description="warn when the gradient norm before clipping exceeds this")
    gradient_growth: float = Field(
        4.0,
        gt=1,
        description="warn when the gradient norm grows to this multiple of its level in the window's older half",
    )
    slow_factor: float = Field(0.5, gt=0, lt=1, description="warn when tokens/s stay below this share of their median")
    memory_growth: float = Field(1.3, gt=1, description="warn when memory grows to this multiple of its early level")
    dead_expert_steps: int = Field(50, gt=0, description="warn when an expert gets no token for this many steps")
    router_violation: float = Field(
        5.0, gt=0, description="warn when MaxVio (largest load / mean − 1) stays above this"
    )
    heartbeat_seconds: float = Field(10.0, gt=0, description="at most this long between two writes of heartbeat.json")

    @model_validator(mode="after")
    def _acts(self) -> GuardsConfig:
        if self.spike == "off":
            self.refuse(
                "spike_sigmas",
                "spike_score",
                because="spikes are not looked for (spike: off)",
                instead="set spike",
            )
        if self.spike != "rewind":
            self.refuse("rewinds", because=f"spike: {self.spike} never rewinds", instead="set spike: rewind")
        return self
