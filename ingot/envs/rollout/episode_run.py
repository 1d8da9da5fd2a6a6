"""One episode, from its beginning to its end.

`play` is a generator: where it needs something it yields a request, and is sent the answer. A `Turn` is written by the policy, an
`BackgroundCall` runs beside the sampling. So an episode reads as it happens, while rollout.py plays many of them at once.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from ingot.envs.environment import Environment, NewContext
from ingot.envs.episode import EndedBy, Episode, Node, Score, Segment
from ingot.envs.errors import EnvironmentFailed, FailedPart
from ingot.envs.rollout.background import Work, call, named_failures
from ingot.envs.rollout.policies import Writing
from ingot.envs.task import Task
from ingot.envs.tools.tool import Tool, cut, no_such_tool, schemas
from ingot.tokens.chat import ChatFormat, Message, ToolCall

Result = TypeVar("Result")


@dataclass(frozen=True)
class Limits:
    """The limits of an episode. Tokens are of one turn, and of one segment with its prompt; seconds are of the wall clock."""

    max_new_tokens: int = 128
    max_tokens: int = 1024
    max_turns: int = 3
    tool_characters: int = 2000  # of a tool's answer that reach the model
    hook_seconds: float = 60.0  # for each call of `setup`, `reply`, `done`, `teardown` and of the rewards of a turn
    judge_seconds: float = 120.0  # for all rewards at the end together
    stops: tuple[str, ...] = ()  # texts that end a turn, beside the tokens that do
    episode_seconds: float = 3600.0  # for the whole episode from its setup on, before it is judged; without queues
    budgets: Mapping[str, int] = field(default_factory=dict, hash=False)  # tokens of all turns, by kind of task


@dataclass(frozen=True)
class Turn:
    """Let the policy write so many tokens at most. The answer is what it wrote, or None if the episode's time is over."""

    room: int


@dataclass(frozen=True)
class BackgroundCall:
    """Do this work beside the sampling. The answer is its result; `EnvironmentFailed` is thrown if it fails."""

    work: Work
    seconds: float
    what: str


Play = Generator[Turn | BackgroundCall, Any, Result]


class EpisodeRun:
    """An episode in progress: its rules, its tools and its state."""

    def __init__(
        self,
        task: Task,
        environment: Environment,
        chat: ChatFormat,
        limits: Limits,
        more_tools: Mapping[str, Tool],
        before: EpisodeRun | None = None,
    ) -> None:
        """`before` is another episode, whose prompt is taken over if it has the same task."""
        self.task: Task = task
        self.environment, self.chat, self.limits = environment, chat, limits
        self.tools = {**more_tools, **{tool.name: tool for tool in task.tools}}
        if before is not None and before.task is task:
            self.prompt: Node = before.prompt
        else:
            self.prompt = self._prompt(task.messages, task.thinking)
        self.episode = Episode(task, [Segment([self.prompt])])
        self.setting_up = self.has_state = self.tearing_down = False
        self.doing: FailedPart = "environment"  # what has failed if something does now that does not say what it is
        self.began = time.monotonic()
        self.waited = 0.0  # seconds in which the policy had no slot for its turn: others were in the way

    @property
    def seconds_left(self) -> float:
        """Until the deadline of the episode."""
        return self.began + self.waited + self.limits.episode_seconds - time.monotonic()

    @property
    def budget_left(self) -> int:
        """Tokens that the policy may still write by the budget of its kind of task; without one those of a turn."""
        budget = self.limits.budgets.get(self.task.kind)
        return self.limits.max_new_tokens if budget is None else budget - self.episode.sampled_count

    @property
    def offered(self) -> list[dict[str, Any]]:
        """What the policy reads about the tools."""
        return schemas(self.tools.values())

    def take_state(self, state: Any) -> None:
        """The state is there; from now on it must be torn down."""
        self.episode.state, self.setting_up, self.has_state = state, False, True

    def play(self) -> Play[None]:
        """The episode, until it is scored and its state is torn down."""
        episode = self.episode
        try:
            if self.environment.stateful:
                self.setting_up = True
                self.take_state((yield self._hook("setup", episode.task)))
            episode.ended = yield from self._turns()
            self.doing = "verifier"
            with named_failures(self.environment.score_at_once):
                known = self.environment.score_at_once(episode.task, episode.messages)
            if known is None:
                work = lambda: self.environment.judge(episode)  # noqa: E731
                known = yield from self._timed("judging", BackgroundCall(work, self.limits.judge_seconds, "judging"))
            episode.score = known
        except EnvironmentFailed as error:
            self._fail(error)
        self.doing = "environment"
        try:
            yield from self._tear_down()
        except EnvironmentFailed as error:
            self._fail(error)

    def _fail(self, error: EnvironmentFailed) -> None:
        self.episode.ended = "error"
        if self.episode.score.error is None:
            self.episode.score = Score(0.0, False, False, error=error.problem, failed=error.part or self.doing)

    def _turns(self) -> Play[EndedBy]:
        """Turn after turn; why it ended."""
        limits, episode = self.limits, self.episode
        while episode.turns < limits.max_turns:
            room = min(limits.max_new_tokens, limits.max_tokens - episode.segments[-1].length, self.budget_left)
            if room <= 0:
                return "tokens"
            written: Writing | None = yield from self._timed("sampling", Turn(room))
            if written is None:
                return "time"
            message = self._record(written)
            yield from self._reward_turn()
            if message.problems:
                return "malformed"
            if self._has("done") and (yield self._hook("done", episode)):
                return "stopped"
            if not message.tool_calls and not self._has("reply"):
                return "answer"
            if episode.turns == limits.max_turns:
                return "turns" if message.tool_calls else "answer"
            if self.seconds_left <= 0:
                return "time"
            said = (yield from self._answers(message.tool_calls)) if message.tool_calls else (yield from self._reply())
            if not said:
                return "answer"
            if not self._add(said, "tool" if message.tool_calls else "user"):
                return "tokens"
        return "turns"

    def _record(self, written: Writing) -> Message:
        """Add the turn that was written; what it means."""
        segment, tokens = self.episode.segments[-1], list(written.tokens)
        opened = self.chat.opens_trace(segment.nodes[-1].tokens)
        logprobs, versions = list(written.logprobs), list(written.versions)
        offered = self.offered or None
        message = self.chat.parse(tokens, in_thinking=opened, stops=self.limits.stops, tools=offered)
        ended = written.finish or ""
        segment.nodes.append(Node("assistant", tokens, True, logprobs, versions, ended, messages=(message,)))
        self.episode.messages.append(message)
        return message

    def _reward_turn(self) -> Play[None]:
        if any(each.every_turn for each in self.environment.rewards().values()):
            work = lambda: self.environment.judge_turn(self.episode)  # noqa: E731
            self.doing = "verifier"
            earned = yield BackgroundCall(work, self.limits.hook_seconds, "the rewards of a turn")
            self.doing = "environment"
            self.episode.segments[-1].nodes[-1].rewards.update(earned)

    def _answers(self, calls: Sequence[ToolCall]) -> Play[list[Message]]:
        """What the tools say to the calls of a turn, one after the other."""
        called = [self.tools[each.name] for each in calls if each.name in self.tools]
        self.doing = "tool"
        if all(tool.here for tool in called):
            texts = [self._answer_here(each) for each in calls]
        else:
            work = lambda: self._answer_all(calls)  # noqa: E731 - each tool keeps its own deadline
            texts = yield from self._timed("tools", BackgroundCall(work, self.seconds_left, "the tools"))
        self.doing = "environment"
        return [Message("tool", cut(text, self.limits.tool_characters)) for text in texts]

    def _answer_here(self, each: ToolCall) -> str:
        if each.name not in self.tools:
            return no_such_tool(each.name, self.tools)
        return self.tools[each.name].answer_here(each.arguments, self.episode.state)

    async def _answer_all(self, calls: Sequence[ToolCall]) -> list[str]:
        texts = []
        for each in calls:
            tool = self.tools.get(each.name)
            state = self.episode.state
            texts.append(await tool.answer(each.arguments, state) if tool else no_such_tool(each.name, self.tools))
        return texts

    def _reply(self) -> Play[Sequence[Message] | NewContext]:
        """What the environment says."""
        said = yield self._hook("reply", self.episode)
        if said is None or isinstance(said, NewContext):
            return said or ()
        return [Message("user", each) if isinstance(each, str) else each for each in _listed(said)]

    def _add(self, said: Sequence[Message] | NewContext, role: str) -> bool:
        """Keep what was said to the policy, if it leaves room for another turn; whether it does."""
        episode = self.episode
        if isinstance(said, NewContext):
            episode.messages.extend(said.messages)
            episode.segments.append(Segment([self._prompt(said.messages, episode.task.thinking)]))
            return True
        segment = episode.segments[-1]
        spoke = next((each for each in reversed(episode.messages) if each.role == "assistant"), None)
        tokens = self.chat.continuation(said, thinking=episode.task.thinking, after=spoke)
        if self.limits.stops and not set(segment.nodes[-1].tokens[-1:]) & set(self.chat.stop_tokens):
            tokens = [self.chat.turn_end, *tokens]  # a text has ended the turn: the token that it lacks is given
        if segment.length + len(tokens) >= self.limits.max_tokens:
            return False
        episode.messages.extend(said)
        segment.nodes.append(Node(role, tokens, False, messages=tuple(said)))
        return True

    def _prompt(self, messages: Sequence[Message], thinking: bool) -> Node:
        tokens = self.chat.prompt(messages, tools=self.offered or None, thinking=thinking)
        return Node("prompt", tokens, False, messages=tuple(messages))

    def _tear_down(self) -> Play[None]:
        if self.has_state:
            self.has_state, self.tearing_down = False, True
            state, self.episode.state = self.episode.state, None
            yield self._hook("teardown", state)
            self.tearing_down = False

    def _has(self, hook: str) -> bool:
        """Whether the environment has this hook of its own."""
        return getattr(type(self.environment), hook) is not getattr(Environment, hook)

    def _hook(self, name: str, *arguments: Any) -> BackgroundCall:
        hook = getattr(self.environment, name)
        return BackgroundCall(
            lambda: call(hook, *arguments), self.limits.hook_seconds, f"{self.environment.kind}.{name}"
        )

    def _timed(self, part: str, request: Turn | BackgroundCall) -> Play[Any]:
        began = time.monotonic()
        answer = yield request
        self.episode.seconds[part] = self.episode.seconds.get(part, 0.0) + time.monotonic() - began
        return answer


def _listed(said: Any) -> Sequence[Any]:
    return [said] if isinstance(said, str | Message) else list(said)
