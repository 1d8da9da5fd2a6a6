"""Options of merging checkpoints (merge_methods.py).

A method of the user's own is a function of one tensor of every model, `method: file.py:median`:

    def median(tensors, weights, base):     # a list of tensors in float32; one weight for each; None, or the base's tensor
        return torch.stack(tensors).median(0).values
"""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from ingot.workspace.config import Config
from ingot.workspace.functions import FunctionName

OF_TWO = ("slerp",)
WITHOUT_BASE = ("linear", "slerp")
USES = {
    "linear": frozenset({"weights", "normalise"}),
    "slerp": frozenset({"t"}),
    "task_arithmetic": frozenset({"weights", "base", "normalise", "scale"}),
    "ties": frozenset({"weights", "base", "normalise", "scale", "density"}),
    "dare_linear": frozenset({"weights", "base", "normalise", "scale", "density", "rescale"}),
    "dare_ties": frozenset({"weights", "base", "normalise", "scale", "density", "rescale"}),
}
"""The options of each method; the others say which models are merged."""
OWN = frozenset({"weights", "base"})
"""Those of a method of the user's own, which may do without them."""
METHOD = FunctionName("merge method", "median(tensors, weights, base)", tuple(USES))


class MergeConfig(Config):
    """How several checkpoints of one architecture become one."""

    method: Annotated[str, METHOD] = Field(
        "linear",
        description="linear: mean; slerp: on the arc between two; the others add differences from a base: task_arithmetic as "
        "they are, ties the largest of them where signs agree, dare_* random ones; or a function of yours, file.py:median",
    )
    weights: tuple[float, ...] = Field((), description="of the models in their order; none: all are 1")
    base: str | None = Field(
        None, description="the name of the input from which differences are taken; it is not merged itself"
    )
    t: float = Field(0.5, ge=0, le=1, description="slerp: 0 is the first model, 1 the second")
    density: float = Field(0.5, gt=0, le=1, description="ties, dare_*: the share of each difference that is kept")
    rescale: Literal["norm", "density"] = Field(
        "norm",
        description="dare_*: what is kept grows so that the difference's L1 norm stays (mergekit), or by 1/density (the paper)",
    )
    normalise: bool | None = Field(
        None, description="divide by the weights that count; null: linear and ties do, the others do not (mergekit)"
    )
    scale: float = Field(1.0, description="factor on the merged difference (λ) of methods with a base")
    last: int | None = Field(
        None,
        gt=1,
        description="merge the last so many checkpoints that one stage kept (checkpoints.keep_every), its end included",
    )

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.method in OF_TWO and self.weights:
            raise ValueError("weights: slerp goes from the first model to the second by t")
        of_methods = frozenset[str]().union(*USES.values())
        for name in sorted(of_methods - USES.get(self.method, OWN)):
            those = " and ".join(method for method, uses in USES.items() if name in uses)
            self.refuse(name, because=f"{self.method} does not use it, {those} do")
        if self.method == "linear" and self.weights and sum(self.weights) == 0 and self.normalised:
            raise ValueError("weights: their sum is 0, and a mean divides by it")
        return self

    @property
    def is_own(self) -> bool:
        """Whether the method is a function of the user's."""
        return self.method not in USES

    @property
    def normalised(self) -> bool:
        """`normalise`, decided."""
        return self.method in ("linear", "ties") if self.normalise is None else self.normalise
