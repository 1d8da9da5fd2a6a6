"""What a stage of pre-training changes about the model that it goes on with; a change that would do nothing is refused.

Without changing weights: the reach of positions (a larger RoPE base, arXiv 2309.16039, or a scaling such as YaRN, arXiv
2309.00071) and coefficients of the training itself: the weight of multi-token prediction and the rate at which routers' biases
move, which DeepSeek-V3 (arXiv 2412.19437) lowers late in its run. Stages that follow each other carry such a change of recipe:
one stage until the change, the next one from there. `sparse` alone adds weights: the indexers of sparse attention
(DeepSeek-V3.2), for a model that has none.
"""

from __future__ import annotations

from ingot.checkpoints.indexers import sparse_model
from ingot.model.config import ModelConfig
from ingot.train.pretrain_config import PretrainConfig
from ingot.workspace.errors import RecipeError

BIAS_BALANCERS = ("bias", "smebu", "quantile")
"""Kinds of balancers with a `rate`, at which they move the routers' selection biases (feed_forward/config.py)."""


def changed_model(model: ModelConfig, config: PretrainConfig) -> ModelConfig:
    """The model's configuration with what the stage changes; no weight that it has gets another shape or meaning."""
    context = max(model.context, config.sequence_length)
    model = model.model_copy(update={"context": context})
    if config.rope_base is not None:
        if not model.rotates():
            raise RecipeError("rope_base: no layer of the model rotates its positions", fix="leave it out")
        model = model.with_rope_base(config.rope_base)
    if config.rope_scaling is not None:
        if not model.rotates(whole=True):
            problem = "rope_scaling: no layer of the model rotates its positions and sees the whole text"
            raise RecipeError(problem, fix="leave it out; windows do not grow with the context")
        model = model.with_rope_scaling(config.rope_scaling, context)
    if config.multi_token_weight is not None:
        model = _with_multi_token_weight(model, config.multi_token_weight)
    if config.bias_rate is not None:
        model = _with_bias_rate(model, config.bias_rate)
    return model if config.sparse is None else sparse_model(model, config.sparse)


def _with_multi_token_weight(model: ModelConfig, weight: float) -> ModelConfig:
    if model.multi_token is None:
        raise RecipeError("multi_token_weight: the model has no multi-token prediction", fix="leave it out")
    return model.model_copy(update={"multi_token": model.multi_token.model_copy(update={"weight": weight})})


def _with_bias_rate(model: ModelConfig, rate: float) -> ModelConfig:
    """Another rate for the balancers that move selection biases, in every block that has one."""
    data = model.model_dump()
    channels = [block["feed_forward"] or {} for block in data["blocks"].values()]
    moving = [one for channel in channels for one in channel.get("balancers", ()) if one["kind"] in BIAS_BALANCERS]
    if not moving:
        raise RecipeError("bias_rate: no router of the model has a balancer that moves its bias", fix="leave it out")
    if rate == 0 and any(one["kind"] != "bias" for one in moving):
        raise RecipeError("bias_rate: 0 stops balancers of kind bias only", fix="give a small rate instead")
    for one in moving:
        one["rate"] = rate
    return ModelConfig.model_validate(data)
