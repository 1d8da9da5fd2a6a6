"""Estimates the memory that sampling takes during a training stage, in addition to the training itself (memory.py).

    sampler     the copy that is sampled from, whole in every process: 2 B · parameters on a GPU (float8: 1 B for those of large
                layers, beside 2 B where several processes divide the model), on a CPU 4 B where several processes divide the
                model (post/processes.py), 0 where one samples from the model that it trains (`sampling_precision`);
                asynchronous: one for each sampler, and two slots of weights on their way to them, all counted on one device
                (post/samplers/), none in other processes of the learner; with `tensor` a part of each, and the slots in the
                host's memory; with `ray` none of it but one block of weights in the learner's memory; prefer: 4 B where several
                processes divide the model, of which it also needs the reference's log-probabilities
    reference   4 B · parameters of the input checkpoint (rl with a `reference_weight`, prefer with `refresh` and a reference); rl
                divides it over the processes as the trained model, and needs none with adapters (train/reference.py)
    teacher     2 B · parameters of the teacher (distill), whole; 4 B on a CPU and where the stage's precision is float32
    cache       pages of keys and values for all samples of a step at their full length (inference/memory.py), and states and
                rings of layers that have these: at most 60 % of what is free on a GPU, 4 GiB on a CPU (taken as they are used)

`prefer` on its own answers holds sampler and cache before it trains, and nothing of it while it does: its peak is that of the
larger of both (`before`). On files it holds the sampler alone, which reads the reference's log-probabilities, and with a loss
without a reference nothing. With `refresh`, or on rated answers (KTO), what it holds stays. Sizes are those of the real modules
and caches, built on the meta device. Not counted: what a step of the engine computes with, and the two models of `pairs.strong`
and `weak`, all of which are gone before training activations come.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING

from ingot.model.config import ModelConfig
from ingot.post.distill.config import DistillConfig
from ingot.post.prefer_config import PreferConfig
from ingot.post.rl.async_config import AsynchronousConfig
from ingot.post.rl.config import RlConfig
from ingot.post.rl.sampling_config import SamplingConfig
from ingot.train.config import TrainingConfig

if TYPE_CHECKING:
    from torch import Tensor

    from ingot.model.transformer import Transformer

MASTER = 4
"""Bytes of a weight as it is trained, and sampled with on a CPU: float32."""
NARROW = 2
"""Bytes of a weight that is sampled with on a GPU: bfloat16."""


@dataclass(frozen=True)
class SamplerMemory:
    """Bytes by part. `before`: they are there before the training, not while it goes on. `whole`: with a copy of the masters."""

    sampler: int = 0
    reference: int = 0
    teacher: int = 0
    cache: int = 0
    before: bool = False
    whole: bool = False

    @property
    def parts(self) -> dict[str, int]:
        """The parts by name."""
        return {name: value for name, value in asdict(self).items() if name not in ("before", "whole")}

    @property
    def total(self) -> int:
        return sum(self.parts.values())


NOTHING = SamplerMemory()


def sampler_memory(
    model: ModelConfig,
    config: TrainingConfig,
    processes: int = 1,
    teacher: ModelConfig | None = None,
    device: int | None = None,
) -> SamplerMemory:
    """The bytes that each process holds; `device` is the memory of its GPU, None for a CPU. Distillation needs a teacher."""
    if not isinstance(config, SamplingConfig | PreferConfig):
        return NOTHING
    weights = weight_bytes(model)
    sampler = weights if processes > 1 else 0
    if isinstance(config, PreferConfig):
        return replace(_prefer_memory(model, config, weights, sampler, device), whole=processes > 1)
    grading = weight_bytes(teacher) if teacher is not None else 0
    if device is not None and config.precision != "float32":
        grading = grading * NARROW // MASTER
    group = config.group if isinstance(config, RlConfig | DistillConfig) else 1
    if isinstance(config, RlConfig) and config.asynchronous is not None:
        return _asynchronous_memory(model, config, config.asynchronous, weights, processes, device)
    slots, width = -(-(config.slots or config.prompts_per_step * group) // processes), _sampling_width(config, device)
    if processes > 1 or width < MASTER:
        sampler = copy_bytes(model, config, width)
    if processes > 1 and config.sampling_precision == "float8":
        sampler += weights * width // MASTER  # what is gathered, and cast for the engine
    free = None if device is None else device - sampler - grading - (weights if processes == 1 else 0)
    cache = _cache(model, slots, config.sequence_length, free, width)
    return SamplerMemory(sampler, _reference(config, weights, processes), grading, cache)


def _reference(config: SamplingConfig, weights: int, processes: int) -> int:
    """A second model, divided as the trained one is; with adapters it is that model without them, until it is replaced."""
    if not isinstance(config, RlConfig) or not config.algorithm.wants_reference:
        return 0
    if config.lora is not None and not config.algorithm.replaces_reference:
        return 0
    return weights // _parts(config, processes)


def _parts(config: TrainingConfig, processes: int) -> int:
    """Into how many parts the trained model is divided; copies of it are whole together."""
    return max(1, processes // config.mesh.replicate)


def _asynchronous_memory(
    model: ModelConfig,
    config: RlConfig,
    options: AsynchronousConfig,
    weights: int,
    processes: int,
    device: int | None,
) -> SamplerMemory:
    width, reference = _sampling_width(config, device), _reference(config, weights, processes)
    if options.transport.elsewhere:  # samplers are elsewhere
        return SamplerMemory(copy_bytes(model, config, width) if device is None else 0, reference)
    copies = (options.samplers + 2) * copy_bytes(model, config, width)
    if options.tensor > 1 and device is not None:  # a part of each sampler; the slots are in the host's memory
        copies = options.samplers * copy_bytes(model, config, width) // options.tensor
    batch = config.prompts_per_step * config.mini_batches * config.group
    slots = options.samplers * -(-(config.slots or batch) // options.samplers)
    free = None if device is None else device - copies - weights // _parts(config, processes)
    return SamplerMemory(copies, reference, cache=_cache(model, slots, config.sequence_length, free, width))


def _sampling_width(config: SamplingConfig, device: int | None) -> int:
    """Bytes of a weight that is sampled with (train/device.py)."""
    auto = config.sampling_precision == "auto" and device is not None
    return NARROW if auto or config.sampling_precision in ("bfloat16", "float8") else MASTER


def copy_bytes(model: ModelConfig, config: SamplingConfig, width: int) -> int:
    """A copy that is sampled from."""
    if config.sampling_precision != "float8":
        return weight_bytes(model) * width // MASTER
    import torch

    from ingot.inference.weights import empty_model
    from ingot.train.device import FLOAT8

    with torch.device("meta"):
        built = empty_model(model, FLOAT8)
    return _bytes((*built.parameters(), *built.buffers()))


def _prefer_memory(
    model: ModelConfig, config: PreferConfig, weights: int, sampler: int, device: int | None
) -> SamplerMemory:
    from ingot.post.data.pairs.answers import SLOTS  # which imports torch

    referred, online = config.algorithm.wants_reference, config.pairs.refresh is not None
    if not config.pairs.own and not referred:
        return NOTHING
    reference = weights if online and referred else 0
    free = None if device is None else device - weights - reference
    width = MASTER if device is None or sampler else NARROW
    if config.pairs.own and width < MASTER:
        sampler = weights * width // MASTER
    cache = _cache(model, SLOTS, config.sequence_length, free, width) if config.pairs.own else 0
    return SamplerMemory(sampler, reference, cache=cache, before=config.algorithm.paired and not online)


def _built(model: ModelConfig) -> Transformer:
    import torch

    from ingot.model.transformer import Transformer

    with torch.device("meta"):
        return Transformer(model)


def weight_bytes(model: ModelConfig) -> int:
    """Weights and buffers of a whole model as a checkpoint is loaded, in float32."""
    built = _built(model)
    return _bytes((*built.parameters(), *built.buffers()))


def _cache(model: ModelConfig, slots: int, length: int, free: int | None, width: int = MASTER) -> int:
    """The engine's caches, of which pages take at most a share of what is free; without a number, of what a CPU gives them."""
    from ingot.inference.memory import CPU_BYTES, GPU_SHARE, simple_caches, size_caches, size_chunk

    built = _built(model)
    piece = min(size_chunk(built, "cpu" if free is None else "cuda"), length)
    cache_shape = size_caches(built, slots, length, piece=piece, cache_bytes=1 << 62)
    caches = [one for each in built.make_caches(cache_shape) for one in simple_caches(each)]
    pages = sum(_bytes(cache.tensors()) for cache in caches if cache.in_pages) * width // MASTER
    owned = sum(_bytes(cache.tensors()) for cache in caches if not cache.in_pages) * width // MASTER
    return owned + min(pages, CPU_BYTES if free is None else int(GPU_SHARE * max(0, free)))


def _bytes(tensors: Iterable[Tensor]) -> int:
    return sum(each.numel() * each.element_size() for each in tensors)
