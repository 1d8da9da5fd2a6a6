"""Estimates the memory that sampling takes during `rl` and `distill`, in addition to the training itself.

sampler     the copy that is sampled from, whole in every process: 2 B · parameters on a GPU (float8: 1 B for those of large
            layers, beside 2 B where several processes divide the model), on a CPU 4 B where several processes divide the
            model (post/processes.py), 0 where one samples from the model that it trains (`sampling_precision`);
            asynchronous: one for each sampler, and two slots of weights on their way to them, all counted on one device
            (post/samplers/), none in other processes of the learner; with `tensor` a part of each, and the slots in the
            host's memory; with `transport: ray` none of it but one block of weights in the learner's memory
reference   4 B · parameters of the input checkpoint, with a `reference_weight`; divided over the processes as the trained
            model is, and none with adapters (train/reference.py)
cache       pages of keys and values for all samples of a step at their full length (inference/memory.py), and states and
            rings of layers that have these: at most 60 % of what is free on a GPU, 4 GiB on a CPU (taken as they are used)
"""

from __future__ import annotations

from collections.abc import Mapping

from ingot.inference.planned_memory import MASTER, NARROW, cache_bytes, copy_bytes, sampling_width, weight_bytes
from ingot.model.config import ModelConfig
from ingot.post.rl.async_config import AsynchronousConfig
from ingot.post.rl.config import RlConfig
from ingot.post.rl.sampling_config import SamplingConfig
from ingot.workspace.estimates import SamplerMemory


def rl_memory(
    config: RlConfig, models: Mapping[str, ModelConfig | None], processes: int = 1, device: int | None = None
) -> SamplerMemory | None:
    """The bytes that each process of `rl` holds."""
    model = models["checkpoint"]
    if model is None:
        return None
    reference = _reference(config, weight_bytes(model), processes)
    if config.asynchronous is not None:
        return _asynchronous(model, config, config.asynchronous, reference, processes, device)
    return sampled_memory(model, config, reference, 0, processes, device)


def sampled_memory(
    model: ModelConfig, config: SamplingConfig, reference: int, teacher: int, processes: int, device: int | None
) -> SamplerMemory:
    """What each process holds where sampling and training alternate, with these bytes of frozen models."""
    precision = config.sampling_precision
    weights, width = weight_bytes(model), sampling_width(precision, device)
    sampler = copy_bytes(model, precision, width) if processes > 1 or width < MASTER else 0
    if processes > 1 and precision == "float8":
        sampler += weights * width // MASTER  # what is gathered, and cast for the engine
    free = None if device is None else device - sampler - teacher - (weights if processes == 1 else 0)
    cache = cache_bytes(model, config.engine_slots(processes), config.sequence_length, free, width)
    return SamplerMemory(sampler, reference, teacher, cache)


def teacher_bytes(config: SamplingConfig, teacher: ModelConfig | None, device: int | None) -> int:
    """A frozen teacher, whole: in bfloat16 on a GPU, unless the stage's precision is float32."""
    if teacher is None:
        return 0
    narrow = device is not None and config.precision != "float32"
    return weight_bytes(teacher) * (NARROW if narrow else MASTER) // MASTER


def _reference(config: RlConfig, weights: int, processes: int) -> int:
    """A second model, divided as the trained one is; with adapters it is that model without them, until it is replaced."""
    if not config.algorithm.wants_reference:
        return 0
    if config.lora is not None and not config.algorithm.replaces_reference:
        return 0
    return weights // _parts(config, processes)


def _parts(config: RlConfig, processes: int) -> int:
    """Into how many parts the trained model is divided; copies of it are whole together."""
    return max(1, processes // config.mesh.replicate)


def _asynchronous(
    model: ModelConfig,
    config: RlConfig,
    options: AsynchronousConfig,
    reference: int,
    processes: int,
    device: int | None,
) -> SamplerMemory:
    width = sampling_width(config.sampling_precision, device)
    copy = copy_bytes(model, config.sampling_precision, width)
    if options.transport.elsewhere:  # samplers are on other machines
        return SamplerMemory(copy if device is None else 0, reference)
    copies = (options.samplers + 2) * copy
    if options.tensor > 1 and device is not None:  # a part of each sampler; the slots are in the host's memory
        copies = options.samplers * copy // options.tensor
    slots = options.samplers * config.sampler_slots(options.samplers)
    free = None if device is None else device - copies - weight_bytes(model) // _parts(config, processes)
    return SamplerMemory(copies, reference, cache=cache_bytes(model, slots, config.sequence_length, free, width))
