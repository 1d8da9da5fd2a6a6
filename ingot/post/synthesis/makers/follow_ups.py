"""One more turn for given conversations, with instructions that a program checks.

The user asks for the last answer again under constraints of IFEval's kinds (words, layout, length, case: envs/tasks); an attempt
is kept if every instruction is followed, strictly. IFBench's constraints are never used: they measure. Multi-turn rows with
verifiable instructions are a part of OLMo 3's instruction-following data (arXiv 2512.13961).
"""

from __future__ import annotations

import random

from pydantic import Field

from ingot.envs.environment import reward
from ingot.envs.episode import Episode
from ingot.envs.rows import Row
from ingot.envs.task import Task
from ingot.envs.tasks._instruction_prompts import draw_request
from ingot.envs.verifiers.instructions.instruction import find_instruction
from ingot.post.data.conversations.row_forms import conversations_of
from ingot.post.synthesis.maker import Maker, origin
from ingot.tokens.chat import Message

REQUESTS = ("Now say that again. {}", "Please write your last answer anew. {}", "Give me the same in other words. {}")


class FollowUps(Maker):
    """Another turn under instructions that are checked."""

    most: int = Field(2, ge=1, le=4, description="a turn has one to so many instructions")
    seed: int = Field(0, description="of the instructions that are drawn for each row")

    def task_of(self, row: Row, place: str) -> Task | None:
        found = next(conversations_of(row, self.form), None)
        if found is None or not found.messages or found.messages[-1].role != "assistant":
            return None
        rng = random.Random(f"{self.seed}/{found.text}")
        request = draw_request(rng, self.most)
        turn = Message("user", rng.choice(REQUESTS).format(request.constraints))
        before = found.messages if self.thinking else [message.without_thinking() for message in found.messages]
        data = origin(row, place)
        return self.ask([*before, turn], asked=request.instructions, thinking=self.thinking, data=data)

    @reward()
    def correct(self, episode: Episode) -> float:
        """Whether all instructions are followed, and no filter drops the conversation."""
        followed = all(find_instruction(id, kwargs).follows(episode.answer) for id, kwargs in episode.task.asked)
        return float(followed) * super().correct(episode)
