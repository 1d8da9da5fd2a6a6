"""Orders: groups that are cancelled in play free the policy, tear their states down, and can be ordered again."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

from ingot.envs.rollout.episode_run import Limits
from ingot.envs.rollout.pausable import OrderPlayer
from ingot.envs.rollout.rollout import Drawing, Order, rollout
from ingot.envs.task import Task
from ingot.inference.sampling import Sampling
from tests.envs.rollout.test_rollout import CHAT
from tests.envs.script import Reply
from tests.envs.test_environment import Guess, Says

LIMITS = Limits(20, 500, 1)
GROUP = 4


class Held(Says):
    """Ends no reply to the prompt that came first, while `hold` is set."""

    def __init__(self, turns: Any) -> None:
        super().__init__(turns)
        self.hold, self.stuck = True, list[Reply]()

    def reply(self, prompt: list[int], sampling: Sampling) -> Reply:
        made = super().reply(prompt, sampling)
        if self.hold and prompt == self.asked[0]:
            self.stuck.append(made)
        return made

    def step(self) -> None:
        for reply in self.begun:
            reply.finish = None if reply in self.stuck else "stop"
        self.begun = [reply for reply in self.begun if reply.finish is None]


def test_a_group_that_is_cancelled_frees_the_policy_and_comes_back_when_it_is_ordered_again() -> None:
    """Three of its four episodes are being written, the last was never begun; another group waits behind them."""
    game, policy = Guess(largest=0), Held(lambda _, seed: str(seed % 2))
    first, second = game.generate(0, 2, "train")
    seen: list[dict[int, int]] = []
    done: list[int] = []

    def orders() -> Iterator[Order | None]:
        yield Order(0, first, 5, LIMITS)
        yield Order(1, second, 5, LIMITS)
        while len(done) < 2:
            yield None
        policy.hold = False
        yield Order(0, first, 5, LIMITS)

    def between() -> None:
        if len(policy.begun) == 3 and not seen:
            seen.append(player.oldest())
            player.cancel(0)

    player = OrderPlayer(policy, CHAT, {"guess": game}, group=GROUP, at_once=3, between=between)
    came: dict[int, list[Any]] = {0: [], 1: []}
    for order, episodes in player.play(orders()):
        came[order.number].append(episodes)
        done.append(order.number)
    assert seen == [{0: 7}], "the version of the script's tokens"
    assert done[0] == 0 and came[0][0] is None and len(policy.cancelled) == 3
    assert not player.player.cancelled and not player.oldest()
    log = [line for line in game.log if first.id in line]
    assert [line.split()[0] for line in sorted(log)] == ["setup"] * 7 + ["teardown"] * 7, "three, and later all four"
    for task, episodes in ((first, came[0][1]), (second, came[1][0])):
        others = {"guess": Guess(largest=0)}
        alone = rollout([task] * GROUP, Says(policy.turns), CHAT, others, drawing=Drawing(seed=5), limits=LIMITS)
        assert [each.tokens() for each in episodes] == [each.tokens() for each in alone]
        assert [each.score for each in episodes] == [each.score for each in alone]


def test_what_runs_beside_the_policy_ends_before_its_group_does() -> None:
    """A group that is cancelled while its states are set up: the states are torn down, and no turn is written."""
    begun, go_on = threading.Event(), threading.Event()

    class Slow(Guess):
        async def setup(self, task: Task) -> dict[str, Any]:
            begun.set()
            await asyncio.to_thread(go_on.wait, 30)
            return await super().setup(task)

    game, policy = Slow(largest=0), Says(lambda _, seed: "0")
    cancelled: list[int] = []

    def between() -> None:
        if begun.is_set() and not cancelled:
            cancelled.append(0)
            assert player.oldest() == {}, "no token yet"
            player.cancel(0)
            go_on.set()

    player = OrderPlayer(policy, CHAT, {"slow": game}, group=2, at_once=2, between=between)
    (task,) = game.generate(0, 1, "train")
    assert [(order.number, episodes) for order, episodes in player.play([Order(0, task, 5, LIMITS)])] == [(0, None)]
    assert sorted(line.split()[0] for line in game.log) == ["setup", "setup", "teardown", "teardown"]
    assert len(policy.cancelled) == 2


def test_an_order_may_be_for_some_samples_of_a_group() -> None:
    """They have the texts that they have in the whole group."""
    game = Guess(largest=0)
    (task,) = game.generate(0, 1, "train")
    some: list[list[Any]] = []
    for samples in ((), (1, 3)):
        player = OrderPlayer(Says(lambda _, seed: str(seed % 7)), CHAT, {"guess": game}, group=GROUP)
        orders = iter([Order(0, task, 5, LIMITS, samples=samples)])
        some.append([each.tokens() for _, episodes in player.play(orders) for each in episodes or ()])
    assert len(some[0]) == GROUP and some[1] == [some[0][1], some[0][3]]
