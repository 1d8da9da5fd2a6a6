"""The interface of a training stage's data: the batches of a step, by its number."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ingot.tokens.batch import Batch

if TYPE_CHECKING:
    from ingot.train.passes import Passes


class Source(ABC):
    """Gives the batches of a step by its number: a source that makes them from (seed, step) alone resumes exactly.

    With `ahead` the batches depend on nothing that training changes, so that a thread may make those of coming steps. Where the
    sizes of steps `varies` with what a model samples, batches are padded to one of a few shapes on a GPU (batches.py).
    """

    ahead: bool = False
    varies: bool = False
    names: Sequence[str] = ()  # of the sources that `Batch.sources` numbers, if it does
    may_be_empty: bool = False  # a step may have nothing to learn from, and changes nothing then; else that is an error
    temperature: float | None = None  # of the logits of the batches given last, where that changes during the run
    planned_tokens: int | None = None  # in all steps together, where that is known beforehand

    def begin(self, passes: Passes) -> None:  # noqa: B027 - most sources do not look at the model
        """The trained model is ready, divided over its ranks, with the weights that the stage starts from; called once."""

    @abstractmethod
    def batches(self, step: int, rank: int = 0, world: int = 1) -> tuple[Sequence[Batch], dict[str, float]]:
        """The micro-batches of step `step` for data rank `rank` of `world`, and numbers about them worth logging.

        Together the ranks' batches are the step's; every rank gets the same number of them (batches.py::deal).
        """

    def state(self) -> dict[str, Any]:
        """The state for a checkpoint besides the step's number, as plain JSON; usually empty."""
        return {}

    def close(self) -> None:  # noqa: B027 - most sources hold nothing
        """Training has ended, however it did: let go of processes and the like."""

    def restore(self, state: dict[str, Any]) -> None:  # noqa: B027 - most sources have nothing to restore
        """Go on as if `state` had been reached."""
