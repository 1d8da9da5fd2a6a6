"""Options of the optimizers, of the learning-rate schedule and of the batch size."""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Sequence
from decimal import Decimal
from itertools import pairwise
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from ingot.workspace.config import Config
from ingot.workspace.kinds import Part, Parts

if TYPE_CHECKING:
    from torch.optim import Optimizer

    from ingot.model.transformer import Transformer

Decay = Annotated[float, Field(ge=0, lt=1)]
"""The decay of an exponential average; at 1 it would never move, and 1 − βᵗ would be a division by zero."""


class GroupConfig(Config):
    """A group of parameters with rules of its own; a parameter belongs to the first group whose pattern matches its name."""

    match: str = Field(
        min_length=1, description='pattern of parameter names, such as "*.router.*"; none matched: error'
    )
    lr: float | None = Field(None, ge=0, description="peak learning rate; null: the optimizer's")
    weight_decay: float | None = Field(None, ge=0, description="weight decay; null: the optimizer's rule")
    optimizer: Literal["adamw", "muon"] | None = Field(
        None,
        description="which of Muon's two rules (Muon or AdamW) updates them; null: the rule of names and shapes (muon only)",
    )


class OptimizerConfig(Part):
    """Base of the optimizers' options. One of your own is a class in a file: `optimizer: {kind: file.py:Name}`."""

    kind: str = Field("", description="which optimizer this is: a name, or file.py:Name")
    lr: float = Field(3e-4, gt=0, description="peak learning rate")
    weight_decay: float = Field(0.1, ge=0, description="decoupled weight decay of matrices")
    clip: float = Field(1.0, gt=0, description="largest allowed norm of the whole gradient")
    groups: tuple[GroupConfig, ...] = Field((), description="parameters with rules of their own")
    qk_clip: float | None = Field(
        None, gt=0, description="QK-clip: largest attention logit; heads above it are scaled down (Kimi K2: 100)"
    )

    @abstractmethod
    def build(self, groups: Sequence[dict[str, Any]], model: Transformer) -> Optimizer:
        """The optimizer. A group has `params`, `lr` (set before every step) and `weight_decay`; more is this class's to add.

        A parameter may be a DTensor, of which each rank holds a part: arithmetic on it is that on the whole parameter.
        """

    @property
    @abstractmethod
    def state_size(self) -> int:
        """How many numbers it remembers for each parameter, for the planner."""

    def width_share(self, share: float) -> float | None:
        """What muP (initial.base_width) makes of the rate of a matrix 1/`share` times as wide as in the model that was tuned.

        None: it is not known, and a recipe with muP is refused. `share` is right where a step's entries have the rate's size.
        """
        return None

    @model_validator(mode="after")
    def _one_rule(self) -> Self:
        for group in self.groups:
            if group.optimizer not in (None, self.kind) and self.kind != "muon":
                asked = {"muon": "Muon", "adamw": "AdamW"}[str(group.optimizer)]
                raise ValueError(
                    f"group {group.match} asks for {asked}, but the optimizer is {self.kind}: only kind: muon has both rules"
                )
        return self


class AdamWConfig(OptimizerConfig):
    """AdamW (Loshchilov and Hutter, arXiv 1711.05101); no weight decay on embeddings, norms and biases."""

    kind: Literal["adamw"] = Field("adamw", description="which optimizer this is")
    betas: tuple[Decay, Decay] = Field((0.9, 0.95), description="decay of the first and second moment")
    epsilon: float = Field(1e-8, gt=0, description="added to the root of the second moment")

    def build(self, groups: Sequence[dict[str, Any]], model: Transformer) -> Optimizer:
        from ingot.optim.adamw import AdamW

        return AdamW(groups)

    @property
    def state_size(self) -> int:
        return 2

    def width_share(self, share: float) -> float:
        return share


class MuonConfig(OptimizerConfig):
    """Muon (K. Jordan 2024; arXiv 2502.16982) for the matrices of the blocks, AdamW for embeddings, head, gains and biases."""

    kind: Literal["muon"] = Field("muon", description="which optimizer this is")
    lr: float = Field(2e-4, gt=0, description="peak learning rate of the matrices")
    momentum: float = Field(0.95, ge=0, lt=1, description="decay of the momentum")
    nesterov: bool = Field(True, description="orthogonalise gradient + μ · momentum instead of the momentum")
    weight_decay: float = Field(0.1, ge=0, description="decoupled weight decay of matrices, in both rules")
    iterations: int = Field(5, gt=0, description="Newton–Schulz iterations")
    coefficients: Literal["quintic", "polar_express"] = Field(
        "quintic", description="of the iteration: one classic quintic, or Polar Express (arXiv 2505.16932)"
    )
    scale: Literal["rms", "spectral"] = Field(
        "rms",
        description="of the update: 0.2·√max(rows, columns), whose RMS is AdamW's (Moonlight, Kimi K2, GLM), or "
        "√max(1, rows/columns), in units of the spectral norm (Keller Jordan, Trinity)",
    )
    split_heads: bool = Field(False, description="Muon Split (GLM-5): orthogonalise attention projections head by head")
    head: Literal["adamw", "muon"] = Field(
        "adamw", description="which half updates an untied output head (GLM-4.5: muon)"
    )
    rest_lr: float | None = Field(None, gt=0, description="peak learning rate of AdamW's half; null: the same `lr`")
    betas: tuple[Decay, Decay] = Field((0.9, 0.95), description="decay of the moments in AdamW's half")
    epsilon: float = Field(1e-8, gt=0, description="added to the root of the second moment in AdamW's half")

    def build(self, groups: Sequence[dict[str, Any]], model: Transformer) -> Optimizer:
        from ingot.optim.muon import muon_of

        return muon_of(groups, model)

    @property
    def state_size(self) -> int:
        return 1  # of matrices; AdamW's half remembers two

    def width_share(self, share: float) -> float:
        # √share: the largest singular value of a step is rate · 0.2·√max(rows, columns); spectral: it is the rate itself
        return share**0.5 if self.scale == "rms" else 1.0


UNITS = {"K": 10**3, "M": 10**6, "B": 10**9, "T": 10**12, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30}
"""Suffixes of token counts: thousands to trillions, and powers of 1024, which batch sizes often are."""
AMOUNT = re.compile(rf"([0-9][0-9_]*(?:\.[0-9]+)?(?:[eE][+]?[0-9]+)?) ?({'|'.join(UNITS)})?")


def parse_tokens(value: Any) -> Any:
    """A number of tokens as recipes write it: 1_000_000, 11.2e12, 11.2T, 500B, 16Mi."""
    if isinstance(value, float) and value.is_integer():  # 11.2e12 is a float in YAML
        return int(value)
    if not isinstance(value, str):
        return value
    match = AMOUNT.fullmatch(value)
    amount = Decimal(match[1].replace("_", "")) * UNITS.get(match[2], 1) if match is not None else Decimal("NaN")
    if match is None or amount != int(amount):
        raise ValueError("no whole number of tokens: write 1_000_000, 500B, 11.2T or 16Mi")
    return int(amount)


Tokens = Annotated[int, BeforeValidator(parse_tokens)]


def check_span(name: str, value: float) -> None:
    """A span of a run is a share of its steps up to 1, and a whole number of steps above."""
    if value > 1 and value != int(value):
        raise ValueError(f"{name} ({value}) is neither a share of the steps (at most 1) nor a whole number of them")


OPTIMIZERS = Parts(OptimizerConfig, "optimizer", (AdamWConfig, MuonConfig), default="adamw")  # type: ignore[type-abstract]
AnyOptimizer = Annotated[OptimizerConfig, OPTIMIZERS]


class Milestone(Config):
    """A drop of the learning rate."""

    at: float = Field(gt=0, description="when: at most 1 a share of the steps, above 1 a step")
    factor: float = Field(gt=0, le=1, description="what the rate is multiplied with from there on")

    @model_validator(mode="after")
    def _whole(self) -> Milestone:
        check_span("at", self.at)
        return self


class Piece(Config):
    """A stretch of a schedule: from the rate that the stretch before it ended with to another one."""

    until: float | None = Field(
        None,
        gt=0,
        description="where it ends: at most 1 a share of the steps, above 1 a step (the first that has `to`)",
    )
    until_tokens: Tokens | None = Field(
        None, gt=0, description="where it ends, as tokens of this stage (pretrain only)"
    )
    to: float = Field(ge=0, description="share of the peak at its end")
    shape: Literal["constant", "linear", "cosine", "one_minus_sqrt", "exponential"] = Field(
        "constant", description="how it gets there; constant: `to` from its first step on"
    )

    @model_validator(mode="after")
    def _one_end(self) -> Piece:
        if (self.until is None) == (self.until_tokens is None):
            raise ValueError("a piece needs exactly one of until and until_tokens")
        if self.until is not None:
            check_span("until", self.until)
        if self.shape == "exponential" and self.to == 0:
            raise ValueError("an exponential decay never reaches 0: give `to` above it")
        return self


OF_KINDS: dict[str, tuple[str, ...]] = {
    "decay": ("wsd",),
    "decay_shape": ("wsd",),
    "final": ("wsd", "cosine"),
    "milestones": ("multi_step",),
}
"""Options that some kinds of schedule do not use, and the kinds that do."""


class ScheduleConfig(Config):
    """Learning rate over the steps, as a share of the peak: warmup, then the shape."""

    kind: Literal["wsd", "cosine", "constant", "multi_step", "pieces"] = Field(
        "wsd",
        description="after the warmup: warmup-stable-decay (arXiv 2404.06395), cosine, constant, drops (DeepSeek LLM), or "
        "any sequence of pieces (DeepSeek-V3, Kimi K2, MiniMax-01)",
    )
    warmup: float = Field(
        0.05, ge=0, description="linear rise from zero: below 1 a share of the steps, above 1 a number of steps"
    )
    decay: float = Field(
        0.2, ge=0, description="decay at the end: at most 1 a share of the steps, above 1 their number (wsd only)"
    )
    decay_shape: Literal["linear", "one_minus_sqrt", "cosine"] = Field(
        "linear", description="shape of the decay (wsd only)"
    )
    final: float = Field(0.0, ge=0, le=1, description="share of the peak at the end (wsd and cosine)")
    milestones: tuple[Milestone, ...] = Field(
        (Milestone(at=0.8, factor=0.316), Milestone(at=0.9, factor=0.316)),
        description="drops of the rate (multi_step only); DeepSeek LLM: 80, 10 and 10 % of the steps",
    )
    pieces: tuple[Piece, ...] = Field((), description="what follows the warmup, up to 1 (pieces only)")
    part: tuple[float, float] = Field(
        (0.0, 1.0),
        description="which part of the schedule this stage runs, if stages share one: [0, 0.65] and [0.65, 1] are one cosine "
        "in two stages",
    )

    @model_validator(mode="after")
    def _takes_its_own(self) -> ScheduleConfig:
        if self.kind == "wsd" and self.decay == 0:
            self.refuse("decay_shape", "final", because="there is no decay (decay: 0)", instead="set decay")
        for name, kinds in OF_KINDS.items():
            if self.kind not in kinds:
                those = " or ".join(kinds)
                self.refuse(name, because=f"a {self.kind} schedule does not use it", instead=f"choose {those}")
        return self

    @model_validator(mode="after")
    def _fits(self) -> ScheduleConfig:
        check_span("warmup", self.warmup)
        check_span("decay", self.decay)
        if self.warmup == 1:
            raise ValueError("warmup: 1 is the whole run: write a share below 1, or a number of steps above 1")
        if self.kind == "wsd" and max(self.warmup, self.decay) <= 1 and self.warmup + self.decay > 1:
            raise ValueError(f"warmup ({self.warmup}) and decay ({self.decay}) together exceed the whole run")
        if (self.kind == "pieces") != bool(self.pieces):
            raise ValueError("`pieces` and kind: pieces belong together")
        if not 0 <= self.part[0] < self.part[1] <= 1:
            raise ValueError(f"part must be two rising shares of the schedule, not {list(self.part)}")
        if any(before.to == 0 and piece.shape == "exponential" for before, piece in pairwise(self.pieces)):
            raise ValueError("an exponential piece cannot begin at 0")
        if self.part != (0, 1) and any(piece.until_tokens for piece in self.pieces):
            raise ValueError("until_tokens counts this stage's tokens, part the whole schedule: use `until`")
        return self


class BatchSize(Config):
    """A batch size from some point of the stage on."""

    after: Tokens = Field(gt=0, description="tokens of this stage after which it holds")
    batch_tokens: Tokens = Field(gt=0, description="tokens in one step")


class BatchWarmupConfig(Config):
    """A batch that grows to `batch_tokens`: linearly with the tokens seen (`over`), or at given points (`sizes`)."""

    start: Tokens = Field(gt=0, description="tokens in the first step")
    over: Tokens | None = Field(None, gt=0, description="linear growth over this many tokens (DeepSeek-V3: 469B)")
    increment: int = Field(1, gt=0, description="rows by which a linear growth goes up")
    sizes: tuple[BatchSize, ...] = Field(
        (), description="growth at given points, the last one to batch_tokens (MiniMax-01: doublings)"
    )
    lr_scaling: Literal["none", "sqrt"] = Field(
        "none", description="sqrt: the learning rate times √(batch / batch_tokens) while the batch is smaller"
    )

    @model_validator(mode="after")
    def _one_way(self) -> BatchWarmupConfig:
        if (self.over is None) == (not self.sizes):
            raise ValueError("a batch warmup needs exactly one of over and sizes")
        if self.increment > 1 and self.over is None:
            raise ValueError("increment belongs to a linear growth (over)")
        points = [size.after for size in self.sizes]
        if points != sorted(set(points)):
            raise ValueError(f"sizes must begin after rising numbers of tokens, not {points}")
        return self
