"""The draw of plain rows on the CPU: those that ask for nothing but a seed and a temperature.

The reference is `draw_rows` in draw.py; the exponential here is off by 1e-7 of its value at most. The loops are in draw_loops.py;
numba is imported at the first call.

Shapes: B rows, V vocabulary.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ingot.inference.controls import Controls
from ingot.inference.uniform import uniform


def draw_plain_can(logits_BV: Tensor) -> bool:
    """Whether the loops read these logits."""
    return logits_BV.device.type == "cpu" and logits_BV.dtype == torch.float32 and logits_BV.numel() > 0


def draw_plain(logits_BV: Tensor, controls: Controls, steps_B: Tensor, ids_B: Tensor, logprobs_B: Tensor) -> None:
    """Write the ids and log-probabilities of the rows `controls.plain_P`."""
    from ingot.inference.draw_loops import BLOCK, draw_plain_rows

    assert ids_B.is_contiguous() and logprobs_B.is_contiguous()
    logits_BV, size = logits_BV.contiguous(), logits_BV.shape[1]
    uniform_B = logprobs_B if controls.all_greedy else uniform(controls.streams_B, steps_B)
    parts = torch.empty(-(-size // BLOCK), dtype=torch.float64)
    draw_plain_rows(
        controls.plain_P.data_ptr(),
        len(controls.plain_P),
        logits_BV.data_ptr(),
        controls.scale_B.data_ptr(),
        controls.greedy_B.data_ptr(),
        uniform_B.data_ptr(),
        parts.data_ptr(),
        ids_B.data_ptr(),
        logprobs_B.data_ptr(),
        len(logits_BV),
        size,
    )
