"""Builds the optimizer of a model, with one group for all parameters that follow the same rules.

Every group has its `peak_lr`: the loop sets lr = peak_lr · (the schedule's share) each step. With muP (model/initialise.py)
rates depend on the model's width, which is m times that of the model that was tuned:

    AdamW             1/m    for the matrices of the blocks: the step of every entry is the rate, and m of them add up
    Muon, rms         1/√m   the largest singular value of a step is rate · 0.2·√max(rows, columns), and must not change
    Muon, spectral    1      the step is in units of the spectral norm already (arXiv 2310.17813)
"""

from __future__ import annotations

from typing import Any, Literal

from torch import nn
from torch.optim import Optimizer

from ingot.model.initialise import learning_rate_share
from ingot.model.transformer import Transformer
from ingot.optim.config import AdamWConfig, MuonConfig, OptimizerConfig
from ingot.optim.groups import HEAD, decays, is_hidden_matrix, match_groups
from ingot.optim.idle import idle_options
from ingot.workspace.errors import RecipeError

Half = Literal["adamw", "muon"]


def make_optimizer(model: Transformer, config: OptimizerConfig) -> Optimizer:
    """The optimizer of the parameters that train, in as few groups as their rules allow."""
    for problem, fix in idle_options(config, model.config):
        raise RecipeError(problem, fix=fix)
    named = [(name, each) for name, each in model.named_parameters() if each.requires_grad]
    own_rules = match_groups(named, config.groups, model.elsewhere)
    listed: dict[tuple[Half, float, float], list[nn.Parameter]] = {}
    for name, parameter in named:
        rule = own_rules.get(name)
        half = (rule and rule.optimizer) or _half(name, parameter, config)
        if half == "muon" and parameter.dim() < 2:
            raise RecipeError(
                f"Muon updates matrices, and {name} is a vector",
                place="optimizer.groups",
                fix="give that group optimizer: adamw, or a pattern that leaves the vector out",
            )
        rate = _rate(half, config) if rule is None or rule.lr is None else rule.lr
        rate *= _width_share(half, learning_rate_share(name, parameter, model.config), config)
        decay = config.weight_decay if decays(name, parameter) else 0.0
        if rule is not None and rule.weight_decay is not None:
            decay = rule.weight_decay
        listed.setdefault((half, rate, decay), []).append(parameter)
    groups = [
        {"params": parameters, "lr": rate, "peak_lr": rate, "weight_decay": decay, **_options(half, config)}
        for (half, rate, decay), parameters in listed.items()
    ]
    return config.build(groups, model)


def _half(name: str, parameter: nn.Parameter, config: OptimizerConfig) -> Half:
    if not isinstance(config, MuonConfig):
        return "adamw"
    return "muon" if is_hidden_matrix(name, parameter) or (name == HEAD and config.head == "muon") else "adamw"


def _rate(half: Half, config: OptimizerConfig) -> float:
    rest = config.rest_lr if isinstance(config, MuonConfig) and half == "adamw" else None
    return config.lr if rest is None else rest


def _width_share(half: Half, share: float, config: OptimizerConfig) -> float:
    if isinstance(config, MuonConfig) and half == "adamw":
        return share
    found = config.width_share(share)
    assert found is not None or share == 1  # idle_options refuses it
    return 1.0 if found is None else found


def _options(half: Half, config: OptimizerConfig) -> dict[str, Any]:
    if not isinstance(config, AdamWConfig | MuonConfig):
        return {"half": config.short_name}
    if half == "adamw":
        return {"half": half, "betas": config.betas, "epsilon": config.epsilon}
    assert isinstance(config, MuonConfig)
    names = ("momentum", "nesterov", "iterations", "coefficients", "scale", "split_heads")
    return {"half": half, **{name: getattr(config, name) for name in names}}
