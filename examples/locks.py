"""An environment with a tool and state: find the number of a lock by trying, with a tool that says higher or lower."""

from __future__ import annotations

import random

from pydantic import Field

from ingot.envs.environment import Environment, reward
from ingot.envs.episode import Episode
from ingot.envs.task import Task


async def turn(state: dict[str, int], number: int) -> str:
    """Turn the lock to a number; it says whether its own is higher or lower."""
    state["turns"] += 1
    return "open" if number == state["secret"] else "higher" if number < state["secret"] else "lower"


class Locks(Environment):
    """A lock with a secret number, and a tool to try numbers with."""

    largest: int = Field(20, ge=1, description="the largest number of a lock")
    tools = (turn,)

    def draw(self, rng: random.Random) -> Task:
        name, secret = rng.randrange(10**6), rng.randint(0, self.largest)
        return self.ask(f"Lock {name} has a number from 0 to {self.largest}. Which?", str(secret), thinking=False)

    def setup(self, task: Task) -> dict[str, int]:
        return {"secret": int(task.answer), "turns": 0}

    @reward()
    def correct(self, episode: Episode) -> float:
        return float(episode.answer == episode.task.answer)

    @reward(weight=-0.02)
    def turns(self, episode: Episode) -> float:
        return float(episode.state["turns"])
