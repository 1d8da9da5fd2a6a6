"""An episode that its environment leads: the environment asks for turns, each with the whole conversation before it.

Environments of other libraries work like this: an agent's program sends all messages with every request, as to an OpenAI server,
and may run tools, simulate a user or cut the history in between. What the policy sees and writes is still kept as exact tokens:

- A request that goes on from what the policy has seen and written (the same messages, then others) adds only the tokens between
  the two turns; sampled tokens are never encoded again.
- Any other request (an edited or shortened history, other tools, another agent) begins a new segment, whose prompt is encoded
  from its messages. All of it is given, none of it sampled: nothing is claimed of tokens that the policy did not write.

At a limit the environment is told so instead of being given a turn; it then ends and scores what there is.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ingot.envs.environment import Environment
from ingot.envs.episode import EndedBy, Node, Segment
from ingot.envs.errors import EnvironmentFailed
from ingot.envs.rollout.episode_run import BackgroundCall, EpisodeRun, Play, Turn
from ingot.envs.rollout.policies import Writing
from ingot.tokens.chat import Message

REFUSALS = 16  # turns that an environment may ask for at a limit before it counts as one that does not end


@dataclass(frozen=True)
class TurnRequest:
    """A turn that the environment asks for.

    `agent` tells conversations apart that have nothing to do with each other; `most` are the tokens of the turn, if it says so.
    """

    messages: tuple[Message, ...]
    tools: tuple[dict[str, Any], ...] = ()
    agent: str = ""
    most: int | None = None


@dataclass(frozen=True)
class SampledTurn:
    """The turn that was asked for, and how many tokens it and its prompt have."""

    message: Message
    finish: str
    prompt_tokens: int
    tokens: int


@dataclass(frozen=True)
class TurnRefused:
    """There is no turn: a limit of the episode is reached."""

    limit: EndedBy


@dataclass(frozen=True)
class EpisodeEnd:
    """The environment has ended the episode. `agent` is the one that is trained; `stopped`: by a rule of the environment."""

    agent: str = ""
    stopped: bool = False


class LedEnvironment(Environment):
    """An environment that asks for turns. It keeps the score in its state, where `judge` finds it.

    It offers its own tools: those of a stage (`tools:`) are not offered in it.
    """

    @property
    @abstractmethod
    def lead_seconds(self) -> float:
        """How long it may take between two turns, and to score at the end."""

    @property
    def most_turns(self) -> int | None:
        """Turns of an episode at most, if that is not for the stage to say."""
        return None

    @abstractmethod
    async def lead(self, state: Any, answer: SampledTurn | TurnRefused | None) -> TurnRequest | EpisodeEnd:
        """What it asks next, after this answer to what it asked last; None: the episode begins."""


@dataclass
class _Context:
    """A conversation of an agent: its segment, and the messages that it stands for."""

    agent: str
    tools: tuple[dict[str, Any], ...]
    messages: list[Message]
    segment: Segment

    def continued_by(self, asked: TurnRequest) -> Sequence[Message]:
        """The messages that a request adds to what was written here; none if it does not go on from there."""
        count = len(self.messages)
        added = asked.messages[count:]
        goes_on = (
            (asked.agent, asked.tools) == (self.agent, self.tools)
            and self.messages[-1].role == "assistant"
            and all(map(_same, self.messages, asked.messages))
            and all(message.role in ("user", "tool") for message in added)
        )
        return added if goes_on and len(asked.messages) > count else ()


class ExternalEpisodeRun(EpisodeRun):
    """An episode of a `LedEnvironment` in progress."""

    environment: LedEnvironment
    contexts: list[_Context]
    asked: TurnRequest | None = None

    @property
    def offered(self) -> list[dict[str, Any]]:
        """The tools of the turn that is asked for."""
        return [] if self.asked is None else list(self.asked.tools)

    def _turns(self) -> Play[EndedBy]:
        """Turn after turn, as the environment asks for them; why it ended."""
        self.contexts = []
        answer: SampledTurn | TurnRefused | None = None
        limit: EndedBy = ""
        refusals = 0
        while True:
            asked = yield from self._lead(answer)
            if isinstance(asked, EpisodeEnd):
                self._keep(asked.agent)
                malformed = bool(self.episode.messages and self.episode.messages[-1].problems)
                return limit or ("stopped" if asked.stopped else "malformed" if malformed else "answer")
            self.asked = asked
            reached = self._place(asked)
            if not reached:
                room = self.limits.max_tokens - self.episode.segments[-1].length
                asked_for = room if asked.most is None else max(1, asked.most)
                turn = Turn(min(self.limits.max_new_tokens, room, asked_for, self.budget_left))
                written: Writing | None = yield from self._timed("sampling", turn)
                if written is not None:
                    answer = self._answer(written)
                    continue
                reached = "time"
            limit = limit or reached
            answer = TurnRefused(reached)
            refusals += 1
            if refusals == REFUSALS:
                raise EnvironmentFailed(f"the environment asked for {REFUSALS} more turns at a limit ({reached})")

    def _lead(self, answer: SampledTurn | TurnRefused | None) -> Play[TurnRequest | EpisodeEnd]:
        state, environment = self.episode.state, self.environment
        work = lambda: environment.lead(state, answer)  # noqa: E731
        what = f"{environment.kind}, between two turns,"
        return (yield from self._timed("environment", BackgroundCall(work, environment.lead_seconds, what)))

    def _place(self, asked: TurnRequest) -> EndedBy:
        """Let the last segment be the one in which the turn is written; or the limit that leaves no room for it."""
        episode, limits = self.episode, self.limits
        if episode.turns >= (self.environment.most_turns or limits.max_turns):
            return "turns"
        if self.seconds_left <= 0:
            return "time"
        if self.budget_left <= 0:
            return "tokens"
        for context in reversed(self.contexts):
            added = context.continued_by(asked)
            if added:
                tokens = self._between(context, added)
                if context.segment.length + len(tokens) >= limits.max_tokens:
                    return "tokens"
                context.segment.nodes.append(Node(added[0].role, tokens, False, messages=tuple(added)))
                context.messages.extend(added)
                episode.messages.extend(added)
                others = [segment for segment in episode.segments if segment is not context.segment]
                episode.segments[:] = [*others, context.segment]
                return ""
        prompt = self._prompt(asked.messages, self.task.thinking)
        if len(prompt.tokens) >= limits.max_tokens:
            return "tokens"
        segment = Segment([prompt], asked.tools)
        if not self.contexts:
            episode.segments.clear()  # the prompt as it was asked for, and not as the task says it
        else:
            episode.messages.extend(asked.messages)
        episode.segments.append(segment)
        self.contexts.append(_Context(asked.agent, asked.tools, list(asked.messages), segment))
        return ""

    def _between(self, context: _Context, added: Sequence[Message]) -> list[int]:
        """The tokens between the last turn and the next one; a turn that was cut gets the end that it lacks."""
        tokens = self.chat.continuation(added, thinking=self.task.thinking, after=context.messages[-1])
        ends = set(self.chat.stop_tokens)
        cut = not ends & set(context.segment.nodes[-1].tokens[-1:])
        return [self.chat.turn_end, *tokens] if cut else tokens

    def _answer(self, written: Writing) -> SampledTurn:
        segment = self.episode.segments[-1]
        before = segment.length
        message = self._record(written)
        (context,) = (each for each in self.contexts if each.segment is segment)
        context.messages.append(message)
        return SampledTurn(message, written.finish or "", before, segment.length - before)

    def _keep(self, agent: str) -> None:
        """Leave only the segments of the agent that is trained: another one's turns did not earn its reward."""
        kept = [context.segment for context in self.contexts if context.agent == agent]
        if kept:
            self.episode.segments[:] = kept


def _same(mine: Message, theirs: Message) -> bool:
    """Whether a message came back as it was. A trace need not: programs that know no traces leave them out."""
    if (mine.role, mine.content, mine.tool_calls) != (theirs.role, theirs.content, theirs.tool_calls):
        return False
    return not theirs.thinking or theirs.thinking == mine.thinking
