"""Names what a stage tells the planner: the work that it has, and the memory that it holds besides its training."""

from __future__ import annotations

from dataclasses import asdict, dataclass


@dataclass(frozen=True)
class StageCost:
    """The work of a stage; None where it is not known in advance."""

    steps: int | None = None
    tokens: int | None = None


@dataclass(frozen=True)
class SamplerMemory:
    """Bytes in every process by part: what is sampled from, frozen models beside the trained one, the engine's caches.

    `before`: they are there before the training, not while it goes on. `whole`: with a copy of the masters.
    """

    sampler: int = 0
    reference: int = 0
    teacher: int = 0
    cache: int = 0
    before: bool = False
    whole: bool = False

    @property
    def parts(self) -> dict[str, int]:
        """The parts by name."""
        return {name: value for name, value in asdict(self).items() if name not in ("before", "whole")}

    @property
    def total(self) -> int:
        return sum(self.parts.values())


NOTHING = SamplerMemory()
