"""Plays the groups of a stream that may pause, each with its own seed, limits and temperature; one in play can be cancelled.

A group that is cancelled begins no turn any more: turns that the policy is writing are given up at once, tools and verifiers that
are running end first (they have deadlines), and states are torn down. Then it comes back, without episodes.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping

from ingot.envs.environment import Environment
from ingot.envs.episode import Episode
from ingot.envs.rollout.policies import MessagePolicy, Policy
from ingot.envs.rollout.rollout import PLAIN, USUAL, Order, PlannedEpisode, Player
from ingot.envs.tools.tool import Tool
from ingot.tokens.chat import ChatFormat


class OrderPlayer:
    """`group` episodes for each order, `at_once` episodes in progress; the other arguments are those of `rollout`."""

    def __init__(
        self,
        policy: Policy | MessagePolicy,
        chat: ChatFormat,
        environments: Mapping[str, Environment] | None = None,
        *,
        group: int = 1,
        at_once: int = 256,
        tools: Mapping[str, Tool] | None = None,
        between: Callable[[], None] = lambda: None,
    ) -> None:
        self.group, self.at_once = group, at_once
        self.player = Player(policy, chat, environments, PLAIN, USUAL, tools, between)
        self.known: dict[int, int] = {}  # what `oldest` said last

    def play(self, orders: Iterable[Order | None]) -> Generator[tuple[Order, list[Episode] | None], None, None]:
        """Every order with its episodes, as soon as all of them have ended, or with None if it was cancelled.

        None in place of an order: there is none at present.
        """
        entries = (
            None if order is None else PlannedEpisode(order.task, order.number, sample, order)
            for order in orders
            for sample in ((0,) if order is None else order.samples or range(self.group))
        )
        for runs in self.player.play_groups(entries, self.at_once, self.group):
            order = runs[0].entry.order
            assert order is not None
            self.known.pop(order.number, None)  # it may come again
            if order.number in self.player.cancelled:
                self.player.cancelled.remove(order.number)
                yield order, None
            else:
                yield order, [run.game.episode for run in runs]

    def cancel(self, number: int) -> None:
        """Give up a group in play."""
        self.player.cancelled.add(number)

    def oldest(self) -> dict[int, int]:
        """The version of the oldest token of every group in play that has one."""
        ended = (run for members in self.player.members.values() for run in members)
        found: dict[int, int] = {}
        for run in (*self.player.open, *ended):
            group = run.entry.group
            version = self.known.get(group)
            if version is None:
                version = run.first_version
            if version is not None:
                found[group] = min(version, found.get(group, version))
        self.known = dict(found)  # versions only rise: what is drawn later is not older
        return found
