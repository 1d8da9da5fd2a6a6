"""Options of low-rank adapters (LoRA, arXiv 2106.09685; QLoRA, arXiv 2305.14314)."""

from __future__ import annotations

from typing import Final, Literal, Self

from pydantic import Field, model_validator

from ingot.workspace.config import Config

ALL_LINEAR: Final = "all-linear"


class LoraConfig(Config):
    """Train small matrices beside frozen weights: y = W x + s·B A drop(x)."""

    rank: int = Field(16, gt=0, description="r: rows of A and columns of B")
    alpha: float = Field(32.0, gt=0, description="the update is scaled by s = alpha / rank")
    rank_stabilised: bool = Field(
        False, description="s = alpha / sqrt(rank) instead (rsLoRA, arXiv 2312.03732), for large ranks"
    )
    layers: Literal["all-linear"] | tuple[str, ...] = Field(
        ALL_LINEAR,
        description="which layers of the blocks: all-linear (all but routed experts, which have none), or names as PEFT has "
        'them (q_proj, k_proj, v_proj, o_proj, gate_proj, up_proj, down_proj) or patterns of our own ("*.mixer.output")',
    )
    dropout: float = Field(
        0.0, ge=0, lt=1, description="share of the adapters' inputs that a training pass sets to zero"
    )
    base: Literal["float32", "bfloat16", "int4", "nf4"] = Field(
        "float32",
        description="how the frozen weights of those layers are held while training: nf4 is QLoRA's (4 bits, normal "
        "quantiles, doubly quantised scales), int4 that of sampling; the result is merged into the unrounded weights",
    )
    train_rows: tuple[int, ...] = Field(
        (), description="tokens whose rows of embedding and head train too: those that a vocabulary was grown by"
    )

    @property
    def scale(self) -> float:
        """s."""
        return self.alpha / (self.rank**0.5 if self.rank_stabilised else self.rank)

    @model_validator(mode="after")
    def _layers_named(self) -> Self:
        if not self.layers:
            raise ValueError("layers: no layer is named; write all-linear, or names such as [q_proj, v_proj]")
        if len(set(self.train_rows)) < len(self.train_rows) or any(row < 0 for row in self.train_rows):
            raise ValueError("train_rows: expected token numbers, each once")
        return self
