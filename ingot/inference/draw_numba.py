"""The draw of plain rows on the CPU: no truncation, no modified logits. In two passes over the vocabulary instead of six.

The reference is `draw_rows` in draw.py; the exponential here is off by 1e-7 of its value at most. The loops are in draw_loops.py;
numba is imported at the first call.

Shapes: B rows, V vocabulary.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ingot.inference.controls import Controls
from ingot.inference.uniform import uniform


def draw_plain_can(logits_BV: Tensor, modified_BV: Tensor | None, controls: Controls) -> bool:
    """Whether the rows are drawn from the very distribution that is reported, all of it."""
    plain = modified_BV is None and controls.truncated_T is None and not controls.any_raw
    return plain and logits_BV.device.type == "cpu" and logits_BV.dtype == torch.float32 and logits_BV.numel() > 0


def draw_plain(logits_BV: Tensor, controls: Controls, steps_B: Tensor) -> tuple[Tensor, Tensor]:
    """Ids and log-probabilities, as `draw_rows` gives them."""
    from ingot.inference.draw_loops import BLOCK, draw_plain_rows

    logits_BV = logits_BV.contiguous()
    rows, size = logits_BV.shape
    ids_B, logprobs_B = torch.empty(rows, dtype=torch.int64), torch.empty(rows, dtype=torch.float64)
    uniform_B = logprobs_B if controls.all_greedy else uniform(controls.streams_B, steps_B)
    parts = torch.empty(-(-size // BLOCK), dtype=torch.float64)
    draw_plain_rows(
        logits_BV.data_ptr(),
        controls.scale_B.data_ptr(),
        controls.greedy_B.data_ptr(),
        uniform_B.data_ptr(),
        parts.data_ptr(),
        ids_B.data_ptr(),
        logprobs_B.data_ptr(),
        rows,
        size,
    )
    return ids_B, logprobs_B
