"""Mixture of experts: every token passes the shared expert and a few routed ones.

    out = shared(x) [· σ(g·x)] + up( Σ_k weight_k · expert_k(down x) )

Router and balancers read the full width; with a latent, the routed experts work on a narrower projection of x (Nemotron 3).
Without one `down` and `up` are the identity. The parts: router.py chooses, experts.py computes, balance.py keeps the loads
equal. Padding is computed like any token (leaving it out would mean waiting for the device) but counts nowhere.

Shapes: B rows, T tokens of a row, N = B·T, D width, E experts, K experts of a token.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn

from ingot.model.context import Context
from ingot.model.document_spans import PADDING
from ingot.model.feed_forward.balance import AnyBalancer, Balancer, Seen
from ingot.model.feed_forward.channel import ChannelConfig, RoutedExperts
from ingot.model.feed_forward.dense import FeedForward, FeedForwardConfig
from ingot.model.feed_forward.experts import Experts
from ingot.model.feed_forward.router import Router, RouterConfig, Routing
from ingot.model.linear import Linear
from ingot.model.mixers.mixer import Site
from ingot.model.record import Reporter, RouterLoad


class MoeConfig(ChannelConfig):
    """Mixture of experts: out = shared(x) + Σ_k weight_k · expert_k(x)."""

    kind: Literal["moe"] = Field("moe", description="which feed-forward this is")
    experts: int = Field(gt=0, description="routed experts N")
    active: int = Field(gt=0, description="experts per token K")
    expert: FeedForwardConfig = Field(description="the shape of one routed expert")
    router: RouterConfig = Field(RouterConfig(), description="scores, choice and weights")
    shared: FeedForwardConfig | None = Field(None, description="an expert that every token passes")
    shared_gate: bool = Field(False, description="multiply the shared expert's output by σ(w·x) (Qwen2-MoE)")
    latent: int | None = Field(
        None, gt=0, description="routed experts work in a latent of this width (Nemotron 3); null for the model's width"
    )
    balancers: tuple[AnyBalancer, ...] = Field((), description="what keeps the experts' loads equal while training")

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
        moved = [one.kind for one in self.balancers if one.moves_bias]
        if moved and not self.router.selection_bias:
            raise ValueError(f"the balancer {moved[0]} moves the selection bias: set router.selection_bias")
        if len(moved) > 1:
            raise ValueError(f"only one balancer may move the selection bias, not {' and '.join(moved)}")
        return self

    def build(self, site: Site) -> MixtureOfExperts:
        return MixtureOfExperts(self, site)

    def describe(self) -> str:
        words = [f"{self.active} of {self.experts} experts × {self.expert.width} ({self.expert.activation_words})"]
        words += [f"latent {self.latent}"] if self.latent else []
        words += [f"{'gated ' if self.shared_gate else ''}shared {self.shared.width}"] if self.shared else []
        scores = {"top_k_softmax": "softmax over the chosen", "sigmoid_input": "sigmoid on the input"}
        words.append(f"{scores.get(self.router.score, self.router.score)} router")
        words += [f"{self.router.kept_groups} of {self.router.groups} groups"] if self.router.groups > 1 else []
        words += ["selection bias"] if self.router.selection_bias else []
        return ", ".join(words)

    @property
    def inner_width(self) -> int:
        return self.active * self.expert.width + (self.shared.width if self.shared else 0)

    @property
    def has_gate(self) -> bool:
        return self.expert.gated

    @property
    def divided(self) -> Mapping[str, int]:
        shared = {"shared.width": self.shared.width} if self.shared else {}
        return {"expert.width": self.expert.width, **shared}

    @property
    def routed(self) -> RoutedExperts:
        shared = self.shared.width if self.shared else 0
        return RoutedExperts(self.experts, self.active, self.expert.width, shared, self.latent)

    def group(self, parameter: str) -> str:
        name = parameter.partition(".")[0]
        if name in ("experts", "router"):
            return "routed experts" if name == "experts" else "router"
        return "latent" if "latent" in name else "shared experts"


class MixtureOfExperts(nn.Module, Reporter):
    """In a pass with a Record it also reports its load and the losses of its balancers."""

    def __init__(self, config: MoeConfig, site: Site) -> None:
        super().__init__()
        self.config, self.layer = config, site.layer
        self.router = Router(config.router, config.experts, config.active, site.width)
        weigh_input = config.router.score == "sigmoid_input"
        inner = config.latent or site.width
        self.experts = Experts(config.expert, config.experts, inner, weigh_input=weigh_input)
        self.latent_down = Linear(site.width, inner, bias=False) if config.latent else None
        self.latent_up = Linear(inner, site.width, bias=False) if config.latent else None
        self.shared = FeedForward(config.shared, site.width) if config.shared else None
        self.shared_gate = Linear(site.width, 1, bias=False) if config.shared_gate else None
        self.bias_moves = True  # not that of a router which `train_only` freezes (train/freeze.py)
        self.seen: Routing | None = None  # what the router chose in the last pass; None once it is reported
        self.balancers = nn.ModuleList(
            each.build(config.experts, config.active, config.router.score) for each in config.balancers
        )
        self.reported_losses: dict[str, float] = {}
        for balancer in self._balancers():
            if balancer.name:
                earlier = self.reported_losses.get(balancer.name, 0.0)
                self.reported_losses[balancer.name] = earlier + balancer.coefficient

    def forward(self, x_BTD: Tensor, context: Context | None = None) -> Tensor:
        x_ND = x_BTD.flatten(0, -2)
        routing = self.router(x_ND)
        if context is not None and context.record is not None and not context.reported:
            self.seen = routing
        inner = x_ND if self.latent_down is None else self.latent_down(x_ND)
        out_ND = self.experts(inner, routing.indices_NK, routing.weights_NK)
        if self.latent_up is not None:
            out_ND = self.latent_up(out_ND)
        if self.shared is not None:
            shared_ND = self.shared(x_ND)
            if self.shared_gate is not None:
                shared_ND = torch.sigmoid(self.shared_gate(x_ND)) * shared_ND
            out_ND = out_ND + shared_ND
        return out_ND.view_as(x_BTD)

    def report(self, context: Context) -> None:
        """Report to the pass's Record what the router did.

        The caller of the layer calls this, not the layer itself: the layer may be compiled, in code that all
        equal layers share and that cannot know their numbers, and it may be computed a second time in the backward pass.
        """
        record, routing = context.record, self.seen
        if record is None or routing is None:
            return
        self.seen = None
        shares_NE = self.router.distribution(routing)
        real_N = context.once("real tokens of the batch", lambda: real_tokens(context))
        sequences_N = context.once("sequence of each token", lambda: sequence_numbers(context))
        choices_E = count_choices(routing.indices_NK, real_N, self.config.experts)
        before = record.before.get(self.layer)
        earlier_E = None if before is None else before.choices_E
        seen = Seen(
            routing, shares_NE, real_N, sequences_N, choices_E, earlier_E, record.sum_ranks, context.context_parallel
        )
        entropy = (torch.special.entr(shares_NE.detach()).sum(-1) * real_N).sum()
        histogram_EH = None
        for balancer in self._balancers():
            loss = balancer.loss(seen)
            if loss is not None:
                record.add_loss(balancer.name, loss)
            observed_EH = balancer.observe(seen)
            histogram_EH = histogram_EH if observed_EH is None else observed_EH
        record.add_load(self.layer, RouterLoad(choices_E, real_N.sum(), entropy, histogram_EH))

    def _balancers(self) -> list[Balancer]:
        return [each for each in self.balancers if isinstance(each, Balancer)]

    @torch.no_grad()
    def update_bias(self, load: RouterLoad) -> None:
        """Let the balancers move the selection bias; `load` is that of the step just done."""
        if self.router.selection_bias is not None:
            for balancer in self._balancers():
                balancer.update(self.router.selection_bias, load)


def update_biases(model: nn.Module, loads: Mapping[int, RouterLoad]) -> None:
    """After an optimizer step: move the selection biases of all routers that saw tokens in it, but of frozen ones."""
    for module in model.modules():
        if isinstance(module, MixtureOfExperts) and module.layer in loads and module.bias_moves:
            module.update_bias(loads[module.layer])


def real_tokens(context: Context) -> Tensor:
    """True where a token is not padding [N]."""
    if context.documents_BT is not None:
        return (context.documents_BT != PADDING).reshape(-1)
    rows, length = context.positions_BT.shape
    place_T = torch.arange(length, device=context.positions_BT.device)
    if context.lengths_B is None:
        return torch.ones_like(place_T, dtype=torch.bool).repeat(rows)
    return (place_T < context.lengths_B[:, None]).reshape(-1)


def sequence_numbers(context: Context) -> Tensor:
    """Numbers tokens by document (by row where there are none), from 0 [N]."""
    whole = context.whole
    starts_BT = torch.zeros_like(whole.positions_BT)
    starts_BT[:, 0] = 1
    if whole.documents_BT is not None:
        starts_BT[:, 1:] = whole.documents_BT[:, 1:] != whole.documents_BT[:, :-1]
    numbers_BT = (starts_BT.reshape(-1).cumsum(0) - 1).view_as(starts_BT)
    return context.own(numbers_BT).reshape(-1)


def count_choices(indices_NK: Tensor, real_N: Tensor, experts: int) -> Tensor:
    """How often each expert was chosen by a real token [E], without waiting for the device."""
    counted_NK = real_N[:, None].long().expand_as(indices_NK)
    counts_E = torch.zeros(experts, dtype=torch.int64, device=indices_NK.device)
    return counts_E.scatter_add_(0, indices_NK.reshape(-1), counted_NK.reshape(-1))
