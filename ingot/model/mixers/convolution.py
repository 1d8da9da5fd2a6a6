"""The short causal convolution in front of a recurrence, one filter per channel:

    y_t = silu( b + Σ_{j < taps} w_j · x_{t − taps + 1 + j} )      inputs before the document's beginning count as zero

It lets queries, keys and values look at the last few tokens (Mamba, arXiv 2312.00752; H3, arXiv 2212.14052). Its state is
the last taps − 1 inputs.

Parameters: weight [channels, taps] (the last tap is the present token), bias [channels] if wanted.
Shapes: B rows, T tokens, C channels, P = taps − 1 inputs of the past.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import silu

from ingot.model.context import Context
from ingot.model.mixers.cache import StateCache
from ingot.model.mixers.recurrent import document_runs, precise, read_state, write_state


class Convolution(nn.Module):
    """Depthwise causal convolution and silu, with sums in float32 at least."""

    def __init__(self, channels: int, taps: int, *, bias: bool = False) -> None:
        super().__init__()
        self.taps = taps
        self.weight = nn.Parameter(torch.empty(channels, taps))
        self.bias = nn.Parameter(torch.empty(channels)) if bias else None
        self.reset_special(torch.Generator().manual_seed(0))

    @torch.no_grad()
    def reset_special(self, generator: torch.Generator) -> None:
        """Uniform in ± taps^-½, the usual start of a convolution; a small normal would all but erase its input."""
        bound = self.taps**-0.5
        for parameter in (self.weight, self.bias):
            if parameter is not None:
                drawn = torch.empty(parameter.shape, device=generator.device)
                parameter.copy_(drawn.uniform_(-bound, bound, generator=generator))

    def forward(self, x_BTC: Tensor, context: Context, cache: StateCache | None = None) -> Tensor:
        length, past = x_BTC.shape[1], self.taps - 1
        before_BPC = read_state("convolution", context, cache)
        if before_BPC is None:
            before_BPC = x_BTC.new_zeros(x_BTC.shape[0], past, x_BTC.shape[2])
        inputs_BTC = torch.cat((before_BPC.to(x_BTC.dtype), x_BTC), dim=1)  # token t is at t + past
        write_state("convolution", self._last_inputs(inputs_BTC, length, context), context, cache)

        weight, runs_BT = precise(self.weight), document_runs(context)
        y_BTC = x_BTC * weight[:, past] if self.bias is None else x_BTC * weight[:, past] + precise(self.bias)
        for back in range(1, self.taps):
            earlier = inputs_BTC[:, past - back : past - back + length]
            if runs_BT is not None:
                same = torch.zeros_like(runs_BT, dtype=torch.bool)
                same[:, back:] = runs_BT[:, back:] == runs_BT[:, :-back]
                earlier = earlier * same[..., None]
            y_BTC = torch.addcmul(y_BTC, precise(earlier), weight[:, past - back])
        return silu(y_BTC).to(x_BTC.dtype)

    def _last_inputs(self, inputs_BTC: Tensor, length: int, context: Context) -> Tensor:
        """The last taps − 1 inputs up to each row's last real token."""
        if context.lengths_B is None:
            return inputs_BTC[:, length:]
        offset = torch.arange(self.taps - 1, device=inputs_BTC.device)
        place_BP = context.lengths_B[:, None] + offset
        return inputs_BTC.gather(1, place_BP[..., None].expand(-1, -1, inputs_BTC.shape[2]))
