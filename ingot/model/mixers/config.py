"""The token mixers as data. A block names one by `kind`; without a kind it is softmax attention."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, Tag, model_validator

from ingot.model.positions.config import RopeConfig
from ingot.workspace.config import Config


class TemperatureConfig(Config):
    """Query temperature by position, q · (1 + slope·ln(1 + ⌊(p + 1)/floor⌋)): Llama 4's layers without positions."""

    slope: float = Field(0.1, gt=0, description="a in 1 + a·ln(1 + ⌊(p + 1)/floor⌋)")
    floor: int = Field(8192, gt=0, description="positions per step of the temperature")


class GateConfig(Config):
    """Gated attention (arXiv 2505.06708): a gate computed from the layer's input multiplies inside the layer."""

    place: Literal["output", "value"] = Field(
        "output", description="on the heads' outputs before the output projection, or on the values"
    )
    form: Literal["elementwise", "headwise"] = Field("elementwise", description="a gate per channel or per head")
    activation: Literal["sigmoid", "silu"] = Field("sigmoid", description="what the gate's projection passes through")


class DualChunkConfig(Config):
    """Dual chunk attention (arXiv 2402.17463): no distance beyond chunk + window is ever used, however long the text."""

    chunk: int = Field(gt=0, description="positions count from zero in every chunk of this many tokens")
    window: int = Field(
        gt=0,
        description="queries of a chunk with exact distances to the chunk before; chunk + window: at most the trained length",
    )


class AttentionConfig(Config):
    """Causal softmax attention with grouped keys and values (Ainslie et al., arXiv 2305.13245)."""

    kind: Literal["attention"] = Field("attention", description="which mixer this is")
    heads: int = Field(gt=0, description="query heads")
    key_value_heads: int = Field(
        gt=0, description="key and value heads; each serves heads / key_value_heads query heads"
    )
    head_width: int = Field(gt=0, description="width of one head")
    rope: RopeConfig | None = Field(
        RopeConfig(), description="rotary positions; null for a layer without positions (NoPE)"
    )
    query_key_norm: Literal["none", "head", "full", "after_rope"] = Field(
        "none",
        description="RMS norm of queries and keys: per head before rotation, over all heads at once before rotation, or "
        "per head without a gain after it (the last only in layers that rotate)",
    )
    query_key_value_bias: bool = Field(False, description="biases on the query, key and value projections")
    output_bias: bool = Field(False, description="bias on the output projection")
    scale: float | None = Field(None, gt=0, description="factor on q·k; null for head_width^-½")
    key_multiplier: float = Field(1.0, description="constant factor on the keys (Falcon-H1)")
    temperature: TemperatureConfig | None = Field(None, description="query temperature that grows with the position")
    softcap: float | None = Field(None, gt=0, description="c in c·tanh(score/c), before the mask (Gemma 2)")
    sinks: bool = Field(False, description="a learned logit per head that takes probability and gives no value")
    gate: GateConfig | None = Field(None, description="output or value gate computed from the input")
    window: int | None = Field(None, gt=0, description="keys a query may see, itself included; null for all")
    chunk: int | None = Field(
        None, gt=0, description="a query sees keys of its own chunk of this many positions only; null for all"
    )

    dual_chunk: DualChunkConfig | None = Field(
        None, description="inference far beyond the trained length without training; null for plain positions"
    )

    @model_validator(mode="after")
    def _fits(self) -> AttentionConfig:
        if self.heads % self.key_value_heads:
            raise ValueError(f"heads ({self.heads}) must be a multiple of key_value_heads ({self.key_value_heads})")
        if self.rope is not None and self.rope.rotated(self.head_width) % 2:
            raise ValueError(
                f"an even number of channels must turn, not {self.rope.rotated(self.head_width)} of {self.head_width}"
            )
        if self.dual_chunk is not None and self.rope is None:
            raise ValueError("dual_chunk changes rotary positions: set rope")
        if self.dual_chunk is not None and (
            self.window or self.chunk or self.softcap or self.sinks or self.query_key_norm == "after_rope"
        ):
            raise ValueError("dual_chunk goes with none of window, chunk, softcap, sinks and query_key_norm after_rope")
        return self


class SparseConfig(Config):
    """DeepSeek sparse attention (DeepSeek-V3.2): a small indexer chooses the keys that each query may see."""

    heads: int = Field(gt=0, description="indexer heads")
    head_width: int = Field(gt=0, description="width of an indexer head; its first rope_width channels turn")
    keep: int = Field(gt=0, description="keys kept per query")
    pairing: Literal["halves", "interleaved"] = Field("halves", description="pairing of the indexer's rotation")
    shared: bool = Field(False, description="no indexer of its own: reuse the keys that the last layer with one chose")
    loss: float = Field(0.0, ge=0, description="weight of the indexer's own loss; the other losses never reach it")
    stage: Literal["dense_warmup", "sparse"] = Field(
        "sparse",
        description="dense_warmup: attention sees all keys while the indexer learns to predict it; sparse: only the kept ones",
    )


class MlaConfig(Config):
    """Multi-head latent attention (DeepSeek-V2, arXiv 2405.04434)."""

    kind: Literal["mla"] = Field(description="which mixer this is")
    heads: int = Field(gt=0, description="heads")
    query_latent: int | None = Field(None, gt=0, description="width of the query latent; null: one full projection")
    key_value_latent: int = Field(gt=0, description="width of the latent that keys and values are made of")
    content_width: int = Field(gt=0, description="channels of a query or key that do not turn")
    rope_width: int = Field(gt=0, description="channels that turn; one key of this width serves all heads")
    value_width: int = Field(gt=0, description="width of a head's value")
    rope: RopeConfig | None = Field(
        RopeConfig(pairing="interleaved"), description="rotation of the rope_width channels; null for none"
    )
    latent_epsilon: float = Field(1e-6, gt=0, description="ε of the norms on the latents")
    bias: bool = Field(False, description="biases on the projections down to the latents and on the output")
    sparse: SparseConfig | None = Field(None, description="DSA: attention to selected keys only")

    @model_validator(mode="after")
    def _fits(self) -> MlaConfig:
        if self.rope is not None and self.rope_width % 2:
            raise ValueError(f"rope_width ({self.rope_width}) must be even")
        if self.sparse is not None and self.sparse.head_width < self.rope_width:
            raise ValueError(f"the indexer's head_width must be at least rope_width ({self.rope_width})")
        if self.sparse is not None and self.query_latent is None:
            raise ValueError("the indexer reads the query latent: set query_latent")
        return self


class LightningConfig(Config):
    """Lightning linear attention with a fixed decay per head (arXiv 2401.04658; MiniMax-01, arXiv 2501.08313)."""

    kind: Literal["lightning"] = Field(description="which mixer this is")
    heads: int = Field(gt=0, description="heads")
    head_width: int = Field(gt=0, description="width of one head")
    activation: Literal["silu", "gelu_tanh", "relu"] = Field("silu", description="on queries, keys and values")
    norm_epsilon: float = Field(1e-6, gt=0, description="ε of the norm over all heads' outputs")


class GatedDeltaConfig(Config):
    """Gated DeltaNet (arXiv 2412.06464) as in Qwen3-Next."""

    kind: Literal["gated_delta"] = Field(description="which mixer this is")
    key_heads: int = Field(gt=0, description="query and key heads")
    value_heads: int = Field(gt=0, description="value heads, a multiple of key_heads")
    key_width: int = Field(gt=0, description="width of a query or key head")
    value_width: int = Field(gt=0, description="width of a value head")
    convolution: int = Field(4, gt=0, description="taps of the causal convolution on queries, keys and values")

    @model_validator(mode="after")
    def _fits(self) -> GatedDeltaConfig:
        if self.value_heads % self.key_heads:
            raise ValueError(f"value_heads ({self.value_heads}) must be a multiple of key_heads ({self.key_heads})")
        return self


class KdaConfig(Config):
    """Kimi delta attention (Kimi Linear, arXiv 2510.26692): the delta rule with a decay per channel."""

    kind: Literal["kda"] = Field(description="which mixer this is")
    heads: int = Field(gt=0, description="heads")
    head_width: int = Field(gt=0, description="width of a query, key or value head, and of the gates' bottleneck")
    convolution: int = Field(4, gt=0, description="taps of the causal convolutions")


class Mamba2Config(Config):
    """Mamba-2 (state-space duality, arXiv 2405.21060)."""

    kind: Literal["mamba2"] = Field(description="which mixer this is")
    heads: int = Field(gt=0, description="heads")
    head_width: int = Field(gt=0, description="width of one head")
    state: int = Field(gt=0, description="size of the state of each channel")
    groups: int = Field(1, gt=0, description="groups of heads that share B and C")
    convolution: int = Field(4, gt=0, description="taps of the causal convolution on x, B and C")
    convolution_bias: bool = Field(True, description="bias of the convolution")
    projection_bias: bool = Field(False, description="biases on the input and output projections")
    time_step_min: float = Field(0.0, ge=0, description="lower bound of Δ after softplus")
    time_step_max: float | None = Field(None, gt=0, description="upper bound of Δ; null for none")
    norm: Literal["none", "gate_first", "gate_last"] = Field(
        "gate_first", description="grouped RMS norm of the output: after the z-gate, before it, or none"
    )
    input_multiplier: float = Field(1.0, description="factor on the mixer's input (Falcon-H1)")
    section_multipliers: tuple[float, float, float, float, float] = Field(
        (1.0, 1.0, 1.0, 1.0, 1.0), description="factors on z, x, B, C and Δ after the input projection (Falcon-H1)"
    )

    @model_validator(mode="after")
    def _fits(self) -> Mamba2Config:
        if self.heads % self.groups:
            raise ValueError(f"heads ({self.heads}) must be a multiple of groups ({self.groups})")
        return self


class ParallelConfig(Config):
    """Softmax attention beside Mamba-2 on the same normed input (Falcon-H1, arXiv 2507.22448).

    y = attention_out · Attention(attention_in · x) + mamba_out · Mamba2(x)
    """

    kind: Literal["parallel"] = Field(description="which mixer this is")
    attention: AttentionConfig = Field(description="the softmax branch")
    mamba: Mamba2Config = Field(description="the state-space branch")
    attention_in: float = Field(1.0, description="factor on the attention branch's input")
    attention_out: float = Field(1.0, description="factor on the attention branch's output")
    mamba_out: float = Field(1.0, description="factor on the state-space branch's output")


def _kind(value: Any) -> str:
    return value.get("kind", "attention") if isinstance(value, dict) else value.kind


MixerConfig = Annotated[
    Annotated[AttentionConfig, Tag("attention")]
    | Annotated[MlaConfig, Tag("mla")]
    | Annotated[LightningConfig, Tag("lightning")]
    | Annotated[GatedDeltaConfig, Tag("gated_delta")]
    | Annotated[KdaConfig, Tag("kda")]
    | Annotated[Mamba2Config, Tag("mamba2")]
    | Annotated[ParallelConfig, Tag("parallel")],
    Discriminator(_kind),
]
