"""Take the groups of a batch from samplers that run all the time (samplers/): sampling and training at the same time.

    learner     update s:  send the weights of version s;  take the groups of a batch from the queue;  stamp, train
    samplers    play groups one after the other;  take new weights between two decoding steps

The samples of a batch may come from several versions μ_v, none of them π. Corrections for the difference are the algorithm's
(train/losses/off_policy.py); by default truncated importance sampling. Failed answers are the dispatcher's to ask for again.

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
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ingot.envs.environment import Environment
from ingot.envs.episode import Episode
from ingot.envs.task import Task
from ingot.model.transformer import Transformer
from ingot.post.barrier import Between
from ingot.post.processes import Processes
from ingot.post.rewards.reward_model import Judge
from ingot.post.rl.config import RlConfig
from ingot.post.rl.curriculum.task_choice import TaskChoice
from ingot.post.rl.pipeline import BatchSampler, SampleBatch
from ingot.post.rl.state import RlState
from ingot.post.samplers.dispatcher import Dispatcher, Group
from ingot.post.samplers.listed import ListedTasks
from ingot.post.samplers.start import make_transport
from ingot.post.samplers.task_stream import TaskStream
from ingot.train.device import choose_device, choose_sampling_precision, stored_dtype
from ingot.train.parallel.apply import whole_weights


class AsyncSampler(BatchSampler):
    """The learner's side: the transport to the samplers, and the dispatcher of their groups."""

    exact = False

    def __init__(
        self,
        model: Transformer,
        config: RlConfig,
        seed: int,
        processes: Processes,
        *,
        saved: RlState,
        dropped: Collection[str],
        listed: ListedTasks | None,
        choice: TaskChoice,
        differ: Callable[[Sequence[Episode]], bool],
        judge: Judge | None,
    ) -> None:
        """`listed` are tasks that samplers answer beside the stream; finished groups are saved by `saved`."""
        assert config.asynchronous is not None
        self.model, self.config, self.processes, self.saved = model, config, processes, saved
        self.asynchronous, self.differ, self.judge = config.asynchronous, differ, judge
        self.dtype = choose_sampling_precision(config.sampling_precision, choose_device(config.device))
        updates = config.updates_per_batch
        stream = TaskStream(config.tasks, seed, config.prompts_per_batch, updates, dropped, listed)
        self.transport = make_transport(model, config, seed, processes, dropped, listed)
        self.dispatcher = Dispatcher(
            self.transport,
            stream,
            self.asynchronous.staleness,
            updates,
            skip=lambda number: not choice.wants(stream[number], str(number), self.sent or 0),
            retries=config.retries,
        )
        self.sent: int | None = None  # the version that samplers have, or are about to
        self.taken: list[Group] = []  # the groups of the batch that was drawn last
        self.drawn_at = time.monotonic()  # when that was

    def renew(self, step: int, *, begins: bool = True) -> None:
        """All processes gather the weights, one tensor after the other; the first one hands them to the samplers.

        After every update, not only where a batch begins.
        """
        if self.sent == step:
            return
        self.processes.once(self.transport.make_room)
        weights = whole_weights(self.model, self.processes.layout, stored_dtype(self.dtype))
        if self.processes.first:
            self.transport.send_weights(weights, step)
        else:
            deque(weights, maxlen=0)  # they take part in gathering, and keep nothing
        self.processes.once(lambda: self.dispatcher.advance(step))
        self.sent = step

    def draw(self, batch: SampleBatch) -> None:
        taken = self.processes.lead(lambda between: self.take_groups(batch, between))
        if self.config.refill is not None:  # those without a difference only fill the batch up
            taken.sort(key=lambda group: not self.differ(group.episodes))
        self.taken = taken[: self.config.prompts_per_batch]
        batch.drawn = [each for group in taken for each in group.episodes]
        batch.episodes = [each for group in self.taken for each in group.episodes]
        batch.began = [  # drawn at another temperature, no token has exactly the learner's probability
            group.began if group.temperature == batch.temperature else batch.step - 1
            for group in self.taken
            for _ in group.episodes
        ]
        batch.metrics |= self._counts()

    def take_groups(self, batch: SampleBatch, between: Between) -> list[Group]:
        """Groups out of the queue until enough of them differ, or `rounds` batches have been looked at; with judged episodes."""
        wanted, refill = self.config.prompts_per_batch, self.config.refill
        most = wanted * (1 if refill is None else refill.rounds)
        self.dispatcher.limit, self.dispatcher.temperature = batch.limit, batch.temperature
        self.dispatcher.give_back()
        graded, useful = list[Group](), 0
        while useful < wanted and len(graded) < most:
            group = self.dispatcher.take(batch.step, between)
            if self.judge is not None:
                group = replace(group, episodes=self.judge(list(group.episodes), between))
            graded.append(group)
            useful += refill is None or self.differ(group.episodes)
        self.dispatcher.dispatch()
        return graded

    def answer(self, tasks: Sequence[Task], kinds: Mapping[str, Environment], batch: SampleBatch) -> list[Episode]:
        def ask(between: Between) -> list[Episode]:
            answers = [each for (each,) in self.dispatcher.ask(range(len(tasks)), 1, batch.step, between)]
            return answers if self.judge is None else self.judge(answers, between)

        return self.processes.lead(ask)

    def commit(self) -> None:
        """The groups that were taken are trained on; a stop before this leaves them in the queue."""
        self.dispatcher.commit()

    def _counts(self) -> dict[str, float]:
        """What happened since the last batch."""
        last, self.drawn_at = self.drawn_at, time.monotonic()
        counts = self.processes.once(self.dispatcher.take_counts)
        metrics = {
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
        return metrics

    def state(self, step: int) -> dict[str, Any]:
        name = f"queue-{step:08d}.json"

        def save() -> dict[str, Any]:
            stored = self.dispatcher.state()
            self.saved.write_queue(name, stored.pop("finished"))
            return stored

        return {"dispatcher": self.processes.once(save), "queue": name}

    def restore(self, state: Mapping[str, Any]) -> None:
        self.close()
        if "dispatcher" in state:
            self.dispatcher.restore(state["dispatcher"] | {"finished": self.saved.read_queue(state["queue"])})

    def close(self) -> None:
        self.transport.close()
        self.sent = None
