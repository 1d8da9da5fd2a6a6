"""Trajectories that advance on their own: nobody waits for a slow tool, and the result is that of taking turns together."""

from __future__ import annotations

import asyncio
import os
import random
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from ingot.envs.environment import Environment
from ingot.envs.episode import Episode, Score
from ingot.envs.rollout.episode_run import Limits
from ingot.envs.rollout.policies import Policy
from ingot.envs.rollout.rollout import Drawing, request_seed, rollout
from ingot.envs.task import Task, make_task
from ingot.envs.tasks.calculator import Calculator
from ingot.envs.tools.tool import make_tool
from ingot.inference.engine import Engine
from ingot.inference.sampling import Sampling
from ingot.tokens.chat import ChatFormat, Message, ToolCall
from tests.envs.fragile import hang
from tests.envs.rollout.test_rollout import CHAT, END, Fixed, turn_tokens
from tests.envs.script import Reply, Script
from tests.serve.speaker import FAREWELL, QUESTION, SCHEMA, trained_speaker

PATIENCE = 20.0  # seconds that any wait of these tests may take
LIMITS, SEED = Limits(max_new_tokens=240, max_tokens=1000, max_turns=4), 3


class Unjudged(Environment):
    """Tasks of which only the course matters."""

    def score(self, task: Task, messages: Sequence[Message]) -> Score:
        return Score(0.0, False, False)


ANY = {"calculator": Unjudged(), "speaker": Unjudged()}
EXPRESSION = {"name": "calculator", "parameters": {"type": "object", "properties": {"expression": {"type": "string"}}}}


def calculating(function: Callable[..., Any], count: int = 1, deadline: float = PATIENCE) -> list[Task]:
    """Tasks whose calculator is this function."""
    tool = make_tool(function, schema=EXPRESSION, deadline=deadline)
    return [replace(task, tools=(tool,)) for task in Calculator().generate(0, count, "train")]


def lockstep(
    tasks: Sequence[Task],
    policy: Policy,
    chat: ChatFormat,
    tool: Callable[[Mapping[str, Any]], str],
    temperature: float,
) -> list[tuple[list[int], list[Message]]]:
    """The same by the book: all first turns, all tool calls, all second turns, … Tokens and messages of each episode."""
    texts = [chat.prompt(task.messages, tools=task.schemas or None, thinking=task.thinking) for task in tasks]
    said: list[list[Message]] = [[] for _ in tasks]
    samples = [sum(other.id == task.id for other in tasks[:place]) for place, task in enumerate(tasks)]
    open_ = list(range(len(tasks)))
    for turn in range(LIMITS.max_turns):
        open_ = [place for place in open_ if len(texts[place]) < LIMITS.max_tokens]
        samplings = [
            Sampling(
                max_new_tokens=min(LIMITS.max_new_tokens, LIMITS.max_tokens - len(texts[place])),
                temperature=temperature,
                stop_tokens=chat.stop_tokens,
                seed=request_seed(SEED, tasks[place].id, samples[place], turn),
            )
            for place in open_
        ]
        completions = policy.complete([list(texts[place]) for place in open_], samplings)
        going_on = []
        for place, completion in zip(open_, completions, strict=True):
            texts[place] += completion.tokens
            reply = chat.parse(completion.tokens)
            said[place].append(reply)
            if reply.tool_calls and not reply.problems and turn + 1 < LIMITS.max_turns:
                results = [Message("tool", tool(call.arguments)) for call in reply.tool_calls]
                said[place] += results
                texts[place] += chat.continuation(results, thinking=tasks[place].thinking)
                going_on.append(place)
        open_ = going_on
    return list(zip(texts, said, strict=True))


def content(episodes: Sequence[Episode]) -> list[tuple[list[int], list[Message]]]:
    return [(episode.tokens(), episode.messages) for episode in episodes]


class Whimsical(Script):
    """Calls the tool or answers, as prompt and seed decide; completions end in any order, some of them late."""

    def __init__(self, chance: random.Random) -> None:
        super().__init__()
        self.chance = chance

    def reply(self, prompt: list[int], sampling: Sampling) -> Reply:
        chance = random.Random(f"{sampling.seed}/{prompt}")
        calls = [
            ToolCall("calculator", {"expression": f"{chance.randint(1, 99)}+1"}) for _ in range(chance.randint(0, 3))
        ]
        tokens = turn_tokens(Message("assistant", "" if calls else str(chance.random()), thinking="", tool_calls=calls))
        tokens = tokens[: sampling.max_new_tokens]
        return Reply(tokens, [-chance.random()] * len(tokens), [0] * len(tokens))

    def step(self) -> None:
        for reply in self.chance.sample(self.begun, self.chance.randint(0, len(self.begun))):
            reply.finish = "stop"
            self.begun.remove(reply)


@pytest.mark.parametrize("order", range(4))
def test_the_order_of_events_does_not_matter(order: int) -> None:
    delays = random.Random(order)

    async def slow(expression: str) -> str:
        await asyncio.sleep(delays.choice((0, 0, 0.001, 0.004)))
        return expression

    tasks = [task for task in calculating(slow, 6) for _ in range(3)]

    expected = lockstep(tasks, Whimsical(random.Random(0)), CHAT, lambda arguments: str(arguments["expression"]), 1.0)
    assert {1, 2, 3} <= {sum(message.role == "assistant" for message in said) for _, said in expected}
    policy = Whimsical(random.Random(order))
    done = rollout(tasks, policy, CHAT, ANY, drawing=Drawing(seed=SEED), limits=LIMITS)
    assert content(done) == expected


class Watched(Engine):
    """Says when so many of its requests have ended."""

    def watch(self, count: int) -> threading.Event:
        self.count, self.reached, self.seen = count, threading.Event(), list[Any]()
        return self.reached

    def submit(self, *args: Any, **options: Any) -> Any:
        self.seen.append(super().submit(*args, **options))
        return self.seen[-1]

    def step(self) -> None:
        super().step()
        if sum(request.finish is not None for request in self.seen) >= self.count:
            self.reached.set()


def speaker_tasks(times: Callable[..., Any]) -> list[Task]:
    tools = (make_tool(times, schema=SCHEMA, deadline=PATIENCE),)
    return [make_task("speaker", question, tools=tools) for question in (QUESTION, FAREWELL, QUESTION, QUESTION)]


def test_the_others_finish_while_a_tool_is_slow() -> None:
    """The first call is not answered before the three other episodes are at their ends: six turns, with two other calls."""
    model = trained_speaker()
    chat, engine = ChatFormat(model.tokenizer), Watched(model, slots=2, length=256)  # type: ignore[arg-type]
    others_ended, order = engine.watch(6), iter(range(100))

    async def times(a: int, b: int) -> str:
        if next(order) == 0:
            assert await asyncio.to_thread(others_ended.wait, PATIENCE), "the others wait for this tool"
        return str(a * b)

    tasks = speaker_tasks(times)
    done = rollout(tasks, engine, chat, ANY, drawing=Drawing(0.0, seed=SEED), limits=LIMITS)
    assert [episode.messages[-1].content for episode in done] == ["It is 408 — ja.", "See you"] + [
        "It is 408 — ja."
    ] * 2
    assert not engine.busy and engine.stats.pages_used == 0
    # each second turn found the full pages of its conversation, up to the last token that was read
    first_turn = [*done[0].nodes[0].tokens, *done[0].nodes[1].tokens]
    second = [request for request in engine.seen if request.prompt[: len(first_turn)] == first_turn]
    assert len(second) == 3
    assert all(request.shared_tokens >= (len(first_turn) - 1) // 16 * 16 > 0 for request in second)
    expected = lockstep(tasks, Engine(model, slots=2, length=256), chat, lambda given: "408", 0.0)
    assert content(done) == expected


def call_turn(*expressions: str) -> list[int]:
    calls = [ToolCall("calculator", {"expression": expression}) for expression in expressions]
    return turn_tokens(Message("assistant", thinking="", tool_calls=calls))


def tool_texts(episode: Episode) -> list[str]:
    return [message.content for message in episode.messages if message.role == "tool"]


def test_a_tool_that_raises_is_heard() -> None:
    async def tool(expression: str) -> str:
        if expression == "1":
            raise ValueError("not this one")
        return "fine"

    policy = Fixed(call_turn("1", "2"), [END])
    (episode,) = rollout(calculating(tool), policy, CHAT, limits=Limits(500, 4000))
    assert tool_texts(episode) == ["error: ValueError: not this one", "fine"]


def test_a_tool_that_does_not_end_is_cancelled() -> None:
    cancelled = threading.Event()

    async def tool(expression: str) -> str:
        if expression == "1":
            try:
                await asyncio.sleep(PATIENCE)
            finally:
                cancelled.set()
        return "fine"

    policy = Fixed(call_turn("0", "1", "2"), [END])
    (episode,) = rollout(calculating(tool, deadline=0.05), policy, CHAT, limits=Limits(500))
    assert tool_texts(episode) == ["fine", "error: no answer in 0.05 seconds", "fine"]
    assert cancelled.is_set() and not [each for each in threading.enumerate() if each.name == "ingot-beside"]


def test_a_plain_function_that_hangs_is_killed() -> None:
    """It runs in a child."""
    policy = Fixed(call_turn("0", "1", "2"), [END])
    (episode,) = rollout(calculating(hang, deadline=0.5), policy, CHAT, limits=Limits(500))
    first, said, second = tool_texts(episode)
    assert said == "error: no answer in 0.5 seconds"
    assert len({int(first), int(second), os.getpid()}) == 3
    with pytest.raises(ProcessLookupError):
        os.kill(int(first), 0)


def test_an_error_leaves_nothing_in_the_engine() -> None:
    class Failing(Fixed):
        def step(self) -> None:
            raise KeyboardInterrupt

    policy = Failing([END])
    with pytest.raises(KeyboardInterrupt):
        rollout(Calculator().generate(0, 3, "train"), policy, CHAT)
    assert policy.cancelled == policy.begun and len(policy.begun) == 3
