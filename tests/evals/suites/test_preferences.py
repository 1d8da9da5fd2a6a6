"""The suite `preferences`: margins as the definition gives them, text by text."""

from __future__ import annotations

import random

import pytest
import torch

from ingot.envs.tasks.arithmetic import Arithmetic
from ingot.evals.suites.preferences import measure_margins
from ingot.tokens.chat import Message
from tests.evals.conftest import World

TASKS = Arithmetic(operators=("-",)).generate(0, 5, "test")


def likelihood(world: World, messages: list[Message]) -> tuple[float, int]:
    """log p of what the assistant writes, by one softmax over one text, and its tokens."""
    tokens, mask = world.chat.conversation(messages)
    with torch.no_grad():
        logprobs = world.model(torch.tensor([tokens]))[0].log_softmax(dim=-1)
    return sum(float(logprobs[at - 1, tokens[at]]) for at in range(1, len(tokens)) if mask[at]), sum(mask)


def test_margins_are_those_of_the_definition(world: World) -> None:
    kind, rng = Arithmetic(), random.Random("preferences")
    margins = measure_margins(world.model, world.chat, kind, TASKS, 256)
    assert list(margins) == [task.id for task in TASKS]
    for task in TASKS:
        right, count = likelihood(world, [*task.messages, *kind.solution(task)])
        wrong, _ = likelihood(world, [*task.messages, *kind.weaker(task, rng)])
        assert margins[task.id] == pytest.approx((right - wrong) / count, abs=1e-5)
        assert margins[task.id] != 0
