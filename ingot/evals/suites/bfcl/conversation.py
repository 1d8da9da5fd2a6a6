"""A multi-turn question of the leaderboard as an environment: a user asks turn by turn, and the model calls services.

A turn of the user is a number of steps of the model: it calls functions, and gets their results. The turn ends with an answer
that is no call; then the user's next turn comes. As on the leaderboard, a model that still calls after 20 steps is stopped after
the next one, and turns that it left unplayed make the conversation wrong. One without room for more tokens is wrong, too.
Results of calls that were written as text come in one message of the user, as the leaderboard gives them to models behind an API.

Two things differ. An answer that the chat format cannot read (a tool call that is no JSON, a turn that is cut off) ends the
conversation and not only the turn. Calls that take longer than a deadline end the conversation, as wrong.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ingot.envs.environment import Environment, reward
from ingot.envs.episode import Episode
from ingot.envs.errors import EnvironmentFailed
from ingot.envs.task import Task
from ingot.envs.tools.children import ToolFunction, run_in_child
from ingot.envs.tools.tool import Tool
from ingot.evals.suites.bfcl import apis
from ingot.evals.suites.bfcl.prompt import tool_prompt, written_prompt
from ingot.evals.suites.bfcl.write import text_calls, tool_calls
from ingot.tokens.chat import Message

STEPS = 20  # of a turn; the step after them is the last one
SECONDS = 10.0  # for all calls of a conversation so far, which are replayed at each step
MORE_FUNCTIONS = "I have updated some more functions you can choose from. What about now?"
RESULTS, RIGHT = ToolFunction.of(apis.results), ToolFunction.of(apis.right)


@dataclass(frozen=True)
class MultiTurnQuestion:
    """A question: the user's messages turn by turn, the services, and the reference calls of each turn.

    `later` are functions that are offered from some turn on, by its number; the user's message of that turn is empty.
    """

    id: str
    category: str
    turns: Sequence[Sequence[Mapping[str, str]]]
    functions: Sequence[Mapping[str, Any]]
    services: Mapping[str, Any]  # id, involved_classes, initial_config
    reference: list[list[str]]
    later: Mapping[int, Sequence[Mapping[str, Any]]] = field(default_factory=dict)

    def messages(self, turn: int) -> Sequence[Mapping[str, str]]:
        """What the user says in a turn."""
        if turn in self.later:
            return [{"role": "user", "content": f"{list(self.later[turn])}\n{MORE_FUNCTIONS}"}]
        return self.turns[turn]


@dataclass
class ConversationState:
    """A conversation so far: turns, their steps, the calls of a step. `told` are the results that the model has not read yet."""

    question: MultiTurnQuestion
    turns: list[list[list[str]]] = field(default_factory=lambda: [[]])
    told: list[tuple[str, str]] = field(default_factory=list)

    async def step(self, calls: Sequence[str]) -> bool:
        """Run the calls of a step; whether the conversation may go on."""
        self.told = []
        if not calls:
            return True
        self.turns[-1].append(list(calls))
        found = await self.run(RESULTS)
        if isinstance(found, list):
            self.told = list(zip(calls, found, strict=True))
        return bool(self.told) and len(self.turns[-1]) <= STEPS

    async def run(self, function: ToolFunction, **more: Any) -> Any:
        """What a function of apis.py finds; a text that begins with "error" if the calls take too long, or end the child."""
        given = {"question": json.dumps(self.question.services), "turns": self.turns, **more}
        text = await run_in_child(function, given, SECONDS)
        return text if text.startswith("error") else json.loads(text)


@dataclass(frozen=True)
class Offered(Tool):
    """A function that is offered as a tool. The stop rule, which sees each answer first, has run the call."""

    async def answer(self, arguments: Mapping[str, Any], state: Any = None) -> str:
        """The result of the first call of this name that the model has not read yet."""
        while state.told:
            call, result = state.told.pop(0)
            if call.startswith(f"{self.name}("):
                return str(result)
        raise EnvironmentFailed(f"the call of {self.name} was not run")


class ServiceConversation(Environment):
    """Conversations about the services of the leaderboard's multi-turn questions."""

    def conversation(self, question: MultiTurnQuestion, *, native: bool) -> Task:
        """A question, as the model meets it: with its functions as tools (`native`), or in the system prompt."""
        make = tool_prompt if native else written_prompt
        prompt = make(question.messages(0), question.functions)
        tools = tuple(Offered(schema, RESULTS, SECONDS, asks=False) for schema in prompt.tools)
        return self.ask(prompt.messages, tools=tools, split="test", data={"question": question})

    async def setup(self, task: Task) -> ConversationState:
        """Services that cannot be made are a failure of the environment, and none of the model's."""
        played = ConversationState(task.data["question"])
        if isinstance(failure := await played.run(RESULTS), str):
            raise EnvironmentFailed(f"the services of {played.question.id}: {failure}")
        return played

    async def done(self, episode: Episode) -> bool:
        """Run the calls of an answer; whether they were too many or took too long."""
        calls = tool_calls if episode.task.tools else text_calls
        return not await episode.state.step(calls(episode.messages[-1]))

    def reply(self, episode: Episode) -> Sequence[Message] | None:
        """Results of calls that were written as text; else what the user says next."""
        played: ConversationState = episode.state
        if played.told:
            results = [{"role": "tool", "name": call, "content": result} for call, result in played.told]
            return [Message("user", repr(results))]
        if len(played.turns) == len(played.question.turns):
            return None
        said = played.question.messages(len(played.turns))
        played.turns.append([])
        return [Message(each["role"], each["content"]) for each in said]  # type: ignore[arg-type]

    @reward()
    async def correct(self, episode: Episode) -> float:
        """1 if the services are as the reference calls leave them after each turn, and gave the results that those give."""
        played: ConversationState = episode.state
        if episode.ended in ("tokens", "time"):
            return 0.0
        return float(await played.run(RIGHT, reference=played.question.reference) is True)

    @reward(weight=0)
    def finished(self, episode: Episode) -> float:
        """1 if every turn was begun."""
        return float(len(episode.state.turns) == len(episode.state.question.turns))
