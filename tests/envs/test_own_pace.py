"""Trajectories that advance on their own: nobody waits for a slow tool, and the result is that of taking turns together."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

from ingot.envs.rollout import _request_seed, rollout
from ingot.envs.task import Policy, Score, Task, make_task
from ingot.envs.tasks.calculator import Calculator
from ingot.envs.tool_calls import ToolCalls
from ingot.envs.trajectory import Trajectory
from ingot.inference.engine import Engine
from ingot.inference.sampling import Sampling
from ingot.tokens.chat import ChatFormat, Message, ToolCall
from tests.envs.script import Reply, Script
from tests.envs.test_rollout import CHAT, END, Fixed, turn_tokens
from tests.serve.speaker import FAREWELL, QUESTION, SCHEMA, trained_speaker

PATIENCE = 20.0  # seconds that any wait of these tests may take
SETTINGS: dict[str, Any] = {"max_new_tokens": 240, "max_tokens": 1000, "max_turns": 4, "seed": 3}


def no_score(task: Task, messages: Sequence[Message]) -> Score:
    return Score(0.0, False, False)


def lockstep(
    tasks: Sequence[Task],
    policy: Policy,
    chat: ChatFormat,
    tool: Callable[[Mapping[str, Any]], str],
    temperature: float,
) -> list[tuple[list[int], list[Message]]]:
    """The same by the book: all first turns, all tool calls, all second turns, … Tokens and messages of each trajectory."""
    texts = [chat.prompt(task.messages, tools=task.tools or None, thinking=task.thinking) for task in tasks]
    said: list[list[Message]] = [[] for _ in tasks]
    samples = [sum(other.id == task.id for other in tasks[:place]) for place, task in enumerate(tasks)]
    open_ = list(range(len(tasks)))
    for turn in range(SETTINGS["max_turns"]):
        open_ = [place for place in open_ if len(texts[place]) < SETTINGS["max_tokens"]]
        samplings = [
            Sampling(
                max_new_tokens=min(SETTINGS["max_new_tokens"], SETTINGS["max_tokens"] - len(texts[place])),
                temperature=temperature,
                stop_tokens=chat.stop_tokens,
                seed=_request_seed(SETTINGS["seed"], tasks[place].id, samples[place], turn),
            )
            for place in open_
        ]
        completions = policy.complete([list(texts[place]) for place in open_], samplings)
        going_on = []
        for place, completion in zip(open_, completions, strict=True):
            texts[place] += completion.tokens
            reply = chat.parse(completion.tokens)
            said[place].append(reply)
            if reply.tool_calls and not reply.problems and turn + 1 < SETTINGS["max_turns"]:
                results = [Message("tool", tool(call.arguments)) for call in reply.tool_calls]
                said[place] += results
                texts[place] += chat.continuation(results, thinking=tasks[place].thinking)
                going_on.append(place)
        open_ = going_on
    return list(zip(texts, said, strict=True))


def content(trajectories: Sequence[Trajectory]) -> list[tuple[list[int], list[Message]]]:
    return [(trajectory.tokens(), trajectory.messages) for trajectory in trajectories]


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
    tasks = [task for task in Calculator().generate(1, 6, "train") for _ in range(3)]
    delays = random.Random(order)

    def slow(arguments: Mapping[str, Any]) -> str:
        time.sleep(delays.choice((0, 0, 0.001, 0.004)))
        return str(arguments["expression"])

    expected = lockstep(tasks, Whimsical(random.Random(0)), CHAT, lambda arguments: str(arguments["expression"]), 1.0)
    assert {1, 2, 3} <= {sum(message.role == "assistant" for message in said) for _, said in expected}
    done = rollout(tasks, Whimsical(random.Random(order)), CHAT, tools={"calculator": slow}, **SETTINGS, score=no_score)
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


def speaker_tasks() -> list[Task]:
    return [
        make_task("speaker", question, "", tools=(SCHEMA,)) for question in (QUESTION, FAREWELL, QUESTION, QUESTION)
    ]


def test_the_others_finish_while_a_tool_is_slow() -> None:
    """The first call is not answered before the three other trajectories are at their ends: six turns, with two other calls."""
    model = trained_speaker()
    chat, engine = ChatFormat(model.tokenizer), Watched(model, slots=2, length=256)  # type: ignore[arg-type]
    others_ended, order = engine.watch(6), iter(range(100))

    def times(arguments: Mapping[str, Any]) -> str:
        if next(order) == 0:
            assert others_ended.wait(PATIENCE), "the others wait for this tool"
        return str(arguments["a"] * arguments["b"])

    done = rollout(
        speaker_tasks(),
        engine,
        chat,
        tools={"times": times},
        tool_deadline=PATIENCE,
        temperature=0.0,
        **SETTINGS,
        score=no_score,
    )
    assert [trajectory.messages[-1].content for trajectory in done] == ["It is 408 — ja.", "See you"] + [
        "It is 408 — ja."
    ] * 2
    assert not engine.busy and engine.stats.pages_used == 0
    # each second turn found the full pages of its conversation, up to the last token that was read
    first_turn = [*done[0].nodes[0].tokens, *done[0].nodes[1].tokens]
    second = [request for request in engine.seen if request.prompt[: len(first_turn)] == first_turn]
    assert len(second) == 3
    assert all(request.shared_tokens >= (len(first_turn) - 1) // 16 * 16 > 0 for request in second)
    expected = lockstep(speaker_tasks(), Engine(model, slots=2, length=256), chat, lambda given: "408", 0.0)
    assert content(done) == expected


def call_turn(*expressions: str) -> list[int]:
    calls = [ToolCall("calculator", {"expression": expression}) for expression in expressions]
    return turn_tokens(Message("assistant", thinking="", tool_calls=calls))


def tool_texts(trajectory: Trajectory) -> list[str]:
    return [message.content for message in trajectory.messages if message.role == "tool"]


def test_a_tool_that_raises_is_heard() -> None:
    def tool(arguments: Mapping[str, Any]) -> str:
        if arguments["expression"] == "1":
            raise ValueError("not this one" + "!" * 5000)
        return "fine"

    [task] = Calculator().generate(0, 1, "train")
    policy = Fixed(call_turn("1", "2"), [END])
    [trajectory] = rollout([task], policy, CHAT, tools={"calculator": tool}, max_new_tokens=500, max_tokens=4000)
    assert tool_texts(trajectory) == [("error: ValueError: not this one" + "!" * 5000)[:2000], "fine"]


def test_a_tool_that_exits_or_gives_no_text_is_heard() -> None:
    def tool(arguments: Mapping[str, Any]) -> Any:
        if arguments["expression"] == "1":
            raise SystemExit(3)
        return [408]

    [task] = Calculator().generate(0, 1, "train")
    policy = Fixed(call_turn("1", "2"), [END])
    [trajectory] = rollout([task], policy, CHAT, tools={"calculator": tool}, max_new_tokens=500)
    assert tool_texts(trajectory) == ["error: SystemExit: 3", "error: the tool gave list instead of a text"]


def test_a_tool_that_does_not_end_is_left_behind() -> None:
    never = threading.Event()

    def tool(arguments: Mapping[str, Any]) -> str:
        if arguments["expression"] == "1":
            never.wait(PATIENCE)
        return "fine"

    [task] = Calculator().generate(0, 1, "train")
    policy = Fixed(call_turn("0", "1", "2"), [END])
    [trajectory] = rollout([task], policy, CHAT, tools={"calculator": tool}, tool_deadline=0.05, max_new_tokens=500)
    never.set()
    assert tool_texts(trajectory) == ["fine", "error: no answer in 0.05 seconds", "fine"]


def test_an_answer_that_comes_too_late_is_nobodys() -> None:
    """The first call's answer arrives while the second one runs, and after the turn is through."""
    events = [threading.Event(), threading.Event()]

    def tool(arguments: Mapping[str, Any]) -> str:
        assert events[arguments["which"]].wait(PATIENCE)
        return f"answer {arguments['which']}"

    calls: ToolCalls[str] = ToolCalls(0.05)
    calls.begin("turn", [ToolCall("tool", {"which": which}) for which in (0, 1)], {"tool": tool})
    assert calls.ended(wait=True) == []  # the first is overdue, the second runs
    calls._deadline = PATIENCE
    calls._turns[0].deadline += PATIENCE
    events[0].set()
    assert calls.ended(wait=True) == []  # the late answer
    events[1].set()
    [(owner, answers)] = calls.ended(wait=True)
    assert (owner, [message.content for message in answers]) == (
        "turn",
        ["error: no answer in 0.05 seconds", "answer 1"],
    )
    assert not calls and calls.ended(wait=True) == []


def test_an_error_leaves_nothing_in_the_engine() -> None:
    class Failing(Fixed):
        def step(self) -> None:
            raise KeyboardInterrupt

    policy = Failing([END])
    with pytest.raises(KeyboardInterrupt):
        rollout(Calculator().generate(0, 3, "train"), policy, CHAT)
    assert policy.cancelled == policy.begun and len(policy.begun) == 3
