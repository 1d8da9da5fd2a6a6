"""Rewards and advantages of GRPO, against numpy."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingot.envs.episode import Episode, Score
from ingot.post.algorithms.grpo import Grpo
from ingot.post.algorithms.maxrl import MaxRl
from ingot.post.rl.config import RlConfig
from ingot.post.rl.objective import Clipped, Deviation
from ingot.post.rl.source import RlSource
from ingot.tokens.tokenizer import Tokenizer
from ingot.workspace.errors import CheckFailed
from ingot.workspace.stage import StageFolder
from tests.post.making import CONTEXT, SUMS, blank_batch, episode, tiny_model, tiny_tokenizer


@given(
    groups=st.lists(st.lists(st.floats(-2, 2, width=16), min_size=3, max_size=3), min_size=1, max_size=6),
    divide=st.booleans(),
)
def test_group_advantages(groups: list[list[float]], divide: bool) -> None:
    table = np.array(groups)
    expected = table - table.mean(axis=1, keepdims=True)
    if divide:
        expected = expected / (table.std(axis=1, ddof=1, keepdims=True) + 1e-4)
    found = Grpo(divide_by_std=divide).answer_advantages(table.flatten().tolist(), 3)
    assert found == pytest.approx(expected.flatten().tolist(), abs=1e-9)


@pytest.mark.parametrize("divide", [False, True])
def test_a_group_of_equal_rewards_teaches_nothing(divide: bool) -> None:
    """Exactly nothing, whatever the reward: an optimizer that divides by the gradient's size would step on what rounding left."""
    assert Grpo(divide_by_std=divide).answer_advantages([1.0, 1.0, 1.0, 0.0, 0.0, 0.0], 3) == [0.0] * 6
    for group in range(2, 17):
        for reward in (0.05, 0.1, 0.2, 0.3, 0.7, 1 / 3):
            assert Grpo(divide_by_std=divide).group_advantages([reward] * group) == [0.0] * group
            for std in DEVIATIONS:
                grpo = Grpo(divide_by_std=divide, std=std, std_epsilon=0.0)
                assert grpo.answer_advantages([reward] * group, group) == [0.0] * group


DEVIATIONS: tuple[Deviation, ...] = ("sample", "population", "batch")


@pytest.mark.parametrize("std", DEVIATIONS)
@pytest.mark.parametrize("epsilon", [1e-4, 1e-8, 0.0])
def test_deviations(std: Deviation, epsilon: float) -> None:
    """TRL's and verl's with n − 1, open-instruct's with n, Magistral's of all centred rewards; a failed answer is in none."""
    rewards = [1.0, 0.0, 0.0, None, 0.5, 0.25, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0]
    table = np.array([np.nan if one is None else one for one in rewards]).reshape(3, 4)
    centred = table - np.nanmean(table, axis=1, keepdims=True)
    scales = {
        "sample": np.nanstd(table, axis=1, ddof=1, keepdims=True),
        "population": np.nanstd(table, axis=1, keepdims=True),
        "batch": np.nanstd(centred, ddof=1),
    }
    scale = np.where(scales[std] == 0, 1.0, scales[std] + epsilon)  # the last group: 0 over 0
    found = Grpo(divide_by_std=True, std=std, std_epsilon=epsilon).answer_advantages(rewards, 4)
    assert found == pytest.approx(np.nan_to_num(centred / scale).flatten().tolist(), abs=1e-12)


def test_advantages_over_the_pass_rate() -> None:
    """k of n right: a right answer has n/k − 1, a wrong one −1, so that the sum over a group is 0; none right teaches nothing."""
    rewards = [1.0, 0.0, 0.0, 0.0, 1.0, 1.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0, None, 0.0, 0.0]
    third = [3.0, -1.0, -1.0, -1.0, 1 / 3, 1 / 3, 1 / 3, -1.0, *[0.0] * 4, 2.0, 0.0, -1.0, -1.0]
    assert MaxRl().answer_advantages(rewards, 4) == pytest.approx(third)
    assert MaxRl().answer_advantages([-1.0, -0.5, 0.0, 0.0], 4) == [0.0] * 4, "penalties alone are no success"


def test_a_failed_answer_is_in_no_group() -> None:
    """An algorithm sees the rewards that are known, group by group; the others have the advantage 0, at their own index."""
    seen = []

    class Ranks(Clipped):
        def group_advantages(self, rewards: list[float]) -> list[float]:
            seen.append(rewards)
            return [float(sorted(rewards).index(one)) for one in rewards]

    rewards = [0.5, None, 0.25, None, None, None, None, 1.0, 2.0]
    assert Ranks().answer_advantages(rewards, 3) == [1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0]
    assert seen == [[0.5, 0.25], [1.0, 2.0]]

    class Short(Clipped):
        def group_advantages(self, rewards: list[float]) -> list[float]:
            return [1.0]

    with pytest.raises(CheckFailed, match=r"Short: group_advantages gave 1 advantages of 2 rewards"):
        Short().answer_advantages(rewards, 3)


PLAIN = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def test_tasks_that_no_answer_of_the_model_could_solve_are_refused(
    make_folder: Callable[[str], StageFolder],
) -> None:
    """With neither tokens nor a template for traces every reply is malformed: the run would sample and learn nothing."""
    tokenizer = tiny_tokenizer()
    tokenizer.chat_template = PLAIN
    del tokenizer.special["<think>"]
    options = {
        "steps": 1,
        "sequence_length": 256,
        "prompts_per_step": 1,
        "group": 2,
        "max_new_tokens": 2,
        "device": "cpu",
    }
    for kind, thinks in (("arithmetic", True), ("no_think", False)):
        config = RlConfig.model_validate(options | {"tasks": {"weights": {kind: 1.0}}})
        source = RlSource(tiny_model(tokenizer), config, make_folder(kind))
        if thinks:
            with pytest.raises(
                CheckFailed,
                match=r"^arithmetic-\w{12}: the task asks for thinking, but the model's chat template has no traces",
            ):
                source.batches(0)
        else:
            source.batches(0)


def scored(reward: float, format_ok: bool) -> Episode:
    made = episode([("prompt", [5, 6]), ("assistant", [7, 8, 9])])
    return Episode(made.task, made.segments, [], Score(reward, reward == 1, format_ok))


def test_rewards_and_their_spread(tokenizer: Tokenizer, make_folder: Callable[[str], StageFolder]) -> None:
    """A well-formed wrong answer earns the format reward, a right one no more than 1; one of two groups is mixed."""
    grpo = Grpo(format_reward=0.25)
    config = RlConfig(
        steps=1, sequence_length=CONTEXT, tasks=SUMS, prompts_per_step=2, group=3, algorithm=grpo, device="cpu"
    )
    source = RlSource(tiny_model(tokenizer), config, make_folder("rl"))
    made = [scored(1.0, True), scored(0.0, True), scored(0.0, False), *[scored(0.0, True)] * 3]
    assert [grpo.reward(each) for each in made] == [1.0, 0.25, 0.0, 0.25, 0.25, 0.25]
    batch = blank_batch(source, 0)
    batch.episodes = made
    source.pipeline.add_advantages(batch)
    rows, metrics = batch.streams, batch.metrics
    mean = 1.25 / 3
    expected = [1 - mean, 0.25 - mean, -mean, 0.0, 0.0, 0.0]
    for row, value in zip(rows["advantage"], expected, strict=True):
        assert row == pytest.approx([value] * 5)
    assert metrics["mixed_groups"] == 0.5
    assert metrics["reward_std"] == pytest.approx(np.std([1.0, 0.25, 0.0]) / 2)
