"""Policies that follow a script: what `ingot env test` tries an environment with.

Right ones must earn everything, the others nothing: an environment that pays for silence, for form alone, for the question or
for random words teaches just that. One calls the tools, which none of the others does where there is no solution.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ingot.envs.environment import Environment
from ingot.envs.episode import Episode
from ingot.envs.task import Task
from ingot.envs.tools.drawn import drawn_calls
from ingot.inference.sampling import Sampling
from ingot.tokens.chat import ChatFormat, Message
from ingot.tokens.tokenizer import Tokenizer
from ingot.workspace.errors import DataError

Script = Callable[[Episode], Message]
RANDOM_WORDS = 6
DRAWN = "drawn calls"  # the policy that calls each tool with arguments drawn from its schema, and says nothing


@dataclass(eq=False)
class ScriptedTurn:
    """A turn, written at once."""

    tokens: list[int]
    logprobs: list[float]
    versions: list[int]
    finish: str | None = None
    waiting: bool = False


class Scripted:
    """A policy whose turns a function writes."""

    def __init__(self, script: Script, chat: ChatFormat) -> None:
        self.script, self.chat = script, chat
        self._begun: list[ScriptedTurn] = []

    def submit_episode(self, episode: Episode, tools: Sequence[dict[str, Any]], sampling: Sampling) -> ScriptedTurn:
        """Write the turn; it has ended after the next step."""
        turn = as_turn(self.script(episode), self.chat, episode.task.thinking, sampling.max_new_tokens)
        self._begun.append(turn)
        return turn

    def step(self) -> None:
        """All turns end."""
        for turn in self._begun:
            turn.finish = "stop"
        self._begun.clear()

    def cancel(self, request: Any) -> None:
        """Nothing is left to give up."""


def as_turn(message: Message, chat: ChatFormat, thinking: bool, most: int) -> ScriptedTurn:
    """A message as the tokens of a turn, cut where a policy would be cut."""
    tokens, mask = chat.conversation([Message("user", "?"), message], thinking=thinking)
    wrote = [token for token, one in zip(tokens, mask, strict=True) if one][:most]
    return ScriptedTurn(wrote, [0.0] * len(wrote), [0] * len(wrote))


def scripts(environments: Mapping[str, Environment], chat: ChatFormat, tasks: Sequence[Task]) -> dict[str, Script]:
    """The scripts for these tasks by name: their solutions, if all have one, and policies that know nothing."""
    commonest = Counter(task.answer for task in tasks).most_common(1)[0][0] if tasks else ""

    def solution(episode: Episode) -> Message:
        solved = environments[episode.task.kind].solution(episode.task)
        turns = [message for message in solved if message.role == "assistant"]
        return turns[min(episode.turns, len(turns) - 1)]

    def formed(content: Callable[[Episode], str]) -> Script:
        return lambda episode: Message("assistant", content(episode), "" if episode.task.thinking else None)

    def drawn(episode: Episode) -> Message:
        calls = [] if episode.turns else drawn_calls(episode.task, random.Random(episode.task.id))
        return Message("assistant", "", "" if episode.task.thinking else None, tool_calls=calls)

    tried: dict[str, Script] = {}
    if all(_is_solved(environments[task.kind], task) for task in tasks):
        tried["scripted"] = solution
    if chat.syntax.calls and any(task.tools for task in tasks):
        tried[DRAWN] = drawn
    return tried | {
        "nothing": lambda _: Message("assistant", ""),
        "form only": formed(lambda _: "ok"),
        "the question": formed(lambda episode: episode.task.question),
        "random words": formed(lambda episode: _random_words(episode, chat.tokenizer)),
        "one answer": formed(lambda _: commonest),
    }


def _is_solved(environment: Environment, task: Task) -> bool:
    """Whether there is a solution: some kinds have one for some tasks only, as rows of IFEval come without."""
    try:
        return environment.has_solutions and bool(environment.solution(task))
    except DataError:
        return False


def _random_words(episode: Episode, tokenizer: Tokenizer) -> str:
    """Words of the question and numbers, in a random order: what a policy that has learnt nothing but the vocabulary says."""
    rng = random.Random(f"{episode.task.id}/{episode.turns}/{len(episode.messages)}")
    words = [*episode.task.question.split(), *(str(rng.randrange(100)) for _ in range(4))]
    return " ".join(rng.choices(words, k=rng.randint(1, RANDOM_WORDS)))
