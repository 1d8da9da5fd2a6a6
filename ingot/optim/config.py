"""Options of the optimizer and of the learning-rate schedule."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from ingot.workspace.config import Config


class AdamWConfig(Config):
    """AdamW (Loshchilov and Hutter, arXiv 1711.05101); no weight decay on embeddings, norms and biases."""

    lr: float = Field(3e-4, gt=0, description="peak learning rate")
    betas: tuple[float, float] = Field((0.9, 0.95), description="decay of the first and second moment")
    epsilon: float = Field(1e-8, gt=0, description="added to the root of the second moment")
    weight_decay: float = Field(0.1, ge=0, description="decoupled weight decay of matrices")
    clip: float = Field(1.0, gt=0, description="largest allowed norm of the whole gradient")


class ScheduleConfig(Config):
    """Learning rate over the steps, as a share of the peak: warmup, then the shape, ending at `final`."""

    kind: Literal["wsd", "cosine", "constant"] = Field(
        "wsd", description="warmup-stable-decay (arXiv 2404.06395), cosine, or constant after the warmup"
    )
    warmup: float = Field(0.05, ge=0, le=1, description="share of the steps that rise linearly from zero")
    decay: float = Field(0.2, ge=0, le=1, description="share of the steps that decay at the end (wsd only)")
    decay_shape: Literal["linear", "one_minus_sqrt"] = Field("linear", description="shape of the decay (wsd only)")
    final: float = Field(0.0, ge=0, le=1, description="share of the peak at the end")

    @model_validator(mode="after")
    def _fits(self) -> ScheduleConfig:
        if self.kind == "wsd" and self.warmup + self.decay > 1:
            raise ValueError(f"warmup ({self.warmup}) and decay ({self.decay}) together exceed the whole run")
        return self
