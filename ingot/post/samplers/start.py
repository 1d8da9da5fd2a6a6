"""Starts the samplers of a stage: what they must know, and which transport reaches them."""

from __future__ import annotations

from collections.abc import Collection

import torch

from ingot.model.transformer import Transformer
from ingot.post.policy import chat_tokenizer
from ingot.post.processes import Processes
from ingot.post.rl.config import RlConfig
from ingot.post.samplers.listed import ListedTasks
from ingot.post.samplers.local import LocalTransport
from ingot.post.samplers.ray_transport import RayTransport
from ingot.post.samplers.transport import Transport
from ingot.post.samplers.worker import SamplerConfig
from ingot.train.device import choose_device, choose_sampling_precision
from ingot.train.parallel.divisible import check_tensor


def make_transport(
    model: Transformer,
    config: RlConfig,
    seed: int,
    processes: Processes,
    dropped: Collection[str] = (),
    listed: ListedTasks | None = None,
) -> Transport:
    """Samplers of this model: processes of this machine, or actors of a Ray cluster. They start with the first weights."""
    options = config.asynchronous
    assert options is not None
    check_tensor(model.config, options.tensor, "asynchronous.tensor")
    device, wanted = choose_device(config.device), config.prompts_per_step * config.mini_batches
    sampler = SamplerConfig(
        model=model.config,
        tokenizer=chat_tokenizer(model),
        dtype=choose_sampling_precision(config.sampling_precision, device),
        devices=(str(device),) * options.tensor,
        threads=max(1, torch.get_num_threads() // (options.samplers * options.tensor + 1)),
        tasks=config.tasks,
        stops=config.stop,
        budgets=config.budgets,
        dropped=frozenset(dropped),
        listed=listed,
        tools=config.tools,
        seed=seed,
        batch=wanted,
        steps=config.updates_per_batch,
        group=config.group,
        slots=-(-(config.slots or wanted * config.group) // options.samplers),
        length=config.sequence_length,
        episode_seconds=config.episode_seconds,
    )
    silence, ray = options.silence_seconds, options.ray
    if ray is not None:
        gpus = float(options.tensor * (device.type == "cuda")) if ray.gpus is None else ray.gpus
        return RayTransport(sampler, options.samplers, silence, ray.address, ray.cpus, gpus)
    first = processes.here  # the GPU after those that the learner has of this machine's
    return LocalTransport(sampler, options.samplers, device, silence, first)
