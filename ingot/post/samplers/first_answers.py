"""Answers to tasks before an asynchronous run, by samplers that are started for them alone (rl/curriculum/offline_filter.py).

They have the weights of the start checkpoint, which are read from it tensor by tensor: the learner's model may not be filled yet,
and no process of it needs to hold a whole one. A base that adapters are to train on in fewer bits (lora.base) is not rounded yet.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from ingot.checkpoints.stored_model import StoredModel
from ingot.envs.episode import Episode
from ingot.inference.checksum import fold_sums, tensor_sums
from ingot.model.transformer import Transformer
from ingot.post.barrier import Between
from ingot.post.processes import Processes
from ingot.post.rl.config import RlConfig
from ingot.post.rl.curriculum.offline_filter import AnswerSource, samples_each
from ingot.post.sampled_answers import describe_model
from ingot.post.samplers.dispatcher import Dispatcher
from ingot.post.samplers.listed import ListedTasks
from ingot.post.samplers.start import make_transport
from ingot.post.samplers.task_stream import TaskStream


class SamplerAnswers(AnswerSource):
    """Answers by samplers of the first process; they start when the first answer is asked for, and end with `close`."""

    leads = True

    def __init__(
        self, model: Transformer, stored: StoredModel, config: RlConfig, tasks: ListedTasks, processes: Processes
    ) -> None:
        self.model, self.stored, self.config = model, stored, config
        self.transport = make_transport(model, config, tasks.seed, processes, listed=tasks)
        stream = TaskStream(config.tasks, tasks.seed, size=1, listed=tasks)
        self.dispatcher = Dispatcher(self.transport, stream, 0, 1, retries=config.retries)
        self.dispatcher.limit, self.dispatcher.temperature = config.limit_at(0), config.temperature
        self.started = False

    def follow_from(self) -> dict[str, Any]:
        sums = {name: tensor_sums({name: value})[name] for name, value in stored_weights(self.stored)}
        return {"weights": fold_sums(sums), "precision": self.config.sampling_precision} | describe_model(self.model)

    def sample(self, run: slice, between: Between) -> list[Episode]:
        if not self.started:
            self.transport.send_weights(stored_weights(self.stored), 0)
            self.started = True
        each = samples_each(self.config)
        groups = self.dispatcher.ask(range(run.start // each, run.stop // each), each, 0, between)
        return [episode for group in groups for episode in group]

    def close(self) -> None:
        """End the samplers."""
        self.transport.close()


def stored_weights(stored: StoredModel) -> Iterator[tuple[str, Tensor]]:
    """The weights and buffers of a model on disk, one after the other."""
    with torch.device("meta"):
        names = list(Transformer(stored.config).state_dict())
    for name in names:
        yield name, stored.parameters.rows(name, 0, stored.parameters.entries[name].rows)
