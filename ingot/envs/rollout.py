"""Rollouts: a policy works on tasks, turn by turn, with tools between the turns.

Every trajectory advances on its own: when a turn has ended its tool calls run beside the sampling (tool_calls.py), and when
these are answered its next turn joins the others, whatever turn they are at. Neither a long text nor a slow tool holds up other
trajectories. Tokens are never decoded and encoded again: what the policy sampled stays as it is, the chat format only adds the
tokens between two turns, so the concatenation of a trajectory's nodes is exactly what the policy saw and wrote.

A trajectory ends when a turn has no tool call, when a turn is malformed (nothing after it could earn the reward), or at
a hard limit of turns or tokens; a tool's result that leaves no room for another turn is left out. The seed of each request
is a hash of (seed, task id, which sample of that task, turn): a trajectory does not depend on which other tasks share the
batch, nor on the order in which things end.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from ingot.envs.mix import TaskMix
from ingot.envs.offer import BUILT_IN
from ingot.envs.task import Policy, Score, Task, Writing
from ingot.envs.tool_calls import Tool, ToolCalls
from ingot.envs.tools.tool import DEADLINE
from ingot.envs.trajectory import Node, Trajectory
from ingot.inference.sampling import Sampling
from ingot.tokens.chat import ChatFormat, Message
from ingot.tokens.tokenizer import THINK_END, THINK_START


@dataclass(eq=False)
class _Episode:
    """An episode in progress: which sample of its task it is, and the turn that was asked for last."""

    trajectory: Trajectory
    sample: int
    turns: int = 0
    turn: Writing | None = None

    def record(self, turn: Writing, chat: ChatFormat) -> Message:
        """Add the turn that was written; what it means."""
        tokens, opened = list(turn.tokens), _opened(self.trajectory.nodes[-1].tokens, chat)
        self.trajectory.nodes.append(Node("assistant", tokens, True, list(turn.logprobs), list(turn.versions)))
        self.trajectory.messages.append(chat.parse(opened + tokens))
        return self.trajectory.messages[-1]

    def answer(self, results: Sequence[Message], chat: ChatFormat, max_tokens: int) -> bool:
        """Keep what the tools said, if it leaves room for another turn; whether it does."""
        tokens = chat.continuation(results, thinking=self.trajectory.task.thinking)
        if self.trajectory.length + len(tokens) >= max_tokens:
            return False
        self.trajectory.messages.extend(results)
        self.trajectory.nodes.append(Node("tool", tokens, False))
        return True


def rollout(
    tasks: Sequence[Task],
    policy: Policy,
    chat: ChatFormat,
    *,
    temperature: float = 1.0,
    top_p: float = 1.0,
    top_k: int = 0,
    max_new_tokens: int = 128,
    max_tokens: int = 1024,
    max_turns: int = 3,
    seed: int = 0,
    tools: Mapping[str, Tool] = BUILT_IN,
    tool_deadline: float = DEADLINE,
    score: Callable[[Task, Sequence[Message]], Score] | None = None,
    only: slice = slice(None),
    between: Callable[[], None] = lambda: None,
) -> list[Trajectory]:
    """One scored trajectory per task, in order; a task listed k times is sampled k times.

    `max_new_tokens` bounds one turn, `max_tokens` a whole trajectory with its prompt, `tool_deadline` the seconds of one tool
    call. `score` judges the messages after the prompt; by default the task's own kind does. With `only` just these of the
    tasks are worked on, with the texts that they have among all: several processes may each do some. `between` is called
    between any two steps; what it raises ends the rollout.
    """
    score = score or TaskMix().score
    numbered = list(zip(tasks, _sample_numbers(tasks), strict=True))[only]
    episodes = []
    for task, number in numbered:
        between()
        episodes.append(_Episode(_begin(task, chat), number))
    writing: dict[Writing, _Episode] = {}
    calls: ToolCalls[_Episode] = ToolCalls(tool_deadline)

    def ask(episode: _Episode) -> None:
        """Ask for the next turn, if there is room for one."""
        room = min(max_new_tokens, max_tokens - episode.trajectory.length)
        if room <= 0 or episode.turns == max_turns:
            return
        sampling = Sampling(
            max_new_tokens=room,
            temperature=temperature,
            top_p=top_p,
            top_k=top_k,
            stop_tokens=chat.stop_tokens,
            seed=_request_seed(seed, episode.trajectory.task.id, episode.sample, episode.turns),
        )
        episode.turn = policy.submit(episode.trajectory.tokens(), sampling, follows=episode.turn)
        episode.turns += 1
        writing[episode.turn] = episode

    try:
        for episode in episodes:
            ask(episode)
        while writing or calls:
            between()
            if writing:
                policy.step()
            for turn in [turn for turn in writing if turn.finish is not None]:
                episode = writing.pop(turn)
                reply = episode.record(turn, chat)
                if reply.tool_calls and not reply.problems and episode.turns < max_turns:
                    calls.begin(episode, reply.tool_calls, _offered(episode.trajectory.task, tools))
            for episode, results in calls.ended(wait=not writing):
                if episode.answer(results, chat, max_tokens):
                    ask(episode)
    finally:
        for turn in writing:  # after Ctrl-C or an error nothing stays behind
            policy.cancel(turn)
    scored = []
    for episode in episodes:
        between()
        done = episode.trajectory
        scored.append(dataclasses.replace(done, score=score(done.task, done.messages)))
    return scored


def _begin(task: Task, chat: ChatFormat) -> Trajectory:
    prompt = chat.prompt(task.messages, tools=task.tools or None, thinking=task.thinking)
    return Trajectory(task, [Node("prompt", prompt, False)], [], Score(0.0, False, False))


def _opened(given: Sequence[int], chat: ChatFormat) -> list[int]:
    """The token that begins a trace, if what the policy was given ends inside one: some templates open it for the model."""
    start, end = (chat.tokenizer.special.get(name) for name in (THINK_START, THINK_END))
    last = next((token for token in reversed(given) if token in (start, end, chat.turn_end)), None)
    return [last] if last is not None and last == start else []


def _offered(task: Task, tools: Mapping[str, Tool]) -> dict[str, Tool]:
    """Only tools that the task offers may be called."""
    names = {schema.get("function", schema)["name"] for schema in task.tools}
    return {name: tool for name, tool in tools.items() if name in names}


def _sample_numbers(tasks: Sequence[Task]) -> list[int]:
    """For each entry, how many entries before it are the same task."""
    seen: Counter[str] = Counter()
    numbers = []
    for task in tasks:
        numbers.append(seen[task.id])
        seen[task.id] += 1
    return numbers


def _request_seed(seed: int, task_id: str, sample: int, turn: int) -> int:
    digest = hashlib.sha256(f"{seed}/{task_id}/{sample}/{turn}".encode()).digest()
    return int.from_bytes(digest[:6], "big")
