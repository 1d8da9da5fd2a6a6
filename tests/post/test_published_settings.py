"""Choosing a name gives the published settings: the defaults of every algorithm against the sources' numbers.

The numbers are copied from the papers, and where these have none from the code that METHODS names, not from the classes. The
plain `grpo` is not DeepSeekMath's on purpose: its row says whose each setting is.
"""

from __future__ import annotations

from typing import Any

import pytest

from ingot.post.algorithm import RL
from ingot.post.rl.config import RlConfig
from ingot.post.rl.objective import PolicyOptimization

NO_REFERENCE = {"reference_weight": 0.0}
BY_GROUP = {"divide_by_std": True, "std": "sample", "std_epsilon": 1e-4}  # TRL
PUBLISHED: dict[str, dict[str, Any]] = {
    # clip and mean DAPO's, no deviation as in Dr. GRPO
    "grpo": {"clip_low": 0.2, "clip_high": 0.28, "aggregation": "token", "divide_by_std": False} | NO_REFERENCE,
    # DeepSeekMath 2402.03300
    "grpo_paper": {
        **{"clip_low": 0.2, "clip_high": 0.2, "aggregation": "sequence", "ratio": "token", **BY_GROUP},
        **{"reference_weight": 0.04, "reference_estimator": "k3", "reference_in": "loss"},
    },
    # 2503.20783
    "dr_grpo": {
        **{"clip_low": 0.2, "clip_high": 0.2, "aggregation": "constant", "divide_by_std": False},
        **{"aggregation_length": None, **NO_REFERENCE},
    },
    # 2503.14476; its penalty of 1 stands beside rewards of 1 and −1: half of what a right answer earns more
    "dapo": {
        **{"clip_low": 0.2, "clip_high": 0.28, "aggregation": "token", "dynamic": True, **BY_GROUP, **NO_REFERENCE},
        **{"overlong.factor": 1 / 2, "overlong.buffer": None},
    },
    # 2507.18071
    "gspo": {"clip_low": 3e-4, "clip_high": 4e-4, "ratio": "mean", "aggregation": "sequence"} | BY_GROUP | NO_REFERENCE,
    # 2506.13585; TRL's upper bound, slime's canonical form without a lower one
    "cispo": {"weight_low": None, "weight_high": 5.0, "aggregation": "token"} | BY_GROUP | NO_REFERENCE,
    # 2511.20347
    "sapo": {"gate_positive": 1.0, "gate_negative": 1.05, "aggregation": "sequence"} | BY_GROUP | NO_REFERENCE,
    # 2402.14740; TRL
    "rloo": {
        **{"clip_low": 0.2, "clip_high": 0.2, "ratio": "product", "aggregation": "sequence"},
        **{"reference_weight": 0.05, "reference_in": "reward"},
    },
    # 2501.03262; OpenRLHF
    "reinforce_pp": {
        **{"clip_low": 0.2, "clip_high": 0.2, "aggregation": "token", "discount": 1.0, "baseline": False},
        **{"reference_weight": 0.01, "reference_in": "reward"},
    },
    # 1707.06347, whose clip has no reference beside it (verl: none either); values by verl's formula with SkyRL's bound
    "ppo": {
        **{"clip_low": 0.2, "clip_high": 0.2, "discount": 1.0, "smoothing": 1.0, "whiten": True, **NO_REFERENCE},
        **{"value_weight": 0.5, "value_clip": 0.2, "reference_in": "reward"},
    },
    # prime-rl's default loss
    "dppo": {
        **{"probability_bound": 0.2, "drift_weight": 1e-3, "old_policy": "sampler", "aggregation": "token"},
        **{"divide_by_std": False, **NO_REFERENCE},
    },
    # prime-rl's advantage
    "maxrl": {"clip_low": 0.2, "clip_high": 0.2, "aggregation": "token"} | NO_REFERENCE,
}
EVERYWHERE: dict[str, Any] = {  # what none of them has, and where verl's and SkyRL's ratios end
    **{"dual_clip": None, "importance": None, "sequence_mask": None, "mask_truncated": False, "log_ratio_limit": 20.0},
    **{"length_reward": None, "token_budget": None, "format_reward": 0.0, "reference_every": None},
}


def value_of(algorithm: Any, path: str) -> Any:
    for name in path.split("."):
        algorithm = getattr(algorithm, name)
    return algorithm


def test_every_algorithm_has_its_row() -> None:
    assert sorted(PUBLISHED) == RL.names()


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_name_alone_gives_the_published_settings(name: str) -> None:
    """As a recipe gives it: `algorithm: NAME`."""
    config = RlConfig.model_validate({"steps": 1, "sequence_length": 256, "algorithm": name})
    own = config.algorithm
    assert isinstance(own, PolicyOptimization)
    assert {path: value_of(own, path) for path in PUBLISHED[name]} == PUBLISHED[name]
    usual = {path: value for path, value in EVERYWHERE.items() if path in type(own).model_fields}
    assert {path: value_of(own, path) for path in usual} == usual
    assert (own.overlong is None) == (name != "dapo") and (config.refill is None) == (name != "dapo")
