"""Choose which tasks are asked: not those that are solved, and by how often they are (difficulty.py)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ingot.envs.episode import Episode
from ingot.envs.task import Task
from ingot.post.rl.curriculum.difficulty import Difficulty


class TaskChoice:
    """The tasks that are passed over. All processes note the same answers."""

    def __init__(self, exclude_solved: float | None = None, difficulty: Difficulty | None = None) -> None:
        """A task of whose answers the share `exclude_solved` was right is not asked again."""
        self.exclude_solved, self.difficulty = exclude_solved, difficulty
        self.solved: set[str] = set()

    @property
    def takes_all(self) -> bool:
        """Whether no task is passed over."""
        return not self.solved and self.difficulty is None

    def wants(self, task: Task, location: str, step: int) -> bool:
        """Whether the task at this location of the stream is asked at a step."""
        return task.id not in self.solved and (self.difficulty is None or self.difficulty.wants(task, location, step))

    def note(self, step: int, groups: Sequence[Sequence[Episode]]) -> dict[str, float]:
        """Learn from all that was drawn at a step, also from what is not trained on; metrics."""
        if self.exclude_solved is not None:
            for group in groups:
                if sum(each.score.correct for each in group) >= self.exclude_solved * len(group):
                    self.solved.add(group[0].task.id)
        return {} if self.difficulty is None else self.difficulty.note(step, groups)

    def state(self) -> dict[str, Any]:
        """As plain JSON."""
        return {
            "solved": sorted(self.solved),
            "difficulty": {} if self.difficulty is None else self.difficulty.state(),
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from `state`; an empty one is the beginning."""
        self.solved = set(state.get("solved", ()))
        if self.difficulty is not None:
            self.difficulty.restore(state.get("difficulty", {}))
