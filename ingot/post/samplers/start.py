"""Starts the samplers of a stage: gathers what they must know, and opens the transport that reaches them."""

from __future__ import annotations

from collections.abc import Collection

import torch

from ingot.model.transformer import Transformer
from ingot.post.policy import chat_tokenizer
from ingot.post.processes import Processes
from ingot.post.rl.config import RlConfig
from ingot.post.samplers.kinds import FleetConfig
from ingot.post.samplers.listed import ListedTasks
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
    """Samplers of this model, by the transport that the stage names. They start with the first weights."""
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
        slots=config.sampler_slots(options.samplers),
        length=config.sequence_length,
        episode_seconds=config.episode_seconds,
    )
    first = processes.here  # the GPU after those that the learner has of this machine's
    return options.transport.open(FleetConfig(sampler, options.samplers, options.silence_seconds, device, first))
