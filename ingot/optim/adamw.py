"""AdamW over named parameter groups.

Matrices decay, everything else (embeddings, norm gains, biases) does not: decaying an embedding shrinks rare tokens that
get no gradient, and decaying a gain works against the norm (OLMo 2, arXiv 2501.00656, section 3).
"""

from __future__ import annotations

import torch
from torch import nn

from ingot.optim.config import AdamWConfig


def decays(name: str, parameter: nn.Parameter) -> bool:
    """Whether weight decay applies to this parameter."""
    return parameter.dim() >= 2 and "embedding" not in name


def make_adamw(model: nn.Module, config: AdamWConfig) -> torch.optim.AdamW:
    """The optimizer with its two groups; the fused kernel does one pass over the weights instead of a dozen."""
    named = [(name, parameter) for name, parameter in model.named_parameters() if parameter.requires_grad]
    groups = [
        {"params": [p for name, p in named if decays(name, p)], "weight_decay": config.weight_decay},
        {"params": [p for name, p in named if not decays(name, p)], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=config.lr, betas=config.betas, eps=config.epsilon, fused=True)
