"""Rollouts: a policy works on tasks, turn by turn, with tools and the environment between the turns.

Every episode advances on its own (episode_run.py): when a turn has ended its tool calls run beside the sampling
(background.py), and when these are answered its next turn joins the others, whatever turn they are at. Neither a long text nor
a slow tool holds up other episodes. Tokens are never decoded and encoded again: what the policy sampled stays as it is, the
chat format only adds the tokens between two turns, so the nodes of a segment are exactly what the policy saw and wrote.

An episode ends when a turn has no tool call and the environment has nothing to say, when the stop rule says so, when a turn is
malformed (nothing after it could earn the reward), or at a limit; a tool's result that leaves no room for another turn is left
out. The seed of each request is a hash of (seed, task id, which sample of that task, turn): an episode does not depend on which
other tasks share the batch, nor on the order in which things end. Its deadline leaves out the time in which its turn waits for a
slot of the engine, so that it does not depend on how many others there are, either.

`rollouts` gives finished groups as they come, `rollout` all episodes in the order of the tasks, `OrderPlayer` (pausable.py) those
of a stream that may pause, whose seeds and limits change, and that may be cancelled. Every episode that was begun is given
back once, or is cancelled when the caller stops: nothing stays behind in the policy, and every state is torn down.
"""

from __future__ import annotations

import hashlib
import time
from collections import Counter
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from ingot.envs.environment import TASKS, Environment
from ingot.envs.episode import Episode
from ingot.envs.errors import EnvironmentFailed
from ingot.envs.rollout.background import BackgroundWork, call
from ingot.envs.rollout.episode_run import BackgroundCall, EpisodeRun, Limits, Play
from ingot.envs.rollout.external import ExternalEpisodeRun, LedEnvironment
from ingot.envs.rollout.policies import MessagePolicy, Policy, Writing
from ingot.envs.task import Task
from ingot.envs.tools.tool import Tool
from ingot.inference.sampling import Sampling
from ingot.tokens.chat import ChatFormat

WAIT_SECONDS = 0.05  # between two looks at the clock while nothing is sampled
LOOK_SECONDS = 0.1  # between two looks at the deadlines of episodes
CLOSE_SECONDS = 30.0  # for states to be torn down when the caller stops
END = object()  # after the last entry


@dataclass(frozen=True)
class Drawing:
    """How turns are sampled."""

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    seed: int = 0


PLAIN, USUAL = Drawing(), Limits()


def rollout(
    tasks: Sequence[Task],
    policy: Policy | MessagePolicy,
    chat: ChatFormat,
    environments: Mapping[str, Environment] | None = None,
    *,
    drawing: Drawing = PLAIN,
    limits: Limits = USUAL,
    tools: Mapping[str, Tool] | None = None,
    only: slice = slice(None),
    between: Callable[[], None] = lambda: None,
) -> list[Episode]:
    """One scored episode per task, in order; a task listed k times is sampled k times.

    `environments` are those of the tasks, by their short names (by default the built-in kinds); `tools` are offered with every
    task, beside its own. With `only` just these of the tasks are worked on, with the texts that they have among all: several
    processes may each do some. `between` is called between any two steps; what it raises ends the rollout.
    """
    numbered = list(enumerate(zip(tasks, _sample_numbers(tasks), strict=True)))[only]
    entries = [PlannedEpisode(task, place, sample) for place, (task, sample) in numbered]
    player = Player(policy, chat, environments, drawing, limits, tools, between)
    done = {run.entry.group: run.game.episode for run in player.play(entries, len(entries))}
    return [done[entry.group] for entry in entries]


def rollouts(
    tasks: Iterable[Task],
    policy: Policy | MessagePolicy,
    chat: ChatFormat,
    environments: Mapping[str, Environment] | None = None,
    *,
    group: int = 1,
    at_once: int = 256,
    drawing: Drawing = PLAIN,
    limits: Limits = USUAL,
    tools: Mapping[str, Tool] | None = None,
    between: Callable[[], None] = lambda: None,
) -> Iterator[list[Episode]]:
    """The `group` episodes of each task, as soon as all of a group have ended, in that order.

    Tasks are taken one by one as episodes end, so there may be endlessly many; `at_once` episodes are in progress. A caller that
    has enough closes the iterator: what is unfinished is cancelled.
    """
    entries = (PlannedEpisode(task, place, sample) for place, task in enumerate(tasks) for sample in range(group))
    player = Player(policy, chat, environments, drawing, limits, tools, between)
    for runs in player.play_groups(entries, at_once, group):
        yield [run.game.episode for run in runs]


@dataclass(frozen=True)
class Order:
    """A group to be played: its number, its task, the seed of its samples, its limits, its temperature (pausable.py).

    With `samples` only these of the group's are played. `environment` is its task's, if that is not the player's of this name.
    """

    number: int
    task: Task
    seed: int
    limits: Limits
    temperature: float = 1.0
    samples: tuple[int, ...] = ()
    environment: Environment | None = None


@dataclass(frozen=True)
class PlannedEpisode:
    """An episode to play: which sample of which task."""

    task: Task
    group: int
    sample: int
    order: Order | None = None  # with a seed and limits of its own


@dataclass(eq=False)
class Run:
    """An episode in progress."""

    entry: PlannedEpisode
    game: EpisodeRun
    play: Play[None]
    writing: Writing | None = None  # the turn that was asked for last,
    asked: float = 0.0  # and when, by the monotonic clock
    _first: int | None = None

    @property
    def first_version(self) -> int | None:
        """The version of the weights that drew its first token; None if there is none yet."""
        if self._first is None:
            written = (version for node in self.game.episode.nodes for version in node.versions)
            under_way = iter(self.writing.versions if self.writing is not None else ())
            self._first = next(written, next(under_way, None))
        return self._first


class Player:
    """Plays episodes: lets the policy write, lets other work run beside it, and hands each result to its episode."""

    def __init__(
        self,
        policy: Policy | MessagePolicy,
        chat: ChatFormat,
        environments: Mapping[str, Environment] | None,
        drawing: Drawing,
        limits: Limits,
        tools: Mapping[str, Tool] | None,
        between: Callable[[], None],
    ) -> None:
        self.policy, self.chat, self.drawing, self.limits, self.between = policy, chat, drawing, limits, between
        self.submit = self._submit_to(policy)
        self.environments, self.tools = dict(environments or {}), dict(tools or {})
        self.last: EpisodeRun | None = None  # the episode that was begun last: samples of one task follow one another
        self.looked = time.monotonic()  # at the deadlines of episodes
        self.beside: BackgroundWork[Run] = BackgroundWork()
        self.writing: dict[Writing, Run] = {}
        self.open: set[Run] = set()
        self.ended: list[Run] = []
        self.members: dict[int, list[Run]] = {}  # of unfinished groups, those that have ended
        self.cancelled: set[int] = set()  # groups of which no turn is begun any more, until they have ended

    def play(self, entries: Iterable[PlannedEpisode | None], at_once: int) -> Generator[Run, None, None]:
        """Runs that have ended, as they come. None among the entries: there is none at present."""
        waiting = iter(entries)
        more = True
        with self.beside:
            try:
                while more or self.open:
                    while more and len(self.open) < at_once:
                        entry = next(waiting, END)
                        more = entry is not END
                        if not isinstance(entry, PlannedEpisode):
                            break
                        self.between()
                        self._begin(entry)
                    self._move()
                    for run in self.ended:
                        self.open.remove(run)
                        yield run
                    self.ended.clear()
            finally:
                self._close()

    def play_groups(
        self, entries: Iterable[PlannedEpisode | None], at_once: int, size: int
    ) -> Generator[list[Run], None, None]:
        """The `size` runs of each group, or those that its order names, by sample, as soon as all of them have ended."""
        runs = self.play(entries, at_once)
        try:
            for run in runs:
                members = self.members.setdefault(run.entry.group, [])
                members.append(run)
                order = run.entry.order
                if len(members) == (size if order is None else len(order.samples) or size):
                    yield sorted(self.members.pop(run.entry.group), key=lambda each: each.entry.sample)
        finally:
            runs.close()

    def _move(self) -> None:
        """One step of the policy, and all that has ended since the last one."""
        self.between()
        if self.writing:
            self.policy.step()
        for turn in [turn for turn in self.writing if turn.finish is not None]:
            self._advance(self.writing.pop(turn), turn, getattr(turn, "failure", None))  # a server that gave no answer
        for run, result, failure in self.beside.ended(0.0 if self.writing or self.ended else WAIT_SECONDS):
            self._advance(run, result, failure)
        if not self.cancelled and time.monotonic() - self.looked < LOOK_SECONDS:
            return
        before, self.looked = self.looked, time.monotonic()
        for turn, run in list(self.writing.items()):
            if turn.waiting:
                run.game.waited += self.looked - max(before, run.asked)
            cancelled = run.entry.group in self.cancelled
            if cancelled or run.game.seconds_left <= 0:
                del self.writing[turn]
                self.policy.cancel(turn)
                self._advance(run, None, EnvironmentFailed("cancelled") if cancelled else None)

    def _begin(self, entry: PlannedEpisode) -> None:
        limits = self.limits if entry.order is None else entry.order.limits
        environment = None if entry.order is None else entry.order.environment
        if environment is None:
            environment = self._environment(entry.task.kind)
        rules = ExternalEpisodeRun if isinstance(environment, LedEnvironment) else EpisodeRun
        self.last = game = rules(entry.task, environment, self.chat, limits, self.tools, self.last)
        run = Run(entry, game, game.play())
        self.open.add(run)
        if entry.group in self.cancelled:
            self.ended.append(run)
        else:
            self._advance(run, None)

    def _environment(self, kind: str) -> Environment:
        if kind not in self.environments:
            self.environments[kind] = TASKS.find(kind)()
        return self.environments[kind]

    def _advance(self, run: Run, value: Any, failure: EnvironmentFailed | None = None) -> None:
        """Hand an answer to the episode, and begin what it asks for next."""
        segment = run.game.episode.segments[-1]
        try:
            request = run.play.send(value) if failure is None else run.play.throw(failure)
        except StopIteration:
            run.game.episode.seconds["all"] = time.monotonic() - run.game.began
            self.ended.append(run)
            return
        if isinstance(request, BackgroundCall):
            self.beside.begin(run, request.work, request.seconds, request.what)
            return
        episode = run.game.episode
        own = self.drawing if run.entry.order is None else run.entry.order
        sampling = Sampling(
            max_new_tokens=request.room,
            temperature=own.temperature,
            top_p=self.drawing.top_p,
            top_k=self.drawing.top_k,
            stop_tokens=self.chat.stop_tokens,
            stop_strings=run.game.limits.stops,
            seed=request_seed(own.seed, episode.task.id, run.entry.sample, episode.turns),
        )
        follows = episode.segments[-1] is segment  # a new context has no history
        run.writing = self.submit(run, sampling, run.writing if follows else None)
        run.asked = time.monotonic()
        self.writing[run.writing] = run

    @staticmethod
    def _submit_to(policy: Policy | MessagePolicy) -> Callable[[Run, Sampling, Writing | None], Writing]:
        """How a turn is asked for; decided once, because the check of a protocol is slow."""
        if isinstance(policy, MessagePolicy):
            by_message = policy
            return lambda run, sampling, _: by_message.submit_episode(run.game.episode, run.game.offered, sampling)
        engine = policy
        return lambda run, sampling, before: engine.submit(
            run.game.episode.segments[-1].tokens(), sampling, follows=before
        )

    def _close(self) -> None:
        """After Ctrl-C, an error, or a caller that has enough: nothing stays behind."""
        for turn in self.writing:
            self.policy.cancel(turn)
        setting_up = {run for run in self.open if run.game.setting_up}  # what they make must be torn down
        self.beside.cancel(keep=setting_up | {run for run in self.open if run.game.tearing_down})
        self._wait(setting_up)
        for run in self.open:
            run.game.episode.ended = "cancelled"
            if run.game.has_state:
                teardown, state = run.game.environment.teardown, run.game.episode.state
                self.beside.begin(run, partial(call, teardown, state), run.game.limits.hook_seconds, "teardown")
        self._wait(())

    def _wait(self, setting_up: Collection[Run]) -> None:
        """Wait for the work that is running; states that it makes are kept."""
        stop = time.monotonic() + CLOSE_SECONDS
        more = True
        while more and time.monotonic() < stop:
            more = bool(self.beside)  # first, because the last result may arrive after it
            for run, result, failure in self.beside.ended(WAIT_SECONDS):
                if run in setting_up and failure is None:
                    run.game.take_state(result)


def _sample_numbers(tasks: Sequence[Task]) -> list[int]:
    """For each entry, how many entries before it are the same task."""
    seen: Counter[str] = Counter()
    numbers = []
    for task in tasks:
        numbers.append(seen[task.id])
        seen[task.id] += 1
    return numbers


def request_seed(seed: int, task_id: str, sample: int, turn: int) -> int:
    """The seed of one turn of one episode."""
    digest = hashlib.sha256(f"{seed}/{task_id}/{sample}/{turn}".encode()).digest()
    return int.from_bytes(digest[:6], "big")
