"""Feed-forwards as data: dense, or a mixture of experts with its router and balancers."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, Tag, model_validator

from ingot.workspace.config import Config

Activation = Literal["silu", "gelu", "gelu_tanh", "relu", "relu_squared", "swish_1702"]


class FeedForwardConfig(Config):
    """Gated feed-forward: down(act(gate x) ⊙ up x) (Shazeer, arXiv 2002.05202); ungated: down(act(up x))."""

    kind: Literal["dense"] = Field("dense", description="which feed-forward this is")
    width: int = Field(gt=0, description="inner width")
    gated: bool = Field(True, description="with a gate projection")
    activation: Activation = Field("silu", description="activation of the gate; swish_1702 is x·σ(1.702·x) (gpt-oss)")
    bias: bool = Field(False, description="biases on all projections")
    clamp: float | None = Field(None, gt=0, description="gate ≤ clamp and |up| ≤ clamp before the product (gpt-oss)")
    up_offset: float = Field(0.0, description="added to up before the product (gpt-oss: 1)")
    gate_multiplier: float = Field(1.0, description="factor on the gate inside the activation (Falcon-H1)")
    output_multiplier: float = Field(1.0, description="factor on the output (Falcon-H1)")

    @model_validator(mode="after")
    def _fits(self) -> FeedForwardConfig:
        if not self.gated and (self.clamp, self.up_offset, self.gate_multiplier) != (None, 0, 1):
            raise ValueError("clamp, up_offset and gate_multiplier belong to a gated feed-forward")
        return self


class RouterConfig(Config):
    """Which experts a token goes to, and with what weight. Selection and weight are two decisions (DeepSeek-V3)."""

    score: Literal["softmax", "sigmoid", "top_k_softmax", "sigmoid_input"] = Field(
        "softmax",
        description="softmax or sigmoid of all logits; softmax over the chosen logits only (gpt-oss); sigmoid of the "
        "chosen logits that multiplies the expert's *input* (Llama 4)",
    )
    bias: bool = Field(False, description="a learned bias of the router's projection (gpt-oss)")
    selection_bias: bool = Field(False, description="a balancing bias, not learned by gradient, on the choice only")
    groups: int = Field(1, gt=0, description="experts are split into this many groups …")
    kept_groups: int = Field(1, gt=0, description="… of which this many best ones may be chosen from")
    group_value: Literal["max", "top_two"] = Field(
        "top_two", description="a group's value: its best expert (V2) or the sum of its two best (V3)"
    )
    renormalise: bool = Field(False, description="divide the chosen weights by their sum")
    renormalise_epsilon: float = Field(0.0, ge=0, description="added to that sum (V3: 1e-20)")
    scaling: float = Field(1.0, gt=0, description="factor on the weights")
    float32: bool = Field(False, description="router product in float32 whatever the activations are (V2, V3 family)")

    @model_validator(mode="after")
    def _fits(self) -> RouterConfig:
        if self.kept_groups > self.groups:
            raise ValueError(f"kept_groups ({self.kept_groups}) is more than groups ({self.groups})")
        return self


class AuxiliaryLoss(Config):
    """Switch-style balance loss (arXiv 2101.03961), α·Σ f_i P_i with f = N·(share of choices) so that balance gives α.

    `scope` says over which tokens the shares f are counted: each sequence (DeepSeek-V3), each micro-batch, or all tokens
    of the step (arXiv 2501.11873, Qwen3).
    """

    kind: Literal["loss"] = Field("loss", description="which balancer this is")
    coefficient: float = Field(gt=0, description="α")
    scope: Literal["sequence", "micro_batch", "global"] = Field("global", description="where f is counted")


class RouterZLoss(Config):
    """Router z-loss (ST-MoE, arXiv 2202.08906): coefficient · mean (logsumexp of the router's logits)²."""

    kind: Literal["z_loss"] = Field("z_loss", description="which balancer this is")
    coefficient: float = Field(gt=0, description="factor of the loss")


class BiasUpdate(Config):
    """Loss-free balancing (arXiv 2408.15664): b_i += rate·sign(mean load − load_i) after every step."""

    kind: Literal["bias"] = Field("bias", description="which balancer this is")
    rate: float = Field(1e-3, ge=0, description="γ")
    recentre: bool = Field(False, description="subtract the mean of b afterwards (Trinity Nano and Mini)")


class Smebu(Config):
    """Soft-clamped momentum expert bias update (Trinity Large, arXiv 2602.17004).

    v = (mean − load)/mean; Δ = rate·tanh(sharpness·v), recentred; m ← momentum·m + (1 − momentum)·Δ; b += m
    """

    kind: Literal["smebu"] = Field("smebu", description="which balancer this is")
    rate: float = Field(5e-4, gt=0, description="λ")
    momentum: float = Field(0.5, ge=0, lt=1, description="β")
    sharpness: float = Field(2.0, gt=0, description="κ")


class QuantileUpdate(Config):
    """Quantile balancing: move b_i so that expert i's scores pass a common threshold for a K/N share of the tokens.

    q_i = the (1 − K/N) quantile of expert i's scores in the step; b ← (1 − rate)·b + rate·(mean(q) − q)
    """

    kind: Literal["quantile"] = Field("quantile", description="which balancer this is")
    rate: float = Field(0.1, gt=0, le=1, description="share of the way to the new bias in each step")


Balancer = Annotated[AuxiliaryLoss | RouterZLoss | BiasUpdate | Smebu | QuantileUpdate, Field(discriminator="kind")]


class MoeConfig(Config):
    """Mixture of experts: out = shared(x) + Σ_k weight_k · expert_k(x)."""

    kind: Literal["moe"] = Field(description="which feed-forward this is")
    experts: int = Field(gt=0, description="routed experts N")
    active: int = Field(gt=0, description="experts per token K")
    expert: FeedForwardConfig = Field(description="the shape of one routed expert")
    router: RouterConfig = Field(RouterConfig(), description="scores, choice and weights")
    shared: FeedForwardConfig | None = Field(None, description="an expert that every token passes")
    shared_gate: bool = Field(False, description="multiply the shared expert's output by σ(w·x) (Qwen2-MoE)")
    latent: int | None = Field(
        None, gt=0, description="routed experts work in a latent of this width (Nemotron 3); null for the model's width"
    )
    balancers: tuple[Balancer, ...] = Field((), description="what keeps the experts' loads equal while training")

    @model_validator(mode="after")
    def _fits(self) -> MoeConfig:
        if self.active > self.experts:
            raise ValueError(f"active ({self.active}) is more than experts ({self.experts})")
        if self.experts % self.router.groups:
            raise ValueError(f"experts ({self.experts}) must be a multiple of router.groups ({self.router.groups})")
        if self.active > self.experts // self.router.groups * self.router.kept_groups:
            raise ValueError("the kept groups hold fewer experts than are active")
        if self.shared_gate and self.shared is None:
            raise ValueError("shared_gate multiplies the shared expert's output: set shared")
        moved = [one.kind for one in self.balancers if isinstance(one, BiasUpdate | Smebu | QuantileUpdate)]
        if moved and not self.router.selection_bias:
            raise ValueError(f"the balancer {moved[0]} moves the selection bias: set router.selection_bias")
        if len(moved) > 1:
            raise ValueError(f"only one balancer may move the selection bias, not {' and '.join(moved)}")
        return self


def _kind(value: Any) -> str:
    return value.get("kind", "dense") if isinstance(value, dict) else value.kind


ChannelConfig = Annotated[
    Annotated[FeedForwardConfig, Tag("dense")] | Annotated[MoeConfig, Tag("moe")], Discriminator(_kind)
]
