"""Returns, generalised advantages and whitening against loops in float64 that are written from the papers' sums."""

from __future__ import annotations

import random

import numpy as np
import pytest

from ingot.envs.episode import Episode
from ingot.post.algorithm import Samples
from ingot.post.algorithms.ppo import Ppo
from ingot.post.algorithms.reinforce_pp import ReinforcePp
from ingot.post.algorithms.rloo import Rloo
from ingot.post.rewards.returns import discounted, generalised_advantages, whiten
from tests.post.making import episode, with_logprobs


def random_row(seed: int, length: int = 12) -> tuple[list[float], list[float], list[int]]:
    """Rewards, values and a mask with a prompt, an answer, a tool's result and another answer."""
    rng = random.Random(seed)
    mask = [0] * 3 + [1] * 4 + [0] * 2 + [1] * (length - 9)
    return [rng.gauss(0, 1) * one for one in mask], [rng.gauss(0, 1) for _ in mask], mask


@pytest.mark.parametrize(("discount", "smoothing"), [(1.0, 1.0), (0.9, 0.7), (1.0, 0.0), (0.5, 1.0)])
def test_generalised_advantages_are_the_papers_sum(discount: float, smoothing: float) -> None:
    """A_t = Σ_l (γλ)^l δ_{t+l} (arXiv 1506.02438, equation 16), over the tokens that the policy wrote."""
    for seed in range(5):
        rewards, values, mask = random_row(seed)
        places = [place for place, one in enumerate(mask) if one]
        reward, value = np.array(rewards)[places], np.array(values)[places]
        errors = reward + discount * np.append(value[1:], 0.0) - value
        count = len(errors)
        wanted = [
            sum((discount * smoothing) ** ahead * errors[t + ahead] for ahead in range(count - t)) for t in range(count)
        ]
        advantages, returns = generalised_advantages(rewards, values, mask, discount, smoothing)
        assert np.array(advantages)[places] == pytest.approx(wanted, abs=1e-12)
        assert np.array(returns)[places] == pytest.approx(wanted + value, abs=1e-12)
        assert all(advantages[place] == returns[place] == 0.0 for place, one in enumerate(mask) if not one)
        if smoothing == 1.0:  # then V telescopes out of the return
            assert returns == pytest.approx(discounted(rewards, mask, discount), abs=1e-12)


def test_returns_cross_a_tools_result() -> None:
    rewards, _, mask = random_row(1)
    places = [place for place, one in enumerate(mask) if one]
    wanted = [sum(0.9**k * rewards[q] for k, q in enumerate(places[index:])) for index in range(len(places))]
    assert [discounted(rewards, mask, 0.9)[place] for place in places] == pytest.approx(wanted, abs=1e-12)


def test_whitening_is_over_all_sampled_tokens() -> None:
    rows, masks = zip(*[(random_row(seed)[0], random_row(seed)[2]) for seed in range(4)], strict=True)
    chosen = np.concatenate([np.array(row)[np.array(mask) > 0] for row, mask in zip(rows, masks, strict=True)])
    wanted = (chosen - chosen.mean()) / np.sqrt(chosen.var(ddof=1) + 1e-8)
    made = whiten(rows, masks)
    found = np.concatenate([np.array(row)[np.array(mask) > 0] for row, mask in zip(made, masks, strict=True)])
    assert found == pytest.approx(wanted, abs=1e-12)
    assert whiten([[0.1, 0.1], [0.1]], [[1, 1], [1]]) == [[0.0, 0.0], [0.0]]


def test_leave_one_out_by_hand() -> None:
    assert Rloo().answer_advantages([1.0, 0.0, 0.0, None], 4) == [1.0, -0.5, -0.5, 0.0]
    assert Rloo().answer_advantages([0.1, 0.1, 0.1, 0.7], 3) == [0.0, 0.0, 0.0, 0.7]  # a group of one keeps its reward


def samples() -> Samples:
    """Two tasks with two answers each; the reference finds every token less likely by 0.2."""
    made: list[Episode] = []
    for length, reward in ((1, 1.0), (3, 0.0), (2, 0.0), (2, 1.0)):
        each = episode([("prompt", [5, 6]), ("assistant", [7] * length)], reward)
        made.append(with_logprobs(each, [0.0, 0.0] + [-1.0] * length))
    return Samples(
        made,
        2,
        frozen_logprobs=lambda: [[0.0, 0.0] + [-1.2] * (each.length - 2) for each in made],
        old_logprobs=lambda: [each.logprobs() for each in made],
        values=lambda: [[0.5] * each.length for each in made],
        limit=10,
    )


def by_token(rows: list[list[float]]) -> list[float]:
    return [value for row in rows for value in row[2:]]


def test_reinforce_pp_by_hand() -> None:
    """The divergence of the tokens still to come is subtracted from each token's return, then all are normalised."""
    penalty = 0.5 * 0.2
    plain = np.array(
        [1 - penalty, *(-penalty * n for n in (3, 2, 1)), -2 * penalty, -penalty, 1 - 2 * penalty, 1 - penalty]
    )
    rows, metrics = ReinforcePp(reference_weight=0.5).advantages(samples())
    assert by_token(rows) == pytest.approx((plain - plain.mean()) / np.sqrt(plain.var(ddof=1) + 1e-8), abs=1e-12)
    assert metrics["reference_divergence"] == pytest.approx(0.2)
    rows, _ = ReinforcePp(baseline=True, reference_weight=0).advantages(samples())
    centred = np.array([0.5, -0.5, -0.5, -0.5, -0.5, -0.5, 0.5, 0.5])
    assert by_token(rows) == pytest.approx((centred - centred.mean()) / np.sqrt(centred.var(ddof=1) + 1e-8))


def test_ppo_takes_returns_before_it_whitens() -> None:
    streams, _ = Ppo().streams(samples())
    earned = [1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0, 1.0]
    assert by_token(streams["return"]) == pytest.approx(earned)
    raw = np.array(earned) - 0.5
    assert by_token(streams["advantage"]) == pytest.approx((raw - raw.mean()) / np.sqrt(raw.var(ddof=1) + 1e-8))
    assert by_token(Ppo(whiten=False).streams(samples())[0]["advantage"]) == pytest.approx(raw.tolist())
