"""Rollouts: a policy works on tasks, turn by turn, with tools between the turns.

All tasks advance together: each turn is one `complete` call over everything unfinished. Tokens are never decoded and
encoded again: what the policy sampled is kept as it is, the chat format only adds the tokens between two turns, so the
concatenation of a trajectory's nodes is exactly what the policy saw and wrote.

A trajectory ends when a turn has no tool call, when a turn is malformed (nothing after it could earn the reward), or at
a hard limit of turns or tokens. The seed of each request is a hash of (seed, task id, which sample of that task, turn):
a trajectory does not depend on which other tasks share the batch.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ingot.envs import calculator
from ingot.envs.task import Policy, Score, Task
from ingot.envs.tasks.mix import TaskMix
from ingot.envs.trajectory import Node, Trajectory
from ingot.inference.sampling import Sampling
from ingot.tokens.chat import ChatFormat, Message, ToolCall

Tool = Callable[[Mapping[str, Any]], str]
TOOLS: Mapping[str, Tool] = {calculator.NAME: calculator.calculator}
TOOL_TEXT_LIMIT = 2000  # characters of a tool result that reach the model


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
    tools: Mapping[str, Tool] = TOOLS,
    score: Callable[[Task, Sequence[Message]], Score] | None = None,
) -> list[Trajectory]:
    """One scored trajectory per task, in order; a task listed k times is sampled k times.

    `max_new_tokens` bounds one turn, `max_tokens` a whole trajectory with its prompt. `score` judges the messages after
    the prompt; by default the task's own kind does.
    """
    score = score or TaskMix().score
    stop = chat.stop_tokens
    trajectories = [_begin(task, chat) for task in tasks]
    samples = _sample_numbers(tasks)
    active = list(range(len(tasks)))
    for turn in range(max_turns):
        room = {index: min(max_new_tokens, max_tokens - trajectories[index].length) for index in active}
        active = [index for index in active if room[index] > 0]
        if not active:
            break
        samplings = [
            Sampling(
                max_new_tokens=room[index],
                temperature=temperature,
                top_p=top_p,
                top_k=top_k,
                stop_tokens=stop,
                seed=_request_seed(seed, tasks[index].id, samples[index], turn),
            )
            for index in active
        ]
        completions = policy.complete([trajectories[index].tokens() for index in active], samplings)
        going_on = []
        for index, completion in zip(active, completions, strict=True):
            trajectory = trajectories[index]
            trajectory.nodes.append(
                Node("assistant", list(completion.tokens), True, list(completion.logprobs), list(completion.versions))
            )
            reply = chat.parse(completion.tokens)
            trajectory.messages.append(reply)
            if reply.tool_calls and not reply.problems and turn + 1 < max_turns:
                results = [_call(call, trajectory.task, tools) for call in reply.tool_calls]
                trajectory.messages.extend(results)
                trajectory.nodes.append(
                    Node("tool", chat.continuation(results, thinking=trajectory.task.thinking), False)
                )
                going_on.append(index)
        active = going_on
    return [
        dataclasses.replace(trajectory, score=score(trajectory.task, trajectory.messages))
        for trajectory in trajectories
    ]


def _begin(task: Task, chat: ChatFormat) -> Trajectory:
    prompt = chat.prompt(task.messages, tools=task.tools or None, thinking=task.thinking)
    return Trajectory(task, [Node("prompt", prompt, False)], [], Score(0.0, False, False))


def _call(call: ToolCall, task: Task, tools: Mapping[str, Tool]) -> Message:
    """The tool's reply; only tools that the task offers may be called."""
    offered = {schema.get("function", schema)["name"] for schema in task.tools}
    if call.name not in offered or call.name not in tools:
        return Message(role="tool", content="error: there is no such tool")
    return Message(role="tool", content=tools[call.name](call.arguments)[:TOOL_TEXT_LIMIT])


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
