"""The dispatcher over samplers that a test plays: exactly once, within the bound, whatever is finished, lost or restored when."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from ingot.envs.episode import Episode, Node, Score, Segment
from ingot.envs.episode_plain import from_plain, to_plain
from ingot.post.samplers.dispatcher import Dispatcher
from ingot.post.samplers.listed import ListedTasks
from ingot.post.samplers.messages import Beat, Cancel, Cancelled, Event, Finished, Job, Lost
from ingot.post.samplers.task_stream import RETRY, TaskStream
from ingot.post.samplers.transport import Transport
from ingot.tokens.message import Message, ToolCall
from ingot.workspace.errors import CheckFailed
from tests.post.making import SUMS

BATCH, BOUND = 3, 2


class Played(Transport):
    """Samplers by hand: jobs stay with them until the test ends or loses them."""

    def __init__(self, count: int) -> None:
        self.count, self.version = count, 0
        self.jobs: list[list[tuple[int, int]]] = [[] for _ in range(count)]  # (number, version when it came)
        self.cancels: list[tuple[int, int]] = []  # (sampler, number), until the sampler has read it
        self.events: list[tuple[int, Event]] = []
        self.asked: list[Job] = []
        self.starved = 0

    def send_weights(self, weights: Iterable[tuple[str, Tensor]], version: int) -> None:
        self.version = version

    def send(self, sampler: int, message: Job | Cancel) -> None:
        match message:
            case Job():
                self.jobs[sampler].append((message.number, self.version))
                self.asked.append(message)
            case Cancel():
                self.cancels.append((sampler, message.number))

    def receive(self, seconds: float) -> list[tuple[int, Event]]:
        if seconds and not self.events:  # the learner waits: somebody finishes
            self.starved += 1
            assert self.starved < 1000, "the learner waits for ever"
            self.finish(next(sampler for sampler, jobs in enumerate(self.jobs) if jobs), 0)
        events, self.events = self.events, []
        return events

    def finish(self, sampler: int, place: int, failed: Sequence[bool] = (False,)) -> None:
        """A group ends; of its answers those that are `failed` have no reward."""
        number, version = self.jobs[sampler].pop(place % len(self.jobs[sampler]))
        node = Node("assistant", [7, 8], True, [-1.0, -1.0], [version, self.version])
        scores = [vars(Score(0.0, False, True, error="killed" if one else None)) for one in failed]
        done = {"segments": [[vars(node)]], "messages": [], "ended": "answer", "seconds": {}}
        self.events.append((sampler, Finished(number, version, tuple(done | {"score": score} for score in scores))))

    def beat(self, sampler: int) -> None:
        """All jobs have drawn their first token as soon as they came."""
        self.events.append((sampler, Beat(1.0, 0.0, 1, dict(self.jobs[sampler]))))

    def read(self) -> None:
        """Samplers read that they shall give groups up; one that has ended before is passed over."""
        for sampler, number in self.cancels:
            playing = [job for job in self.jobs[sampler] if job[0] == number]
            for job in playing:
                self.jobs[sampler].remove(job)
                self.events.append((sampler, Cancelled(number)))
        self.cancels.clear()

    def lose(self, sampler: int) -> None:
        self.cancels = [each for each in self.cancels if each[0] != sampler]
        self.jobs[sampler].clear()
        self.events.append((sampler, Lost("killed")))

    def close(self) -> None:
        self.jobs = [[] for _ in range(self.count)]


def make(count: int = 2, listed: ListedTasks | None = None, **options: Any) -> tuple[Dispatcher, Played]:
    transport = Played(count)
    return Dispatcher(transport, TaskStream(SUMS, 1, BATCH, listed=listed), BOUND, 1, **options), transport


def test_listed_tasks_are_answered_beside_the_stream() -> None:
    """While groups are in play a sampler is lost, and answers fail: all come, in order, and the stream is as it was."""
    listed = ListedTasks(SUMS, 1, 5, "test")
    dispatcher, transport = make(listed=listed, retries=1)
    dispatcher.limit, dispatcher.temperature = 9, 0.5
    dispatcher.dispatch()
    before = dispatcher.state()
    stream = list(before["again"])
    calls = 0

    def between() -> None:
        nonlocal calls
        calls += 1
        if calls == 1:
            assert dispatcher.state() == before, "listed tasks are in no checkpoint"
            transport.beat(0)
            transport.lose(0)
        for sampler, jobs in enumerate(transport.jobs):
            for place in [at for at, (number, _) in enumerate(jobs) if number < 0][-1:]:
                (job,) = [each for each in transport.asked if each.number == jobs[place][0]][-1:]
                assert (job.max_new_tokens, job.temperature) == (9, 0.5)
                failed = [len(job.samples) == 3 and sample == 1 for sample in job.samples]
                transport.finish(sampler, place, failed)

    transport.version = 7
    found = dispatcher.ask([3, 0, 4], 3, 11, between)
    tasks, _ = listed.make()
    assert [{each.task.id for each in group} for group in found] == [{tasks[place].id} for place in (3, 0, 4)]
    assert [len(group) for group in found] == [3, 3, 3] and not any(each.failed for group in found for each in group)
    retried = [job for job in transport.asked if job.number < 0 and job.samples == (1,)]
    assert len(retried) == 3 and {job.attempt for job in retried} == {11 + RETRY}
    after = dispatcher.state()
    assert sorted(after["again"]) == sorted(stream) and after["position"] == before["position"]
    assert not after["finished"] and dispatcher.take_counts().lost == 1
    assert {dispatcher.take(7).number for _ in range(BATCH)} <= set(stream)


MOVES = st.lists(
    st.tuples(
        st.sampled_from(["finish", "lose", "take", "restore", "finish", "take", "beat", "beat", "read", "fail"]),
        st.integers(0, 20),
    ),
    max_size=60,
)


@given(moves=MOVES)
def test_every_task_is_taken_once_and_none_is_lost(moves: list[tuple[str, int]]) -> None:
    """At any moment the tasks so far are those that were taken and those that are somewhere, each in one place."""
    dispatcher, transport = make(retries=2)
    version, taken = 0, list[int]()
    dispatcher.dispatch()
    for move, number in moves:
        sampler = number % 2
        if move == "finish" and transport.jobs[sampler]:
            transport.finish(sampler, number)
        elif move == "fail" and transport.jobs[sampler]:
            transport.finish(sampler, number, [True])
        elif move == "lose":
            transport.lose(sampler)
            dispatcher.receive(0.0)
        elif move == "beat":
            transport.beat(sampler)
        elif move == "read":
            transport.read()
        elif move == "restore":  # the learner is killed just after its checkpoint
            state = json.loads(json.dumps(dispatcher.state()))
            dispatcher, transport = make(retries=2)
            dispatcher.restore(state)
            transport.version = version
        elif move == "take":
            groups = [dispatcher.take(version) for _ in range(BATCH)]
            assert all(version - group.oldest <= BOUND for group in groups)
            if number % 3 == 0:  # stopped before the batch was stamped
                dispatcher.give_back()
                continue
            dispatcher.commit()
            taken += [group.number for group in groups]
            version += 1
            transport.version = version
        dispatcher.receive(0.0)
        assert len(dispatcher.running) <= dispatcher.capacity
        assert dispatcher.cancelling <= set(dispatcher.running)
        assert set(dispatcher.partial) <= {*dispatcher.again, *dispatcher.running}
        assert set(dispatcher.retried) <= {*dispatcher.again, *dispatcher.running}
        assert sorted(number for jobs in transport.jobs for number, _ in jobs) == sorted(dispatcher.running)
        somewhere = [*dispatcher.again, *dispatcher.running, *(group.number for group in dispatcher.finished)]
        assert sorted([*taken, *somewhere]) == list(range(dispatcher.position))


def test_old_groups_are_dropped_and_asked_again() -> None:
    dispatcher, transport = make(1)
    dispatcher.dispatch()
    for _ in range(dispatcher.capacity):
        transport.finish(0, 0)
    dispatcher.receive(0.0)
    transport.version = BOUND + 1
    first = dispatcher.take(BOUND + 1)
    assert dispatcher.take_counts().dropped == dispatcher.capacity == 6
    assert first.number == 0 and first.oldest == BOUND + 1, "the same task, answered by present weights"


def test_a_group_that_is_too_old_in_play_is_cancelled_and_asked_again() -> None:
    """A sampler that hangs in long answers: they are given up as soon as they could only be dropped, and never before."""
    dispatcher, transport = make(1)
    dispatcher.dispatch()
    assert len(transport.jobs[0]) == 6
    transport.finish(0, 0)
    transport.version = BOUND
    transport.beat(0)
    dispatcher.advance(BOUND)
    assert transport.cancels == [], "the bound is not passed yet"
    transport.beat(0)
    transport.finish(0, 4)  # the last one ends before it can read that it is cancelled
    transport.version = BOUND + 1
    dispatcher.advance(BOUND + 1)
    assert transport.cancels == [(0, number) for number in (1, 2, 3, 4, 5)]
    transport.beat(0)
    dispatcher.advance(BOUND + 1)
    assert len(transport.cancels) == 5, "a sampler is told once"
    assert sorted(dispatcher.running) == [1, 2, 3, 4] and dispatcher.cancelling == set(dispatcher.running)
    transport.read()
    groups = [dispatcher.take(BOUND + 1) for _ in range(BATCH)]
    counts = dispatcher.take_counts()
    assert (counts.cancelled, counts.dropped, counts.lost) == (4, 2, 0), "0 and 5 have ended, too old"
    assert [group.number for group in groups] == [1, 2, 3] and not dispatcher.cancelling
    assert all(group.oldest == BOUND + 1 for group in groups)


def test_failed_answers_are_sampled_again_and_the_others_stay() -> None:
    """The second and the third of four: these alone are asked for, with another seed each time, and take their places."""
    dispatcher, transport = make(1, retries=2)
    dispatcher.temperature = 0.5
    dispatcher.dispatch()
    for _ in range(dispatcher.capacity - 1):
        transport.finish(0, 1)
    transport.finish(0, 0, [False, True, True, False])
    dispatcher.temperature = 0.9
    dispatcher.receive(0.0)
    dispatcher.finished.clear()
    transport.version = 1
    dispatcher.advance(1)
    transport.asked.clear()
    dispatcher.dispatch()
    assert transport.asked[0] == Job(0, 1, 0.5, samples=(1, 2), attempt=1)
    assert transport.asked[1].samples == () and transport.asked[1].temperature == 0.9
    transport.finish(0, 0, [False, True])
    group = dispatcher.take(1)
    while group.number:  # those behind it come first, and nothing waits for them
        assert transport.asked[-1].number != 0 or transport.asked[-1] == Job(0, 1, 0.5, samples=(2,), attempt=2)
        group = dispatcher.take(1)
    assert [each.failed for each in group.episodes] == [False] * 4
    assert (group.began, group.oldest, group.temperature) == (0, 0, 0.5)
    assert [node.versions[0] for each in group.episodes for node in each.nodes] == [0, 1, 1, 0]
    assert dispatcher.take_counts().retried == 2 and not dispatcher.partial and not dispatcher.retried


def test_what_fails_each_time_is_given_up() -> None:
    dispatcher, transport = make(1, retries=2)
    dispatcher.dispatch()
    for _ in range(3):
        place = next(place for place, (number, _) in enumerate(transport.jobs[0]) if number == 0)
        transport.finish(0, place, [True])
        dispatcher.dispatch()
    assert [job.attempt for job in transport.asked if job.number == 0] == [0, 1, 2]
    group = dispatcher.take(0)
    assert group.number == 0 and group.episodes[0].failed and dispatcher.take_counts().retried == 2


def test_a_partial_group_that_is_too_old_is_asked_for_as_a_whole() -> None:
    dispatcher, transport = make(1, retries=2)
    dispatcher.dispatch()
    transport.finish(0, 0, [False, True])
    dispatcher.receive(0.0)
    dispatcher.advance(BOUND + 1)
    transport.asked.clear()
    dispatcher.dispatch()
    assert transport.asked[0] == Job(0, 1, 1.0, samples=(), attempt=1) and not dispatcher.partial


def test_an_episode_without_a_token_in_its_time_has_failed() -> None:
    dispatcher, transport = make(1)
    dispatcher.dispatch()
    transport.jobs[0].pop(0)
    empty = Episode(dispatcher.stream[0], [Segment([Node("prompt", [1], False)])], [], Score(0.0, False, True), "time")
    transport.events.append((0, Finished(0, 0, (to_plain(empty),))))
    (late,) = dispatcher.take(0).episodes
    assert late.failed and late.ended == "error" and "episode_seconds" in (late.score.error or "")


def test_a_cancellation_that_nobody_asked_for_is_an_error() -> None:
    dispatcher, transport = make()
    dispatcher.dispatch()
    transport.events.append((0, Cancelled(transport.jobs[1][0][0])))
    with pytest.raises(CheckFailed, match=r"sampler 0 cancelled group 1, which it was not asked for"):
        dispatcher.receive(0.0)


def test_the_sampler_with_the_fewest_groups_gets_the_next() -> None:
    dispatcher, transport = make(3)
    dispatcher.dispatch()
    assert [len(jobs) for jobs in transport.jobs] == [2, 2, 2]
    transport.finish(1, 0)
    transport.finish(1, 0)
    dispatcher.receive(0.0)
    dispatcher.finished.clear()
    dispatcher.dispatch()
    assert [len(jobs) for jobs in transport.jobs] == [2, 2, 2]


def test_solved_tasks_are_passed_over_until_nothing_else_is_left() -> None:
    dispatcher, transport = make(1, skip=lambda number: number % 2 == 0)
    dispatcher.dispatch()
    assert [number for number, _ in transport.jobs[0]] == [1, 3, 5, 7, 9, 11]
    dispatcher, transport = make(1, skip=lambda number: True)
    dispatcher.dispatch()
    assert len(transport.jobs[0]) == dispatcher.capacity


def test_a_group_that_nobody_asked_for_is_an_error() -> None:
    dispatcher, transport = make()
    dispatcher.dispatch()
    transport.jobs[0], transport.jobs[1] = transport.jobs[1], transport.jobs[0]
    transport.finish(0, 0)
    with pytest.raises(CheckFailed, match=r"sampler 0 returned group \d, which it was not asked for"):
        dispatcher.receive(0.0)


def test_beats_are_added_up() -> None:
    dispatcher, transport = make()
    transport.events = [(0, Beat(2.0, 1.0, 30)), (1, Beat(2.0, 0.0, 50))]
    dispatcher.receive(0.0)
    counts = dispatcher.take_counts()
    assert (counts.sampler_seconds, counts.idle_seconds, counts.tokens) == (4.0, 1.0, 80)
    assert dispatcher.take_counts().tokens == 0


def test_episodes_come_back_from_json() -> None:
    """All that a verifier or an algorithm may read: tool calls, rewards by turn, several segments, failures, nodes' messages."""
    task = TaskStream(SUMS, 1, BATCH)[0]
    messages = [Message("assistant", "a", "b", [ToolCall("f", {"x": [1]})], ["odd"]), Message("tool", "c")]
    nodes = [
        Node("prompt", [1, 2], False),
        Node("assistant", [3], True, [-0.5], [4], ended="stop", rewards={"neat": 1.0}, messages=(messages[0],)),
    ]
    score = Score(0.5, True, False, {"d": 1.0}, {"e": 2.0}, "failed")
    made = Episode(task, [Segment(nodes), Segment(nodes[:1], ({"name": "f"},))], messages, score, "error", {"all": 1.5})
    back = from_plain(json.loads(json.dumps(to_plain(made))), task)
    assert back == made
    assert back.segments[0].nodes[1].messages == (messages[0],)  # which do not count when nodes are compared


def test_the_stream_is_what_the_synchronous_stage_asks() -> None:
    stream = TaskStream(SUMS, 3, 4, steps=2)
    batch = stream.mix.generate(3 * 1_000_003 + 2 * 5, 4, "train", first=20)
    assert [stream[number].id for number in range(20, 24)] == [task.id for task in batch]
    assert len({stream.sample_seed(number) for number in range(100)}) == 100
