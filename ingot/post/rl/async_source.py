"""The batches of asynchronous RL: finished groups come from samplers that run all the time (samplers/).

    learner     update s:  send the weights of version s;  take the groups of a batch from the queue;  stamp, train
    samplers    play groups one after the other;  take new weights between two decoding steps

The samples of a batch may come from several versions μ_v, none of them π. Everything else is that of source.py: batches over
several updates, algorithms, metrics. Corrections for the difference are the algorithm's (train/losses/off_policy.py); by default
truncated importance sampling.

Dynamic sampling takes group after group until the batch is full of tasks whose answers differ (OLMo 3's active sampling); as many
as `rounds` batches are looked at. A run does not repeat to the bit, because what ends first depends on the clock. No task is lost
or used twice: the position in the stream of tasks, unfinished numbers and the queue are part of the checkpoint.

Of several learner processes the first one has the samplers; all get the groups and train on their share (processes.py). None of
them holds a whole model: what the divided policy says of samples it says divided (scorer.py), and weights are gathered tensor by
tensor on their way to the samplers, which also answer the held-out tasks of the canary.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ingot.envs.environment import Environment
from ingot.envs.episode import Episode
from ingot.envs.task import Task
from ingot.model.transformer import Transformer
from ingot.post.barrier import Between
from ingot.post.processes import ALONE, Processes
from ingot.post.rewards.reward_model import Judge
from ingot.post.rl.checks.staleness import present_tokens
from ingot.post.rl.config import RlConfig
from ingot.post.rl.curriculum.offline_filter import NOTHING, Tried
from ingot.post.rl.source import RlSource
from ingot.post.rl.stamping import Rows
from ingot.post.rl.trajectories import describe
from ingot.post.samplers.dispatcher import Dispatcher, Group
from ingot.post.samplers.start import make_transport
from ingot.post.samplers.task_stream import TaskStream
from ingot.post.samplers.transport import Transport
from ingot.tokens.batch import TokenSequence
from ingot.train.device import stored_dtype
from ingot.train.parallel.apply import whole_weights
from ingot.workspace.stage import StageFolder


class AsynchronousSource(RlSource):
    """Takes the groups of a batch from a dispatcher, and lets samplers have the weights of every update."""

    def __init__(
        self,
        model: Transformer,
        config: RlConfig,
        folder: StageFolder,
        processes: Processes = ALONE,
        judge: Judge | None = None,
        tried: Tried = NOTHING,
    ) -> None:
        super().__init__(model, config, folder, processes, None, judge, tried)
        assert config.asynchronous is not None
        self.asynchronous = config.asynchronous
        self.bound = self.asynchronous.staleness
        wanted = config.prompts_per_step * config.mini_batches
        listed = None if self.watch is None else self.watch.listed
        stream = TaskStream(config.tasks, folder.seed, wanted, config.updates_per_batch, self.dropped, listed)
        self.transport = self.make_transport()
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

    def make_transport(self) -> Transport:
        """The samplers, which also answer the canary's held-out tasks."""
        listed = None if self.watch is None else self.watch.listed
        return make_transport(self.model, self.options, self.folder.seed, self.processes, self.dropped, listed)

    def update(self, step: int) -> tuple[list[TokenSequence], dict[str, float]]:
        self.renew(step)  # after every update, not only where a batch begins
        made = super().update(step)
        self.dispatcher.commit()  # a stop before this, also while a batch is stamped, leaves its groups in the queue
        return made

    def renew(self, step: int) -> None:
        """All processes gather the weights, one tensor after the other; the first one hands them to the samplers."""
        if self.sent == step:
            return
        self.processes.once(self.transport.make_room)
        weights = whole_weights(self.model, self.processes.layout, stored_dtype(self.sampling_dtype))
        if self.processes.first:
            self.transport.send_weights(weights, step)
        else:
            deque(weights, maxlen=0)  # they take part in gathering, and keep nothing
        self.processes.once(lambda: self.dispatcher.advance(step))
        self.sent = step

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
        taken = self.processes.lead(lambda between: self.take_groups(step, between))
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
                group = replace(group, episodes=self.judge(list(group.episodes), between))
            judged.append(group)
            useful += refill is None or self._differ(group.episodes)
        self.dispatcher.dispatch()
        return judged

    def sample_held_out(self, tasks: Sequence[Task], kinds: Mapping[str, Environment], step: int) -> list[Episode]:
        def ask(between: Between) -> list[Episode]:
            answers = [each for (each,) in self.dispatcher.ask(range(len(tasks)), 1, step, between)]
            return answers if self.judge is None else self.judge(answers, between)

        return self.processes.lead(ask)

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
