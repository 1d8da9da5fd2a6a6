"""AdamW over named parameter groups.

Matrices decay, everything else (embeddings, norm gains, biases) does not: decaying an embedding shrinks rare tokens that
get no gradient, and decaying a gain works against the norm (OLMo 2, arXiv 2501.00656, section 3). A model with muP
(model/initialise.py) multiplies the learning rate of some parameters: each group has its `lr_share`, which whoever sets the
rate multiplies with.
"""

from __future__ import annotations

import torch
from torch import nn

from ingot.model.initialise import learning_rate_share
from ingot.model.transformer import Transformer
from ingot.optim.config import AdamWConfig


def decays(name: str, parameter: nn.Parameter) -> bool:
    """Whether weight decay applies to this parameter."""
    return parameter.dim() >= 2 and "embedding" not in name and not name.endswith("bias")  # experts' biases are stacked


def make_adamw(model: Transformer, config: AdamWConfig) -> torch.optim.AdamW:
    """The optimizer with its groups; the fused kernel does one pass over the weights instead of a dozen."""
    groups: dict[tuple[bool, float], list[nn.Parameter]] = {(True, 1.0): [], (False, 1.0): []}
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            key = decays(name, parameter), learning_rate_share(name, parameter, model.config)
            groups.setdefault(key, []).append(parameter)
    listed = [
        {
            "params": parameters,
            "lr": config.lr * share,
            "lr_share": share,
            "weight_decay": config.weight_decay if decay else 0.0,
        }
        for (decay, share), parameters in groups.items()
    ]
    return torch.optim.AdamW(listed, lr=config.lr, betas=config.betas, eps=config.epsilon, fused=True)
