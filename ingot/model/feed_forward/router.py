"""The router of a mixture of experts: which K of the E experts a token goes to, and with what weight.

    logits     z = W x (+ b)
    scores     s = softmax(z) | σ(z) | z                      z itself for top_k_softmax and sigmoid_input
    choice     the K largest of s + β                         β: the selection bias that balancers move (arXiv 2408.15664)
    weights    s_k | softmax over the chosen z_k | σ(z_k)     without β; then optionally / (Σ + ε), then · scaling

With groups (DeepSeek-V2, arXiv 2405.04434; V3, arXiv 2412.19437) the choice is limited to the experts of the best groups, a
group being worth its best expert or the sum of its two best. Experts of the other groups are set to −∞; the V2 code sets
them to 0, which chooses the same experts except where a softmax score is 0 exactly, and then that choice weighs nothing.

Choice and weight are two decisions: β changes the choice, never the weight of an expert, and gets no gradient. Equal
scores are taken in torch.topk's order, which is arbitrary: two correct programs may differ there.

Shapes: N tokens, D width, E experts, K experts of a token, G groups.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple, Self

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn
from torch.nn.functional import linear

from ingot.workspace.config import Config

TINY = 1e-20  # keeps 0/0 away where every sigmoid is 0


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


class Routing(NamedTuple):
    """The router's decision; scores are those of the choice, without the selection bias.

    A tuple, because FSDP of torch 2.11 looks for tensors in tuples only: weights of a router on its own would be freed before
    their backward pass.
    """

    weights_NK: Tensor
    indices_NK: Tensor
    scores_NE: Tensor
    logits_NE: Tensor


class Float32Buffers(nn.Module):
    """A module whose buffers stay in float32 when the model changes dtype: a bias moves by steps that bfloat16 rounds away."""

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        before = dict(self._buffers)
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        for name, old in before.items():
            new = self._buffers[name]
            if old is not None and new is not None and new.dtype != old.dtype:
                self._buffers[name] = old.to(new.device)
        return self


class Router(Float32Buffers):
    """Scores, choice and weights. `selection_bias` is saved with the model."""

    selection_bias: Tensor | None

    def __init__(self, config: RouterConfig, experts: int, active: int, width: int) -> None:
        super().__init__()
        self.config, self.experts, self.active = config, experts, active
        self.weight = nn.Parameter(torch.empty(experts, width))
        # uniform_, because normal_ on the meta device imports torch's compiler
        nn.init.uniform_(self.weight, -(width**-0.5), width**-0.5)
        self.bias = nn.Parameter(torch.zeros(experts)) if config.bias else None
        self.register_buffer("selection_bias", torch.zeros(experts) if config.selection_bias else None)

    def forward(self, x_ND: Tensor) -> Routing:
        logits_NE = self._logits(x_ND)
        wide_NE = logits_NE.to(torch.promote_types(logits_NE.dtype, torch.float32))
        score = self.config.score
        scores_NE = wide_NE.softmax(-1) if score == "softmax" else wide_NE.sigmoid() if score == "sigmoid" else wide_NE
        indices_NK = self._choose(scores_NE.detach())
        weights_NK = scores_NE.gather(1, indices_NK)
        if score == "top_k_softmax":
            weights_NK = weights_NK.softmax(-1)
        elif score == "sigmoid_input":
            weights_NK = weights_NK.sigmoid()
        if self.config.renormalise:
            weights_NK = weights_NK / (weights_NK.sum(-1, keepdim=True) + self.config.renormalise_epsilon)
        if self.config.scaling != 1:
            weights_NK = weights_NK * self.config.scaling
        return Routing(weights_NK, indices_NK, scores_NE, logits_NE)

    def distribution(self, routing: Routing) -> Tensor:
        """Each token's scores as shares that sum to one [N, E]: what balance losses and the entropy look at."""
        if self.config.score == "softmax":
            return routing.scores_NE
        if self.config.score == "top_k_softmax":
            return routing.scores_NE.softmax(-1)
        sigmoid_NE = routing.scores_NE if self.config.score == "sigmoid" else routing.scores_NE.sigmoid()
        return sigmoid_NE / (sigmoid_NE.sum(-1, keepdim=True) + TINY)

    def _logits(self, x_ND: Tensor) -> Tensor:
        if not self.config.float32:
            return linear(x_ND, self.weight, self.bias)
        dtype = torch.promote_types(x_ND.dtype, torch.float32)
        bias = None if self.bias is None else self.bias.to(dtype)
        with torch.autocast(x_ND.device.type, enabled=False):
            return linear(x_ND.to(dtype), self.weight.to(dtype), bias)

    def _choose(self, scores_NE: Tensor) -> Tensor:
        if self.selection_bias is not None:
            scores_NE = scores_NE + self.selection_bias
        groups = self.config.groups
        if groups > 1:
            members_NGM = scores_NE.unflatten(1, (groups, -1))
            best = 1 if self.config.group_value == "max" else min(2, members_NGM.shape[2])
            values_NG = members_NGM.topk(best).values.sum(-1)
            kept_NG = torch.zeros_like(values_NG, dtype=torch.bool)
            kept_NG.scatter_(1, values_NG.topk(self.config.kept_groups).indices, True)
            scores_NE = members_NGM.masked_fill(~kept_NG[..., None], -torch.inf).flatten(1)
        return scores_NE.topk(self.active).indices
