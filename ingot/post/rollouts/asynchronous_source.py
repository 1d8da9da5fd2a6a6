"""The batches of asynchronous RL: finished groups come from samplers that run all the time (samplers/).

    learner     update s:  send the weights of version s;  take the groups of a batch from the queue;  stamp, train
    samplers    play groups one after the other;  take new weights between two decoding steps

The samples of a batch may come from several versions μ_v, none of them π. Everything else is that of rl_source.py: batches over
several updates, algorithms, metrics. Corrections for the difference are the algorithm's (train/off_policy.py); by default
truncated importance sampling.

Dynamic sampling takes group after group until the batch is full of tasks whose answers differ (OLMo 3's active sampling); as many
as `rounds` batches are looked at. A run does not repeat to the bit, because what ends first depends on the clock. No task is lost
or used twice: the position in the stream of tasks, unfinished numbers and the queue are part of the checkpoint.

Of several learner processes the first one has the samplers; all get the groups and train on their share (processes.py).
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch

from ingot.envs.episode import Episode
from ingot.model.lora import merged_state
from ingot.model.transformer import Transformer
from ingot.post.barrier import Between
from ingot.post.curriculum.tried import NOTHING, Tried
from ingot.post.policy import chat_tokenizer
from ingot.post.processes import ALONE, Processes
from ingot.post.rewards.reward_model import Judge
from ingot.post.rollouts.rl_source import RlSource
from ingot.post.rollouts.staleness import present_tokens
from ingot.post.rollouts.stamping import Rows
from ingot.post.rollouts.trajectories import describe
from ingot.post.samplers.dispatcher import Dispatcher, Group
from ingot.post.samplers.local import LocalTransport
from ingot.post.samplers.ray_transport import RayTransport
from ingot.post.samplers.task_stream import TaskStream
from ingot.post.samplers.transport import Transport
from ingot.post.samplers.worker import SamplerConfig
from ingot.post.sampling_config import RlConfig
from ingot.tokens.batch import TokenSequence
from ingot.train.parallel.divisible import check_tensor
from ingot.workspace.stage import StageFolder


class AsynchronousSource(RlSource):
    """Takes the groups of a batch from a dispatcher, and lets samplers have the weights of every update."""

    def __init__(
        self,
        model: Transformer,
        config: RlConfig,
        folder: StageFolder,
        processes: Processes = ALONE,
        whole: Transformer | None = None,
        judge: Judge | None = None,
        tried: Tried = NOTHING,
    ) -> None:
        super().__init__(model, config, folder, processes, whole, judge, tried)
        assert config.asynchronous is not None
        self.asynchronous = config.asynchronous
        self.bound = self.asynchronous.staleness
        wanted = config.prompts_per_step * config.mini_batches
        stream = TaskStream(config.tasks, folder.seed, wanted, config.updates_per_batch, self.dropped)
        self.transport = self.make_transport(wanted)
        self.dispatcher = Dispatcher(
            self.transport,
            stream,
            self.bound,
            config.updates_per_batch,
            skip=lambda number: not self.wants(stream[number], str(number), self.sent or 0),
            retries=config.retries,
        )
        self.sent: int | None = None  # the version that samplers have, or are about to
        self.taken: list[Group] = []  # the groups of the batch that was drawn last

    def make_transport(self, wanted: int) -> Transport:
        """Samplers for batches of `wanted` tasks: processes of this machine, or actors of a Ray cluster."""
        options, samplers, tensor = self.options, self.asynchronous.samplers, self.asynchronous.tensor
        check_tensor(self.whole.config, tensor, "asynchronous.tensor")
        config = SamplerConfig(
            model=self.whole.config,
            tokenizer=chat_tokenizer(self.whole),
            dtype=self.sampling_dtype,
            devices=(str(self.device),) * tensor,
            threads=max(1, torch.get_num_threads() // (samplers * tensor + 1)),
            tasks=options.tasks,
            stops=options.stop,
            budgets=options.budgets,
            dropped=self.dropped,
            tools=options.tools,
            seed=self.folder.seed,
            batch=wanted,
            steps=options.updates_per_batch,
            group=self.group,
            slots=-(-(options.slots or wanted * self.group) // samplers),
            length=options.sequence_length,
            episode_seconds=options.episode_seconds,
        )
        silence, ray = self.asynchronous.silence_seconds, self.asynchronous.ray
        if ray is not None:
            gpus = float(tensor * (self.device.type == "cuda")) if ray.gpus is None else ray.gpus
            return RayTransport(config, samplers, silence, ray.address, ray.cpus, gpus)
        first = self.processes.here  # the GPU after those that the learner has of this machine's
        return LocalTransport(config, samplers, self.device, silence, first)

    def update(self, step: int) -> tuple[list[TokenSequence], dict[str, float]]:
        self.renew(step)  # after every update, not only where a batch begins
        made = super().update(step)
        self.dispatcher.commit()  # a stop before this, also while a batch is stamped, leaves its groups in the queue
        return made

    def renew(self, step: int) -> None:
        if self.sent != step:
            self.processes.renew(self.whole, self.model)
            self.processes.once(lambda: self._send(step))
            self.sent = step

    def _send(self, step: int) -> None:
        self.transport.send_weights(merged_state(self.whole), step)
        self.dispatcher.advance(step)

    def timed_draw(self, step: int) -> tuple[list[Episode], dict[str, float]]:
        episodes, metrics = self.draw(step)
        last, self.drawn_at = self.drawn_at, time.monotonic()
        counts = self.processes.once(self.dispatcher.take_counts)
        metrics |= {
            "learner_idle_share": counts.waited / (self.drawn_at - last),
            "queue_length": float(counts.queued),
            "dropped_groups": float(counts.dropped),
            "cancelled_groups": float(counts.cancelled),
            "retried_groups": float(counts.retried),
            "lost_samplers": float(counts.lost),
        }
        if counts.sampler_seconds:
            metrics["sampler_idle_share"] = counts.idle_seconds / counts.sampler_seconds
            rate = counts.tokens / counts.sampler_seconds  # of one of them
            metrics["sampler_tokens_per_second"] = rate * self.asynchronous.samplers
        return episodes, metrics

    def draw(self, step: int) -> tuple[list[Episode], dict[str, float]]:
        def take_run(run: slice, between: Between) -> list[Group]:
            return self.take_groups(step, between) if run.start == 0 else []  # the first process does it for all

        taken = self.processes.share(self.processes.size, take_run)
        if self.options.refill is not None:  # those without a difference only fill the batch up
            taken.sort(key=lambda group: not self._differ(group.episodes))
        self.taken = taken[: self.dispatcher.stream.size]
        everything = [each for group in taken for each in group.episodes]
        metrics = describe(everything) | self.observe(step, everything) | {"sampled_groups": float(len(taken))}
        return [each for group in self.taken for each in group.episodes], metrics

    def take_groups(self, step: int, between: Between) -> list[Group]:
        """Groups out of the queue until enough of them differ, or `rounds` batches have been looked at; with judged episodes."""
        wanted, refill = self.dispatcher.stream.size, self.options.refill
        most = wanted * (1 if refill is None else refill.rounds)
        self.dispatcher.limit, self.dispatcher.temperature = self.limit, self.sampling_temperature
        self.dispatcher.give_back()
        judged, useful = list[Group](), 0
        while useful < wanted and len(judged) < most:
            group = self.dispatcher.take(step, between)
            if self.judge is not None:
                group = replace(group, episodes=self.judge(list(group.episodes)))
            judged.append(group)
            useful += refill is None or self._differ(group.episodes)
        self.dispatcher.dispatch()
        return judged

    def streams(self, episodes: Sequence[Episode]) -> tuple[dict[str, Rows], dict[str, float]]:
        streams, metrics = super().streams(episodes)
        assert self.sent is not None
        began = [  # drawn at another temperature, no token has exactly the learner's probability
            group.began if group.temperature == self.sampling_temperature else self.sent - 1
            for group in self.taken
            for _ in group.episodes
        ]
        streams["present"] = [
            present_tokens(each, first, self.sent) for each, first in zip(episodes, began, strict=True)
        ]
        return streams, metrics

    def policy_logprobs(self, episodes: Sequence[Episode]) -> Rows:
        return self.old_logprobs(episodes)  # the samplers' weights may be older

    def state(self) -> dict[str, Any]:
        name = f"queue-{self.next_step:08d}.json"

        def save() -> dict[str, Any]:
            stored = self.dispatcher.state()
            self.saved.write_queue(name, stored.pop("finished"))
            return stored

        return super().state() | {"dispatcher": self.processes.once(save), "queue": name}

    def restore(self, state: dict[str, Any]) -> None:
        super().restore(state)
        self.close()
        if "dispatcher" in state:
            self.dispatcher.restore(state["dispatcher"] | {"finished": self.saved.read_queue(state["queue"])})

    def close(self) -> None:
        self.transport.close()
        self.sent = None
