"""Draws initial weights as a pure function of the seed, the same for every layout of ranks.

    normal      N(0, std²)                     0.02 (OLMo 2), 0.006 (DeepSeek-V3), scale/sqrt(width) (SmolLM2: 1, Trinity: 0.5)
    truncated   the same, cut at three std     Trinity
    xavier      N(0, 2 / (fan_in + fan_out))   MiniMax-01

Output projections (those that write to the residual stream) get std / sqrt(2·layers), so that the stream's variance does
not grow with depth at the start (Radford et al., GPT-2). Norm gains start at one, biases, routers' biases and sinks at zero;
parts with rules of their own (the decays and time steps of recurrent mixers) fill those parameters in `reset_special`.

muP (arXiv 2203.03466) for width multiplier m = width / base_width, so that the best learning rate does not move with width:

    part                      std             learning rate (Adam)     forward
    embedding                 std             1                        –
    matrices of the blocks    std / sqrt(m)   1/m                      –
    head, untied              std             1                        logits / m
    gains, biases, taps       –               1                        –

`std` is then that of the base model. The 1/m on the logits is ModelConfig.logit_scale (`mup_config` sets it); strict muP
also wants attention scores divided by the head's width instead of its root: AttentionConfig.scale.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor, distribute_tensor

from ingot.model.config import InitialConfig, ModelConfig
from ingot.model.norm import RmsNorm
from ingot.model.order import in_ranks_order, orders
from ingot.model.transformer import Transformer

OUTPUTS = (".output.weight", ".down.weight", ".experts.down", ".latent_up.weight")
"""Ends of the names of parameters that write to the residual stream."""
CUT = 3.0  # a truncated normal ends at this many std


@torch.no_grad()
def initialise(model: Transformer, seed: int) -> None:
    """Fill every parameter; the global random generator is not touched.

    Values are drawn for the whole model, one parameter at a time on the CPU, and a rank keeps its shard of each: shards
    differ, copies agree. That the same seed fills two shards with the same values is a famous bug of sharded models.
    """
    generator = torch.Generator().manual_seed(seed)
    with torch.device("meta"):
        whole = Transformer(model.config)
    own, row_orders, drawn = dict(model.named_parameters()), orders(model), dict[str, Tensor]()
    specials = {path: each for path, each in whole.named_modules() if hasattr(each, "reset_special")}

    def keep(name: str, value: Tensor) -> None:
        if name in own:
            copy_shard(own[name], in_ranks_order(value, row_orders.get(name)))

    for name, parameter in sorted(whole.named_parameters()):
        value = initial_value(name, parameter, model.config, generator)
        keep(name, value)
        if name.rpartition(".")[0] in specials:
            drawn[name] = value
    for path, special in specials.items():
        for name, _ in list(special.named_parameters(recurse=False)):
            special.register_parameter(name, nn.Parameter(drawn[f"{path}.{name}"]))
        special.reset_special(generator)
        for name, parameter in special.named_parameters(recurse=False):
            keep(f"{path}.{name}", parameter)
    for module in model.modules():
        if isinstance(module, RmsNorm) and module.gain is not None and module.config.zero_centred:
            module.gain.sub_(1.0)


def copy_shard(parameter: Tensor, value: Tensor) -> None:
    """Copy a whole value into a parameter, of which this rank may hold a shard."""
    if isinstance(parameter, DTensor):
        here = distribute_tensor(
            value.to(parameter.device), parameter.device_mesh, parameter.placements, src_data_rank=None
        )
        parameter.to_local().copy_(here.to_local())
    else:
        parameter.copy_(value)


def learning_rate_share(name: str, parameter: nn.Parameter, config: ModelConfig) -> float:
    """The factor of muP on a parameter's learning rate (Adam): 1/m for the matrices of the blocks, else one.

    The taps of a convolution are no matrix: a channel adds up as many of them at every width.
    """
    base = config.initial.base_width
    matrix = parameter.dim() >= 2 and name.startswith(("blocks.", "multi_token.")) and ".convolution." not in name
    return base / config.width if base is not None and matrix else 1.0


def mup_config(config: ModelConfig, base_width: int) -> ModelConfig:
    """The model with muP relative to a model of `base_width` that was tuned: initial values, rates and head."""
    initial = config.initial.model_copy(update={"base_width": base_width})
    return config.model_copy(update={"initial": initial, "logit_scale": config.logit_scale * base_width / config.width})


def initial_value(name: str, parameter: nn.Parameter, config: ModelConfig, generator: torch.Generator) -> Tensor:
    """The value that a parameter of this name and shape begins with, but for `reset_special` and zero-centred gains."""
    initial = config.initial
    if name.endswith(("gain", "norm.weight")):  # of our norms, and of torch's LayerNorm
        scaled = initial.depth_scaled_post_norm and "post_norm" in name
        return torch.full(parameter.shape, config.depth**-0.5 if scaled else 1.0)
    if parameter.dim() < 2 or name.endswith("bias"):
        return torch.zeros(parameter.shape)
    std = initial.std if initial.std is not None else initial.scale / config.width**0.5
    if initial.distribution == "xavier":
        std = (2 / (parameter.shape[-1] + parameter.shape[-2])) ** 0.5
    std *= learning_rate_share(name, parameter, config) ** 0.5  # muP: the variance shrinks like the rate
    if initial.depth_scaled and name.endswith(OUTPUTS):
        std /= (2 * config.depth) ** 0.5
    return _draw(parameter.shape, std, initial, generator)


def _draw(shape: torch.Size, std: float, initial: InitialConfig, generator: torch.Generator) -> Tensor:
    if initial.distribution != "truncated":
        return torch.empty(shape).normal_(0.0, std, generator=generator)
    low, high = (torch.special.ndtr(torch.tensor(end)).item() for end in (-CUT, CUT))
    uniform = torch.empty(shape).uniform_(low, high, generator=generator)
    return torch.special.ndtri(uniform).clamp_(-CUT, CUT) * std
