"""An environment: numbers to be written backwards, with a reward of one's own."""

import random

from ingot.envs.environment import Environment, reward
from ingot.envs.episode import Episode
from ingot.envs.task import Task


class Backwards(Environment):
    def draw(self, rng: random.Random) -> Task:
        number = str(rng.randrange(10**5, 10**6))
        return self.ask(f"Write {number} backwards.", number[::-1], thinking=False)

    @reward()
    def right(self, episode: Episode) -> float:
        return float(episode.answer == episode.task.answer)
