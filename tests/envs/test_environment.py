"""Environments: hooks in their order, rewards by name, failures apart from zero, streams of groups, nothing left behind."""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from pydantic import Field

from ingot.envs.environment import Environment, NewContext, in_place, reward
from ingot.envs.episode import Episode, Score
from ingot.envs.errors import EnvironmentFailed
from ingot.envs.rollout.episode_run import Limits
from ingot.envs.rollout.rollout import Drawing, rollout, rollouts
from ingot.envs.task import Task
from ingot.inference.sampling import Sampling
from ingot.tokens.chat import Message, ToolCall
from ingot.workspace.errors import DataError
from tests.envs.rollout.test_rollout import CHAT, END, Fixed, turn_tokens
from tests.envs.script import Reply, Script
from tests.making.processes import wait_until

LIMITS = Limits(max_new_tokens=200, max_tokens=2000, max_turns=8)


def say(text: str, *calls: ToolCall) -> list[int]:
    return turn_tokens(Message("assistant", text, tool_calls=list(calls)), thinking=False)


class Says(Script):
    """Writes what a function says to the number of its turn in the conversation and the sample's seed."""

    def __init__(self, turns: Any) -> None:
        super().__init__()
        self.turns = turns

    def reply(self, prompt: list[int], sampling: Sampling) -> Reply:
        said = prompt.count(CHAT.turn_end) // 2
        tokens = say(self.turns(said, sampling.seed))[: sampling.max_new_tokens]
        return Reply(tokens, [-0.25] * len(tokens), [7] * len(tokens))


class Guess(Environment):
    """A game: the policy says numbers, the environment says higher or lower, until it is right."""

    largest: int = Field(9, ge=0, description="the largest number")
    log: Any = Field(default_factory=list, exclude=True)

    def draw(self, rng: random.Random) -> Task:
        number = rng.randint(0, self.largest)
        game = rng.randrange(10**6)
        return self.ask(f"Game {game}: guess.", str(number), thinking=False)

    async def setup(self, task: Task) -> dict[str, Any]:
        await asyncio.sleep(0)
        self.log.append(f"setup {task.id}")
        return {"task": task.id, "guesses": 0}

    def teardown(self, state: dict[str, Any]) -> None:
        self.log.append(f"teardown {state['task']}")

    def reply(self, episode: Episode) -> str | None:
        episode.state["guesses"] += 1
        said, wanted = int(episode.answer), int(episode.task.answer)
        return None if said == wanted else "higher" if said < wanted else "lower"

    @reward()
    def correct(self, episode: Episode) -> float:
        return float(episode.answer == episode.task.answer)

    @reward(weight=-0.1)
    async def guesses(self, episode: Episode) -> float:
        return float(episode.state["guesses"])

    @reward(weight=0.01, every_turn=True)
    def is_number(self, episode: Episode) -> float:
        return float(episode.messages[-1].content.isdigit())


def test_a_game_turn_by_turn() -> None:
    """The policy counts up from 0; everything is kept as it happened."""
    game = Guess()
    tasks = game.generate(0, 6, "train")
    done = rollout(tasks, Says(lambda turn, _: str(turn)), CHAT, {"guess": game}, limits=Limits(20, 2000, 20))
    for task, episode in zip(tasks, done, strict=True):
        wanted = int(task.answer)
        said = [message.content for message in episode.messages]
        assert said == [text for number in range(wanted) for text in (str(number), "higher")] + [str(wanted)]
        assert episode.ended == "answer" and episode.state is None
        guesses = wanted + 1
        assert episode.score.rewards == {"correct": 1.0, "guesses": guesses, "is_number": guesses}
        assert episode.score.reward == pytest.approx(1 - 0.1 * guesses + 0.01 * guesses)
        assert (
            episode.score.correct and [node.rewards for node in episode.nodes[1::2]] == [{"is_number": 1.0}] * guesses
        )
        assert [node.role for node in episode.nodes] == ["prompt", *["assistant", "user"] * wanted, "assistant"]
        assert {node.ended for node in episode.nodes if node.sampled} == {"stop"}
        # what the chat format makes of the whole conversation is what the policy saw and wrote
        tokens, mask = CHAT.conversation([*task.messages, *episode.messages], thinking=False)
        assert episode.tokens() == tokens[: episode.length] and episode.sampled() == mask[: episode.length]
        assert set(episode.seconds) >= {"sampling", "judging", "all"}
    assert sorted(game.log) == sorted(f"{what} {task.id}" for task in tasks for what in ("setup", "teardown"))


class Forgets(Guess):
    """The same game, but after two turns the policy goes on with a new context."""

    def reply(self, episode: Episode) -> Any:
        said = super().reply(episode)
        if said and episode.turns % 2 == 0:
            return NewContext([Message("user", f"You said {episode.answer}. It is {said}.")])
        return said


def test_a_new_context_is_a_segment_of_its_own() -> None:
    game = Forgets()
    task = next(task for task in game.generate(0, 40, "train") if task.answer == "5")
    numbers = iter(range(10))
    (episode,) = rollout([task], Says(lambda *_: str(next(numbers))), CHAT, {"forgets": game}, limits=LIMITS)
    assert episode.score.correct and [len(segment.nodes) for segment in episode.segments] == [4, 4, 4]
    for segment, first in zip(episode.segments[1:], ("1", "3"), strict=True):
        prompt = CHAT.prompt([Message("user", f"You said {first}. It is higher.")], thinking=False)
        assert segment.nodes[0].tokens == prompt
    assert episode.split(episode.logprobs()) == [segment.logprobs() for segment in episode.segments]


def test_the_stop_rule_and_the_turn_limit() -> None:
    class Stops(Guess):
        """Ends at a 3."""

        async def done(self, episode: Episode) -> bool:
            return episode.answer == "3"

    class Never(Environment):
        """Always asks again."""

        def draw(self, rng: random.Random) -> Task:
            return self.ask(f"{rng.random()}", thinking=False)

        def reply(self, episode: Episode) -> str:
            return "again"

    game = Stops()
    task = next(task for task in game.generate(0, 40, "train") if task.answer == "9")
    (episode,) = rollout([task], Says(lambda turn, _: str(turn)), CHAT, {"stops": game}, limits=LIMITS)
    assert (episode.ended, episode.turns, episode.score.correct) == ("stopped", 4, False)
    (task,) = Never().generate(0, 1, "train")
    (episode,) = rollout([task], Says(lambda *_: "x"), CHAT, {"never": Never()}, limits=Limits(20, 2000, 3))
    assert episode.turns == 3 and episode.messages[-1].role == "assistant"


class Faulty(Environment):
    """Fails in a hook that its option names, on every third task."""

    where: str = Field("", description="the hook")

    def draw(self, rng: random.Random) -> Task:
        return self.ask(f"{rng.random()}", "x", thinking=False, asked=(rng.randrange(3),))

    def fail(self, where: str, task: Task) -> None:
        if where == self.where and task.asked[0] == 0:
            raise ZeroDivisionError(f"in {where}")

    def setup(self, task: Task) -> Task:
        self.fail("setup", task)
        return task

    def teardown(self, state: Task) -> None:
        if state is not None:
            self.fail("teardown", state)

    async def reply(self, episode: Episode) -> None:
        self.fail("reply", episode.task)

    def done(self, episode: Episode) -> bool:
        self.fail("done", episode.task)
        return False

    @reward()
    def correct(self, episode: Episode) -> float:
        self.fail("correct", episode.task)
        return float("nan") if self.where == "nan" and episode.task.asked[0] == 0 else float(episode.answer == "x")


@pytest.mark.parametrize("where", ["setup", "reply", "done", "correct", "teardown", "nan"])
def test_a_hook_that_fails_is_no_reward(where: str) -> None:
    """And it hurts no other episode."""
    faulty = Faulty(where=where)
    tasks = faulty.generate(1, 30, "train")
    for episode in rollout(tasks, Says(lambda *_: "x"), CHAT, {"faulty": faulty}, limits=LIMITS):
        if episode.task.asked[0] == 0:
            assert episode.failed and episode.ended == "error" and episode.score.reward == 0
            expected = "the reward correct is nan" if where == "nan" else f"raised ZeroDivisionError: in {where}"
            assert expected in (episode.score.error or "")
        else:
            assert (episode.failed, episode.score.reward, episode.ended) == (False, 1.0, "answer")


def test_hooks_that_hang_are_failures() -> None:
    class Hangs(Faulty):
        async def reply(self, episode: Episode) -> None:
            if episode.task.asked[0] == 0:
                await asyncio.sleep(60)

    hangs = Hangs()
    tasks = hangs.generate(1, 12, "train")
    began = time.monotonic()
    done = rollout(tasks, Says(lambda *_: "x"), CHAT, {"hangs": hangs}, limits=Limits(20, 500, 3, hook_seconds=0.2))
    assert time.monotonic() - began < 30
    errors = {episode.score.error for episode in done if episode.task.asked[0] == 0}
    assert errors == {"hangs.reply did not end in 0.2 seconds"}
    assert all(episode.score.reward == 1 for episode in done if episode.task.asked[0])


def test_a_tool_with_the_state_of_its_episode() -> None:
    class Counter(Environment):
        """A tool that counts up in each episode by itself."""

        def draw(self, rng: random.Random) -> Task:
            return self.ask(f"{rng.random()}", "2", thinking=False)

        def setup(self, task: Task) -> list[int]:
            return []

    async def count(state: list[int], by: int) -> int:
        """Count.

        Args:
            by: how far
        """
        if by < 0:
            raise EnvironmentFailed("the counter is broken")
        state.append(by)
        return sum(state)

    Counter.tools = (count,)
    (task, other) = Counter().generate(0, 2, "train")
    assert task.schemas[0]["parameters"]["properties"] == {"by": {"type": "integer", "description": "how far"}}

    class Calls(Script):
        def reply(self, prompt: list[int], sampling: Sampling) -> Reply:
            turn = prompt.count(CHAT.turn_end)
            by = -1 if other.question in CHAT.tokenizer.decode(prompt) else 1
            tokens = say("", ToolCall("count", {"by": by})) if turn < 6 else say("2")
            return Reply(tokens, [-1.0] * len(tokens), [0] * len(tokens))

    first, second, broken = rollout([task, task, other], Calls(), CHAT, {"counter": Counter()}, limits=LIMITS)
    for episode in (first, second):
        counts = [message.content for message in episode.messages if message.role == "tool"]
        assert counts == [str(number + 1) for number in range(len(counts))] and len(counts) > 1
        assert episode.score.reward == 1
    assert broken.failed and (broken.score.error, broken.score.failed) == ("the counter is broken", "tool")


def numbered(count: int) -> Iterator[Task]:
    yield from Guess(largest=0).generate(0, count, "train")


def test_groups_come_as_they_end_and_the_rest_is_cancelled() -> None:
    """Endless tasks: so many are in progress, a caller that has enough leaves nothing behind."""
    drawn: list[Task] = []

    def endless() -> Iterator[Task]:
        for task in numbered(200):
            drawn.append(task)
            yield task

    class Slow(Says):
        """Ends the replies in a random order, one at a time."""

        def step(self) -> None:
            reply = random.Random(len(self.asked)).choice(self.begun)
            reply.finish = "stop"
            self.begun.remove(reply)

    game, policy = Guess(largest=0), Slow(lambda _, seed: str(seed % 2))
    before = set(threading.enumerate())
    stream = rollouts(endless(), policy, CHAT, {"guess": game}, group=4, at_once=10, limits=Limits(20, 500, 1))
    groups = [next(stream) for _ in range(5)]
    stream.close()  # type: ignore[attr-defined]
    assert all(len(group) == 4 and len({episode.task.id for episode in group}) == 1 for group in groups)
    assert len({group[0].task.id for group in groups}) == 5
    assert len(drawn) <= 5 + 10
    setups, teardowns = (sum(line.startswith(what) for line in game.log) for what in ("setup", "teardown"))
    assert setups == teardowns >= 20
    assert set(policy.begun) <= set(policy.cancelled), "what is not written is cancelled"
    wait_until(lambda: not set(threading.enumerate()) - before, otherwise="idle threads end when they notice")
    # each episode is that of a rollout of all, whatever its neighbours
    tasks = [group[0].task for group in groups for _ in range(4)]
    whole = rollout(tasks, Says(policy.turns), CHAT, {"guess": Guess(largest=0)}, limits=Limits(20, 500, 1))
    assert [episode.tokens() for group in groups for episode in group] == [episode.tokens() for episode in whole]


def test_an_episode_has_one_deadline() -> None:
    class Stuck(Fixed):
        def step(self) -> None:
            time.sleep(0.01)  # nothing ever ends

    tasks = Guess().generate(0, 3, "train")
    policy = Stuck([END])
    limits = Limits(20, 500, 2, episode_seconds=0.1)
    done = rollout(tasks, policy, CHAT, {"guess": Guess()}, limits=limits)
    assert [episode.ended for episode in done] == ["time"] * 3 and len(policy.cancelled) == 3


def test_an_environment_without_solutions_says_so() -> None:
    (task,) = Guess().generate(0, 1, "train")
    with pytest.raises(Exception, match="there is no worked solution"):
        Guess().solution(task)
    assert not Guess().has_solutions


class Squares(Environment):
    """Its author wrote a number where text belongs."""

    def draw(self, rng: random.Random) -> Task:
        number = rng.randrange(50)
        return self.ask(f"What is {number} squared?", number**2)  # type: ignore[arg-type]


def test_an_answer_that_is_no_text_is_named_with_its_task_and_the_fix() -> None:
    """`ingot env test` ended in a TypeError about int and len()."""
    with pytest.raises(DataError, match=r"task kind squares, question 'What is (\d+) squared\?'.*of type int") as found:
        Squares().generate(0, 3, "train")
    assert found.value.fix is not None and found.value.fix.startswith("give the answer as text: str(")


def test_the_score_of_a_conversation_that_nobody_sampled() -> None:
    class Polite(Environment):
        """Weighted rewards on messages alone."""

        def draw(self, rng: random.Random) -> Task:
            return self.ask("Hello?", "hi", thinking=False)

        @reward(weight=0.5)
        async def greets(self, episode: Episode) -> bool:
            return episode.answer.startswith("hi")

        @reward(weight=2)
        def short(self, episode: Episode) -> float:
            return 1 / max(1, len(episode.answer))

    task = Polite().draw(random.Random(0))
    score = Polite().score(task, [Message("assistant", "hi")])
    assert score.rewards == {"greets": 1.0, "short": 0.5} and score.reward == 1.5 and not score.correct
    assert Polite().score(task, [Message("assistant", "h")]).correct is False


def test_drawing_is_one_value() -> None:
    (task,) = Guess(largest=0).generate(0, 1, "train")
    policy = Says(lambda *_: "0")
    rollout([task], policy, CHAT, {"guess": Guess(largest=0)}, drawing=Drawing(0.5, 0.9, 20, 3), limits=LIMITS)
    (sampling,) = policy.samplings
    assert (sampling.temperature, sampling.top_p, sampling.top_k) == (0.5, 0.9, 20)


class Exact(Environment):
    """Says in which thread it was scored."""

    threads: Any = Field(default_factory=set, exclude=True)

    def draw(self, rng: random.Random) -> Task:
        return self.ask(f"Say {rng.randrange(10**6)}.", "7", thinking=False)


class Slow(Exact):
    """Its own score may take as long as it likes."""

    def score(self, task: Task, messages: Sequence[Message]) -> Score:
        self.threads.add(threading.current_thread())
        return Score(1.0, True, True)


class Quick(Exact):
    """Its own score ends at once."""

    @in_place
    def score(self, task: Task, messages: Sequence[Message]) -> Score:
        self.threads.add(threading.current_thread())
        return Score(1.0, True, True)


class Rewarded(Exact):
    """A method that is marked as a reward judges, not the score."""

    @reward()
    def brief(self, episode: Episode) -> float:
        self.threads.add(threading.current_thread())
        return 1.0


def test_a_score_that_ends_at_once_is_no_work_for_a_thread() -> None:
    """Only where its author says so: what others write may take long, and must not hold up the sampling."""
    for kind, in_main in ((Slow, False), (Quick, True), (Rewarded, False)):
        environment = kind()
        tasks = environment.generate(1, 3, "train")
        episodes = rollout(tasks, Says(lambda said, seed: "7"), CHAT, {environment.kind: environment}, limits=LIMITS)
        assert [each.score.reward for each in episodes] == [1.0] * 3
        assert environment.threads and (threading.main_thread() in environment.threads) == in_main
    plain = Exact()
    task = plain.generate(1, 1, "train")[0]
    known = [plain.score_at_once(task, [Message("assistant", text)]) for text in ("7", "8")]
    assert [None if each is None else each.correct for each in known] == [True, False]
    assert Slow().score_at_once(task, []) is None and Rewarded().score_at_once(task, []) is None
