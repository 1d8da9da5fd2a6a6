"""Detects when a validation stops improving (a plateau).

After every validation the best of the last `window` ones is compared with the best of all before them; if it is not lower by at
least `min_improvement`, the plateau is reached. Single bad validations do not count, a slow trend of them does. What is kept
is one number more than the window.
"""

from __future__ import annotations

from collections.abc import Iterable

from ingot.train.config import Plateau


class PlateauWatch:
    """The validations of one phase."""

    def __init__(self, values: Iterable[float] = ()) -> None:
        self.values = list(values)  # the best one of those before the window, and the window

    def reached(self, value: float, plateau: Plateau) -> bool:
        """Add a validation (lower is better) and say whether it completes a plateau."""
        self.values.append(value)
        before, window = self.values[: -plateau.window], self.values[-plateau.window :]
        if not before:
            return False
        self.values = [min(before), *window]
        return min(before) - min(window) < plateau.min_improvement
