"""Lists what draw.py and its kernel read of the rows that they sample for, and where both look for a truncation's floor."""

from __future__ import annotations

from typing import Protocol

from torch import Tensor

CANDIDATES = 256  # how many of the likeliest tokens truncation looks at before it sorts the whole vocabulary


class DrawControls(Protocol):
    """The options of the rows: tensors on the device, and what the host knows about them (inference/controls.py)."""

    streams_B: Tensor  # random streams (uniform.py)
    greedy_B: Tensor  # 1: the likeliest token
    scale_B: Tensor  # 1 / temperature
    policy_scale_B: Tensor  # the same, for the log-probability
    top_k_B: Tensor  # 0: off
    top_p_B: Tensor  # 1: off
    log_min_p_B: Tensor  # −∞: off
    truncated_T: Tensor | None  # rows that truncate
    largest_top_k: int
    any_top_p: bool
    any_greedy: bool
    all_greedy: bool
    any_scaled: bool
    any_raw: bool  # some row has another policy_scale than scale
