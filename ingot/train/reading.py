"""Copies a step's numbers to the host without stalling the device: queued with the step, read when it is done.

A GPU runs its queue in order. A copy that is queued only when the numbers of step s are wanted comes after step s + 1, which
has been queued meanwhile: the host would wait for both steps, and then the GPU for the host. A copy that is queued with its step,
into pinned memory, is there when the step is done.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor


class Reading:
    """Scalars by name, copied to the host behind the work queued so far."""

    def __init__(self, values: Mapping[str, Tensor]) -> None:
        alike: dict[torch.dtype, list[str]] = {}  # names by dtype: widened together, which is one kernel
        for name, value in values.items():
            alike.setdefault(value.dtype, []).append(name)
        self.names = [name for names in alike.values() for name in names]
        self.numbers = torch.cat([torch.stack([values[name] for name in names]).double() for names in alike.values()])
        self.done: torch.cuda.Event | None = None
        if self.numbers.is_cuda:
            here = torch.empty_like(self.numbers, device="cpu", pin_memory=True)
            self.numbers = here.copy_(self.numbers, non_blocking=True)
            self.done = torch.cuda.Event()
            self.done.record()

    def read(self) -> dict[str, float]:
        """The numbers; waits for the work that was queued before them, and for nothing that was queued since."""
        if self.done is not None:
            self.done.synchronize()
        return dict(zip(self.names, self.numbers.tolist(), strict=True))
