"""Hands the tasks of a stream to samplers, and their finished groups to the learner, each exactly once.

A number of the stream is in one place only, from the moment it is dispatched until the learner has its batch together:

    again      must be dispatched once more, before new ones
    running    at a sampler
    finished   in the queue, in the order of arrival
    taken      by the learner for a batch that is not complete yet; a checkpoint counts it as finished

A sampler that is lost sends its running numbers back to `again`; so does a group that is too old when the learner would take it:

    age = version of the learner − version of the group's oldest token        dropped if age > staleness − (updates − 1)

because the last of the `updates` optimizer steps on its batch learns from it when it is updates − 1 versions older.
Samplers tell the oldest token of every group in play. One that is too old already could only be dropped when it ends: its sampler
is told to give it up, and its number goes to `again` when that is confirmed. Until then it is running: it may just have ended, or
its sampler be lost. So every group that was dispatched comes back once: as a result, as a cancellation, or with a lost sampler.

Dispatch stops while `again`, running and finished groups are enough for the batches that may still use them:

    capacity = (staleness − (updates − 1)) div updates · groups of a batch            SkyRL's rule

A group that takes longer than its bound would be given up for ever while others are trained on; it is not, because such groups
come back first, and when nothing else is left the learner waits for them and its version stands still.

A group with failed answers (failures.py) goes to `again`, too: these are sampled anew, `retries` times at the most, and take the
places of the failed ones in what is there of the group (`partial`). If that has become too old, the whole group is.

These lists, the position in the stream and the queue's episodes are part of the checkpoint (`state`); of a partial group only the
number is.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ingot.envs.episode import Episode
from ingot.envs.episode_plain import from_plain, to_plain
from ingot.post.samplers.failures import failed_places, unwritten_as_failed
from ingot.post.samplers.messages import Beat, Cancel, Cancelled, Event, Finished, Job, Lost
from ingot.post.samplers.task_stream import RETRY, TaskStream
from ingot.post.samplers.transport import Transport
from ingot.workspace.errors import CheckFailed

WAIT_SECONDS = 0.2  # between two looks at the stop signal


@dataclass(frozen=True)
class Group:
    """The episodes of one task. `began`: the version its sampler had when it began; `temperature`: that of its tokens."""

    number: int
    began: int
    episodes: Sequence[Episode]
    temperature: float = 1.0

    @property
    def oldest(self) -> int:
        """The version of its oldest token."""
        versions = [version for each in self.episodes for node in each.nodes for version in node.versions]
        return min(versions, default=self.began)


@dataclass
class Counts:
    """What happened since the last batch."""

    dropped: int = 0
    cancelled: int = 0
    retried: int = 0
    lost: int = 0
    waited: float = 0.0  # seconds that the learner stood still
    sampler_seconds: float = 0.0
    idle_seconds: float = 0.0
    tokens: int = 0
    queued: int = 0  # groups in the queue, now


class Dispatcher:
    """`skip` says which numbers are not asked, as when their tasks are solved; `limit` is the longest turn of what is asked next,
    `temperature` that of its tokens; `retries` how often failed answers are sampled again."""

    def __init__(
        self,
        transport: Transport,
        stream: TaskStream,
        staleness: int,
        updates: int,
        skip: Callable[[int], bool] = lambda number: False,
        retries: int = 0,
    ) -> None:
        self.transport, self.stream = transport, stream
        self.oldest_age = staleness - (updates - 1)  # when a group is taken
        self.skip, self.retries = skip, retries
        self.capacity = max(1, self.oldest_age // updates) * stream.size
        self.limit, self.temperature = 1, 1.0
        self.version = 0  # the learner's
        self.position = 0  # in the stream: the first number that was never dispatched
        self.again: deque[int] = deque()
        self.running: dict[int, int] = {}  # number -> sampler
        self.temperatures: dict[int, float] = {}  # of those
        self.cancelling: set[int] = set()  # running ones whose samplers have been told
        self.partial: dict[int, Group] = {}  # groups with failed answers, which are being sampled again
        self.retried: dict[int, int] = {}  # how often those of a group have been
        self.finished: deque[Group] = deque()
        self.taken: list[Group] = []
        self.counts = Counts()
        self.asked: dict[int, Job] = {}  # listed tasks without an answer yet
        self.answers: dict[int, Group] = {}

    # ---- the learner's side

    def ask(
        self, places: Sequence[int], samples: int, attempt: int, between: Callable[[], None] = lambda: None
    ) -> list[list[Episode]]:
        """`samples` answers to each of these listed tasks, by the newest weights; waits for all, and calls `between` meanwhile.

        They are no part of the stream and of no batch. Each `attempt` draws others.
        """
        numbers = [-1 - place for place in places]
        self.answers = {}
        for number in numbers:
            self.asked[number] = Job(number, self.limit, self.temperature, tuple(range(samples)), attempt)
            self._ask(number)
        while self.asked:
            between()
            self.receive(WAIT_SECONDS)
        return [list(self.answers[number].episodes) for number in numbers]

    def _ask(self, number: int) -> None:
        self._send(number, self.asked[number])

    def advance(self, version: int) -> None:
        """The learner has this version from now on: give up what has become too old for it."""
        self.version = version
        self.receive(0.0)

    def take(self, version: int, between: Callable[[], None] = lambda: None) -> Group:
        """The next finished group that is not too old for the learner's version; waits for it, and calls `between` meanwhile."""
        began = time.monotonic()
        self.version = version
        while True:
            self.dispatch()
            while self.finished:
                group = self.finished.popleft()
                if version - group.oldest <= self.oldest_age:
                    self.counts.waited += time.monotonic() - began
                    self.taken.append(group)
                    return group
                self.again.append(group.number)
                self.counts.dropped += 1
            self.dispatch()
            between()
            self.receive(WAIT_SECONDS)

    def commit(self) -> None:
        """What was taken is a batch that will be trained on."""
        self.taken.clear()

    def give_back(self) -> None:
        """What was taken was not used after all: it comes first again."""
        self.finished.extendleft(reversed(self.taken))
        self.taken.clear()

    def dispatch(self) -> None:
        """Ask for groups, each of the sampler with the fewest, while there is room for them."""
        self.receive(0.0)
        while len(self.running) + len(self.finished) < self.capacity:
            number = self.again.popleft() if self.again else self._next()
            self._send(number, self._job(number))

    def _send(self, number: int, job: Job) -> None:
        """Let the sampler with the fewest groups play one."""
        loads = [0] * self.transport.count
        for sampler in self.running.values():
            loads[sampler] += 1
        self.running[number] = loads.index(min(loads))
        self.temperatures[number] = job.temperature
        self.transport.send(self.running[number], job)

    def _job(self, number: int) -> Job:
        """A whole group, or what has failed of one that is young enough."""
        attempt, before = self.retried.get(number, 0), self.partial.get(number)
        if before is None or self.version - before.oldest > self.oldest_age:
            self.partial.pop(number, None)
            return Job(number, self.limit, self.temperature, attempt=attempt)
        return Job(number, self.limit, before.temperature, tuple(failed_places(before.episodes)), attempt)

    def _cancel(self, sampler: int, oldest: Mapping[int, int]) -> None:
        """Let a sampler give up the groups in play that no batch can use any more."""
        for number, version in oldest.items():
            asked = self.running.get(number) == sampler and number not in self.cancelling
            if asked and number >= 0 and self.version - version > self.oldest_age:
                self.cancelling.add(number)
                self.transport.send(sampler, Cancel(number))

    def _end(self, sampler: int, number: int, what: str) -> None:
        """A group runs no longer."""
        self.cancelling.discard(number)
        if self.running.pop(number, None) != sampler:
            problem = f"sampler {sampler} {what} group {number}, which it was not asked for"
            raise CheckFailed(problem, place="dispatcher")

    def _next(self) -> int:
        """The next number; one that is to be skipped only if many in a row are."""
        first = self.position
        while self.skip(self.position) and self.position - first < self.capacity:
            self.position += 1
        self.position += 1
        return self.position - 1

    def receive(self, seconds: float) -> None:
        """Sort in what samplers have said; waits so long for the first."""
        for sampler, event in self.transport.receive(seconds):
            self._sort_in(sampler, event)

    def _sort_in(self, sampler: int, event: Event) -> None:
        match event:
            case Finished():
                self._end(sampler, event.number, "returned")
                task = self.stream[event.number]
                episodes = unwritten_as_failed([from_plain(each, task) for each in event.episodes])
                temperature = self.temperatures.pop(event.number)
                new = Group(event.number, event.began, episodes, temperature)
                self._keep(_joined(self.partial.pop(event.number, None), new))
            case Cancelled():
                self._end(sampler, event.number, "cancelled")
                self.again.append(event.number)
                self.counts.cancelled += 1
            case Lost():
                lost = sorted(number for number, where in self.running.items() if where == sampler)
                for number in lost:
                    self._end(sampler, number, "lost")
                self.again.extend(number for number in lost if number >= 0)
                for number in lost:
                    if number in self.asked:
                        self._ask(number)
                self.counts.lost += 1
            case Beat():
                self.counts.sampler_seconds += event.seconds
                self.counts.idle_seconds += event.idle_seconds
                self.counts.tokens += event.tokens
                self._cancel(sampler, event.oldest)

    def _keep(self, group: Group) -> None:
        """Put a group into the queue; or ask for its failed answers again."""
        tries, failed, number = self.retried.pop(group.number, 0), failed_places(group.episodes), group.number
        if tries == self.retries or not failed:
            if number >= 0:
                self.finished.append(group)
            else:
                self.answers[number] = group
                del self.asked[number]
            return
        self.partial[number], self.retried[number] = group, tries + 1
        if number >= 0:
            self.again.append(number)
        else:
            job = self.asked[number]
            self.asked[number] = replace(job, samples=tuple(failed), attempt=job.attempt + RETRY)
            self._ask(number)
        self.counts.retried += 1

    # ---- checkpoints

    def state(self) -> dict[str, Any]:
        """The position, the numbers that are unfinished, and the finished groups, as plain JSON."""
        self.receive(0.0)
        return {
            "position": self.position,
            "again": [*self.again, *sorted(number for number in self.running if number >= 0)],
            "finished": [
                {
                    "number": each.number,
                    "began": each.began,
                    "episodes": [to_plain(one) for one in each.episodes],
                    "temperature": each.temperature,
                }
                for each in (*self.taken, *self.finished)
            ],
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from `state`; samplers must have been closed, or not have been started."""
        self.position, self.again, self.running = state["position"], deque(state["again"]), {}
        self.finished = deque(
            Group(
                each["number"],
                each["began"],
                [from_plain(one, self.stream[each["number"]]) for one in each["episodes"]],
                each["temperature"],
            )
            for each in state["finished"]
        )
        self.taken, self.counts, self.cancelling, self.temperatures = [], Counts(), set(), {}
        self.partial, self.retried, self.asked, self.answers = {}, {}, {}, {}

    def take_counts(self) -> Counts:
        """What happened since the last call."""
        counts, self.counts = self.counts, Counts()
        counts.queued = len(self.finished)
        return counts


def _joined(before: Group | None, new: Group) -> Group:
    """A group whose failed answers have been sampled again."""
    if before is None:
        return new
    episodes = list(before.episodes)
    for place, each in zip(failed_places(before.episodes), new.episodes, strict=True):
        episodes[place] = each
    return Group(new.number, min(before.began, new.began), episodes, new.temperature)
