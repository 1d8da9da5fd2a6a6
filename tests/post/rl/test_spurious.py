"""`spurious: random`, the negative control of RL: coin flips in place of rewards, independent of the answers, with their mean."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError
from scipy import stats

from ingot.envs.episode import Episode, Score
from ingot.optim.config import AdamWConfig
from ingot.post.algorithm import RlAlgorithm, Samples, Stamped
from ingot.post.algorithms.dapo import Dapo
from ingot.post.algorithms.grpo import Grpo
from ingot.post.algorithms.ppo import Ppo
from ingot.post.algorithms.reinforce_pp import ReinforcePp
from ingot.post.rewards.reward_shaping import LengthRewardConfig, coin_flips
from ingot.post.rl import stage as rl
from ingot.post.rl.config import RlConfig
from ingot.post.rl.objective import PolicyOptimization
from ingot.post.rl.source import RlSource
from ingot.tokens.tokenizer import Tokenizer
from ingot.workspace.stage import StageFolder
from tests.post.making import SUMS, checkpoint_of, episode, tiny_model
from tests.post.rl.test_bandit import bandit

GROUP = 8
LIMIT = 10
STEPS = 14


def answers(rewards: list[float | None], first: int = 0) -> list[Episode]:
    """Answers with these rewards, groups of them to one question; a right one is short and well formed, a wrong one neither."""
    made = []
    for place, reward in enumerate(rewards):
        question = f"{first + place // GROUP} + 1?"
        each = episode([("prompt", [5]), ("assistant", [7] * (2 if reward else LIMIT))], reward or 0.0, question)
        error = "it broke" if reward is None else None
        made.append(Episode(each.task, each.segments, [], Score(reward or 0.0, reward == 1, bool(reward), error=error)))
    return made


def samples(episodes: list[Episode], spurious: bool) -> Samples:
    rows = [[0.0] * each.length for each in episodes]
    return Samples(episodes, GROUP, lambda: rows, lambda: rows, lambda: rows, LIMIT, coins="1/0" if spurious else None)


def test_the_mean_is_kept_in_expectation() -> None:
    """Over many batches: the coins' mean within four standard errors of the rewards', for rewards of any values."""
    rng = np.random.default_rng(0)
    for values, chances in (([0.0, 1.0], [0.75, 0.25]), ([-0.5, 0.25, 2.0], [0.5, 0.3, 0.2])):
        given, flipped = [], []
        for number in range(200):
            rewards = [float(one) for one in rng.choice(values, size=4 * GROUP, p=chances)]
            made = coin_flips(rewards, answers(list(rewards), first=4 * number), "1/0")
            assert set(made) <= {min(rewards), max(rewards)}
            given.append(np.mean(rewards))
            flipped.append(np.mean([one for one in made if one is not None]))
        difference = np.subtract(flipped, given)
        assert abs(difference.mean()) < 4 * difference.std() / np.sqrt(len(difference))


@pytest.mark.parametrize(
    "algorithm",
    [
        Grpo(format_reward=0.5),
        Dapo(),
        Grpo(length_reward=LengthRewardConfig(thinking=1.0, direct=1.0)),
        ReinforcePp(),
        Ppo(),
    ],
    ids=["format", "overlong", "length", "reinforce_pp", "ppo"],
)
def test_rewards_are_independent_of_the_answers(algorithm: PolicyOptimization) -> None:
    """By a chi-squared test of right answers against high rewards, which fails with the answers' own rewards."""
    tables = {spurious: np.zeros((2, 2)) for spurious in (True, False)}
    rng = np.random.default_rng(1)
    for number in range(50):
        right = [float(one) for one in rng.random(4 * GROUP) < 0.4]
        made = answers(list(right), first=4 * number)
        for spurious, table in tables.items():
            earned = algorithm.rewards(samples(made, spurious))
            high = max(one for one in earned if one is not None)
            for one, reward in zip(right, earned, strict=True):
                table[int(one), int(reward == high)] += 1
    assert stats.chi2_contingency(tables[True]).pvalue > 0.001
    assert stats.chi2_contingency(tables[False]).pvalue < 1e-30


def test_a_run_repeats_and_failures_stay() -> None:
    rewards = [1.0, 0.0, None, 0.0, 1.0, 0.0, 0.0, 1.0]
    made = answers(rewards)
    flipped = coin_flips(rewards, made, "1/0")
    assert flipped == coin_flips(rewards, made, "1/0")
    assert [one is None for one in flipped] == [one is None for one in rewards]
    others = [coin_flips(rewards, answers(rewards, first=first), "1/0") for first in range(1, 6)]
    assert any(one != flipped for one in others)  # another task has other coins
    assert coin_flips([0.0] * GROUP, answers([0.0] * GROUP), "1/0") == [0.0] * GROUP  # nothing was earned, or given
    assert coin_flips([None] * GROUP, answers([None] * GROUP), "1/0") == [None] * GROUP


def test_a_task_that_comes_again_has_other_coins(
    tokenizer: Tokenizer, make_folder: Callable[[str], StageFolder]
) -> None:
    """One question in every place of every batch: a coin that stayed with it would be a reward that can be learnt.

    Another seed of the stage has other coins, the same one the same.
    """
    options: dict[str, Any] = {"steps": 4, "sequence_length": 48, "tasks": SUMS, "prompts_per_step": 1, "group": 16}
    algorithm = bandit(ReinforcePp, {})
    config = RlConfig.model_validate(
        options
        | {"algorithm": algorithm, "spurious": "random", "precision": "float32", "device": "cpu", "max_new_tokens": 1}
    )
    rewards = [float(place % 2) for place in range(config.group)]
    drawn = []
    for seed in (1, 1, 2):
        folder = dataclasses.replace(make_folder("rl"), seed=seed)
        source = RlSource(tiny_model(tokenizer), config, folder)
        coins = list[str]()
        source.pipeline.steps.append(lambda batch, coins=coins: coins.append(batch.coins or ""))  # type: ignore[misc]
        for step in range(2):
            source.update(step)
            drawn.append(coin_flips(rewards, answers([*rewards]), coins[-1]))
    assert drawn[0:2] == drawn[2:4]
    assert len({tuple(row) for row in drawn}) == 4


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"algorithm": "dapo"}, "dynamic_sampling"),
        ({"dynamic_sampling": {}}, "dynamic_sampling"),
        ({"exclude_solved": 0.9}, "exclude_solved"),
        ({"difficulty": {}, "exclude_solved": 0.9}, "exclude_solved and difficulty"),
    ],
)
def test_what_chooses_tasks_by_their_rewards_is_refused(options: dict[str, Any], named: str) -> None:
    usual: dict[str, Any] = {"steps": 1, "sequence_length": 96, "max_new_tokens": 48, "spurious": "random"}
    with pytest.raises(ValidationError, match=f"may not know the rewards, by which {named} would choose"):
        RlConfig.model_validate(usual | options)
    without = {"dynamic_sampling": None, "exclude_solved": None, "difficulty": None}
    assert RlConfig.model_validate(usual | options | without).refill is None


def test_an_algorithm_with_its_own_rewards_is_refused() -> None:
    class Own(RlAlgorithm):
        def advantages(self, samples: Samples) -> Stamped:
            return [[each.score.reward] * each.length for each in samples.episodes], {}

    options: dict[str, Any] = {"steps": 1, "sequence_length": 64, "algorithm": Own(), "spurious": "random"}
    with pytest.raises(ValidationError, match="takes its rewards itself; derive it from PolicyOptimization"):
        RlConfig.model_validate(options)


@pytest.mark.slow
def test_a_bandit_improves_with_its_rewards_only(
    tokenizer: Tokenizer, make_folder: Callable[[str], StageFolder], tmp_path: Path
) -> None:
    """One run twice; what it really earns rises only where it is told. The control says what it is."""
    checkpoint = checkpoint_of(tiny_model(tokenizer, std=0.05), tmp_path / "base")
    rises = {}
    for spurious in (None, "random"):
        earned = list[float]()
        kind = type(bandit(Grpo, {}))

        class Watched(kind):  # type: ignore[valid-type,misc]  # made for the test
            def reward(self, episode: Episode, earned: list[float] = earned) -> float:
                earned.append(super().reward(episode))
                return earned[-1]

        config = RlConfig.model_validate(
            {
                **{"steps": STEPS, "sequence_length": 48, "tasks": SUMS, "prompts_per_step": 4, "group": 16},
                **{"max_new_tokens": 1, "algorithm": Watched(), "precision": "float32", "device": "cpu"},
                **{"optimizer": AdamWConfig(lr=1e-2, weight_decay=0.0), "spurious": spurious},
            }
        )
        folder = make_folder(f"rl-{spurious}")
        summary = rl.run(config, {"checkpoint": checkpoint}, folder)
        fifth = len(earned) // 5
        rises[spurious] = np.mean(earned[-fifth:]) - np.mean(earned[:fifth])
        assert summary.get("spurious") == spurious
        rows = folder.metrics.read()
        assert [row.get("spurious") for row in rows] == [spurious and 1.0] * STEPS
        assert max(row["reward_std"] for row in rows) > 0.1  # the coins differ: there was something to learn from
    assert rises[None] > 0.25 and abs(rises["random"]) < 0.15, rises
