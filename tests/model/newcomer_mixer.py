"""Causal moving average, a rate per channel: h_t = a ⊙ h_{t−1} + (1 − a) ⊙ W_v x_t with a = σ(decay), y_t = W_o h_t."""

from __future__ import annotations

from typing import Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from ingot.model.context import Context
from ingot.model.linear import Linear
from ingot.model.mixers import recurrent
from ingot.model.mixers.cache import Cache
from ingot.model.mixers.mixer import MixerConfig, Site


class MovingAverageConfig(MixerConfig):
    """Causal moving average with a learned rate per channel."""

    kind: Literal["moving_average"] = Field(description="which mixer this is")
    channels: int = Field(gt=0, description="channels that are averaged")

    def build(self, site: Site) -> MovingAverage:
        return MovingAverage(self, site)

    def describe(self) -> str:
        return f"moving average of {self.channels} channels"

    def mixing_flops(self, length: int) -> float:
        return 4 * self.channels

    @property
    def input_width(self) -> int:
        return self.channels

    output_width = input_width


class MovingAverage(recurrent.RecurrentMixer):
    def __init__(self, config: MovingAverageConfig, site: Site) -> None:
        super().__init__()
        self.value, self.output = Linear(site.width, config.channels), Linear(config.channels, site.width)
        self.decay = nn.Parameter(torch.zeros(config.channels))

    def state_shapes(self) -> dict[str, tuple[int, ...]]:
        return {"recurrent": tuple(self.decay.shape)}

    def forward(self, x_BTD: Tensor, context: Context, cache: Cache | None = None) -> Tensor:
        values, mixed, states = self.value(x_BTD), [], recurrent.state_cache(cache)
        runs, real = recurrent.document_runs(context), recurrent.real_tokens(context)
        state = recurrent.read_state("recurrent", context, states)
        state = torch.zeros_like(values[:, 0]) if state is None else state
        for place, value in enumerate(values.unbind(1)):
            if runs is not None and place:  # a document does not see the one before it
                state = state * (runs[:, place] == runs[:, place - 1])[:, None]
            mixed.append(torch.lerp(value, state, self.decay.sigmoid()))
            state = mixed[-1] if real is None else torch.where(real[:, place, None], mixed[-1], state)
        recurrent.write_state("recurrent", state, context, states)
        return self.output(torch.stack(mixed, dim=1))
