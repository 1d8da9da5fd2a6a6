"""Options of an `rl` stage that would do nothing, or harm, beside each other are refused when the recipe is read."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from ingot.post.algorithm import RL
from ingot.post.algorithms.dapo import Dapo
from ingot.post.rl.checks.ratio_one import describe_ratio
from ingot.post.rl.config import RlConfig
from ingot.post.rl.objective import PolicyOptimization
from ingot.post.rl.sampling_config import DynamicSamplingConfig
from ingot.post.rl.stage import Rl
from ingot.recipe.problems import Problems
from ingot.recipe.tree import to_node
from ingot.recipe.validate import validate
from ingot.tokens.tokenizer import Tokenizer
from ingot.workspace.errors import RecipeError
from ingot.workspace.stage import StageFolder
from tests.post.making import checkpoint_of, tiny_model

USUAL: dict[str, Any] = {"steps": 1, "sequence_length": 256, "tasks": {"weights": {"no_think": 1}}}


def said(options: dict[str, Any]) -> str:
    """The problem of a stage with these options as a recipe's reader has it, or nothing."""
    problems = Problems()
    validate(RlConfig, to_node(USUAL | options, "recipe.yaml:3"), "rl", problems)
    return "\n".join(map(str, problems.found))


def algorithm(name: str, **options: Any) -> dict[str, Any]:
    return {"algorithm": {"algorithm": name} | options}


K1_LOSS = {"reference_weight": 0.1, "reference_estimator": "k1"}
REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "an answer beyond its row": ({"max_new_tokens": 257}, "max_new_tokens: an answer of 257 tokens and its prompt"),
    "a penalty at its end": (algorithm("dapo") | {"max_new_tokens": 256}, "an answer of 256 tokens and its prompt"),
    "a constant that no answer has": (
        algorithm("dr_grpo") | {"max_new_tokens": 256},
        "max_new_tokens: an answer of 256",
    ),
    "a later limit beyond it": (
        {"longer_from": {5: 300}},
        "longer_from: 300 tokens and a prompt do not fit into a row",
    ),
    "a negative step": ({"longer_from": {-5: 10}}, r"longer_from: {-5: 10} is no step with a limit"),
    "a limit of 0": ({"longer_from": {5: 0}}, r"longer_from: {5: 0} is no step with a limit"),
    "nothing to replace": (algorithm("grpo", reference_every=4), "reference_every: there is no reference to replace"),
    "an estimate that is not used": (
        algorithm("rloo", reference_estimator="k3"),
        "in the reward is always k1, k3 would",
    ),
    "k1 as a loss": (algorithm("grpo", **K1_LOSS), "in the loss the expected gradient of k1 is 0"),
    "a weight that is 1": (algorithm("grpo", old_policy="sampler", importance={}), "its weight over μ is always 1"),
    "a length without use": (algorithm("grpo", aggregation_length=9), "aggregation: token has no constant length"),
    "a budget for no task": (
        algorithm("grpo", token_budget={"tokens": {"gsm8k": 9}}),
        "no task is of the kind gsm8k: the stage has no_think",
    ),
    "a penalty that is masked": (
        algorithm("grpo", token_budget={"tokens": {"no_think": 9}}, mask_truncated=True),
        "mask_truncated leaves out what was cut",
    ),
    "weights the wrong way round": (algorithm("grpo", importance={"low": 3}), "low: 3 is not below high: 2"),
    "equal weights": (algorithm("cispo", weight_low=5), "weight_low: 5 is not below weight_high: 5"),
    "a penalty for all": (algorithm("dapo", overlong={"buffer": 64}), "64 tokens before a limit of 64 are the whole"),
    "no length reward": (algorithm("grpo", length_reward={}), "both weights are 0"),
    "a group of one": (algorithm("grpo") | {"group": 1}, "group: grpo compares the answers to one task"),
    "another": (algorithm("rloo") | {"group": 1}, "group: rloo compares the answers to one task, of which it needs 2"),
    "its baseline": (algorithm("reinforce_pp", baseline=True) | {"group": 1}, "group: reinforce_pp compares"),
    "one that never differs": (
        algorithm("ppo") | {"group": 1, "dynamic_sampling": {}},
        "one answer to a task never differs from the others",
    ),
    "a mask of nothing": (algorithm("grpo", sequence_mask_of="old"), "sequence_mask_of: there is no mask"),
    "a mask of one update": (
        algorithm("grpo", sequence_mask=0.5, sequence_mask_of="old"),
        "with one update on a batch π_old is π",
    ),
    "a share of nothing": (
        algorithm("grpo", truncated_factor=0.5, mask_truncated=True),
        "truncated_factor: mask_truncated leaves out what was cut",
    ),
    "float8 over devices": (
        {"sampling_precision": "float8", "asynchronous": {"tensor": 2}},
        "sampling_precision: float8 layers are not divided over devices",
    ),
    "a clip of 1": (algorithm("grpo", clip_high=0.3), "algorithm.clip_high: with one update on a batch the ratio is"),
    "both sides": (
        algorithm("ppo", clip_low=0.1, dual_clip=3),
        "algorithm.clip_low, algorithm.dual_clip: with one update",
    ),
    "a weight of 1": (
        algorithm("cispo", weight_high=2) | {"mini_batches": 1},
        "algorithm.weight_high: with one update",
    ),
    "a gate at 1": (
        algorithm("sapo", gate_positive=2) | {"mini_batches": 1},
        "algorithm.gate_positive: with one update",
    ),
    "one when asynchronous": (
        algorithm("gspo", clip_low=1e-3) | {"mini_batches": 1, "asynchronous": {}},
        "algorithm.clip_low: with one update on a batch",
    ),
    "a bound on log 1": (algorithm("grpo", log_ratio_limit=5), "algorithm.log_ratio_limit: with one update on a batch"),
    "a deviation that divides nothing": (algorithm("grpo", std="batch"), "algorithm.std: divide_by_std is false"),
    "its epsilon": (algorithm("dr_grpo", std_epsilon=1e-6), "algorithm.std_epsilon: divide_by_std is false"),
    "the place of no reference": (
        algorithm("grpo", reference_in="reward"),
        "algorithm.reference_in: there is no reference (reference_weight: 0)",
    ),
    "its estimate": (
        algorithm("grpo", reference_estimator="k2"),
        "algorithm.reference_estimator: there is no reference",
    ),
    "how many are asked at once": (
        {"asynchronous": {}, "dynamic_sampling": {"ask": "missing"}},
        "dynamic_sampling.ask: asynchronous samplers always ask for what is missing",
    ),
    "a kind that is not drawn": (
        {"tasks": {"weights": {"no_think": 1}, "strings": {"letters_max": 9}}},
        "strings: no task of this kind is drawn, only no_think: give it a weight",
    ),
    "the best of what is not measured": (
        {"checkpoints": {"keep_best": True}},
        "checkpoints.keep_best: only pre-training validates",
    ),
    "one that is never longer": (
        algorithm("ppo", length_reward={"direct": 1}) | {"group": 1},
        "length_reward: it compares answers to one task",
    ),
}


def test_what_would_do_nothing_is_refused() -> None:
    """With the place in the file, the option, and what to write instead."""
    found = {name: (expected, said(options)) for name, (options, expected) in REFUSED.items()}
    assert {
        name: each for name, each in found.items() if each[0] not in each[1] or "recipe.yaml:3" not in each[1]
    } == {}


ACCEPTED: dict[str, dict[str, Any]] = {
    **{name: algorithm(name) for name in RL.names()},
    "the longest answer": algorithm("dapo") | {"max_new_tokens": 255, "longer_from": {0: 100, 9: 255}},
    "no limit but the row's": {"max_new_tokens": 256},
    "a reference that is replaced": algorithm("grpo", reference_weight=0.1, reference_every=4),
    "k1 in the reward": algorithm("grpo", **K1_LOSS, reference_in="reward"),
    "the weight of this update": algorithm("grpo", old_policy="sampler", importance={"of": "current"}),
    "a constant length": algorithm("grpo", aggregation="constant", aggregation_length=9),
    "a budget": algorithm("grpo", token_budget={"tokens": {"no_think": 9}}),
    "a bound on one side": algorithm("grpo", importance={"low": 3, "high": None}),
    "a mask over updates": algorithm("grpo", sequence_mask=0.5, sequence_mask_of="old") | {"mini_batches": 2},
    "float8": {"sampling_precision": "float8", "asynchronous": {"samplers": 2}},
    "a clip between updates": algorithm("grpo", clip_high=0.3, log_ratio_limit=5) | {"epochs": 2},
    "a clip over the sampler": algorithm("grpo", clip_high=0.3, old_policy="sampler"),
    "a limit of weights": algorithm("grpo", log_ratio_limit=5, importance={}),
    "a gate": algorithm("sapo", gate_positive=2),
    "the mask of dppo": algorithm("dppo", probability_bound=0.1),
    "a deviation": algorithm("gspo", std="batch", std_epsilon=1e-6),
    "a critic": algorithm("ppo") | {"group": 1},
    "returns": algorithm("reinforce_pp") | {"group": 1},
}


def test_what_is_right_is_not() -> None:
    assert {name: words for name, options in ACCEPTED.items() if (words := said(options))} == {}


def test_all_conflicts_are_said_at_once() -> None:
    problem = said(algorithm("grpo", reference_every=4, aggregation_length=9) | {"max_new_tokens": 300})
    assert all(each in problem for each in ("max_new_tokens:", "reference_every:", "aggregation_length:"))


def test_dynamic_sampling_can_be_turned_off() -> None:
    """As `importance` can: what is left out is the algorithm's, null is none. A config that was written out reads the same."""
    made = {name: RlConfig.model_validate(USUAL | more) for name, more in DYNAMIC.items()}
    assert made["left out"].refill == DynamicSamplingConfig()
    assert made["off"].refill is None and made["grpo"].refill is None
    for each in made.values():
        assert RlConfig.model_validate(each.model_dump()) == each


DYNAMIC: dict[str, dict[str, Any]] = {
    "left out": algorithm("dapo"),
    "off": algorithm("dapo") | {"dynamic_sampling": None},
    "grpo": algorithm("grpo"),
}


def test_an_algorithm_that_acts_through_the_ratio_has_several_updates() -> None:
    """With one `cispo` would be `dapo`, and `sapo` `gspo`. What the stage says itself stays; the start line says which it is."""
    made = {}
    for name in RL.names():
        config = RlConfig.model_validate(USUAL | algorithm(name))
        made[name] = config.mini_batches
        line = describe_ratio(config)
        assert (
            line is None if name == "dppo" else line is not None and ("never act" in line) == (config.mini_batches == 1)
        )
    assert {name for name, count in made.items() if count > 1} == {"dapo", "gspo", "cispo", "sapo"}
    assert set(made.values()) == {1, 4}
    for more, updates in (({"mini_batches": 1}, 1), ({"epochs": 2}, 2), ({"asynchronous": {}}, 2)):
        config = RlConfig.model_validate(USUAL | algorithm("sapo") | more)
        assert config.updates_per_batch == updates
        assert RlConfig.model_validate(config.model_dump()) == config


def test_no_weight_is_added_where_the_ratio_is_over_the_sampler() -> None:
    """Asynchronous samples are weighted π_old/μ by default, which is 1 where μ stands for π_old."""
    found = {}
    for old in ("trainer", "sampler"):
        config = RlConfig.model_validate(USUAL | algorithm("grpo", old_policy=old) | {"asynchronous": {}})
        assert isinstance(config.algorithm, PolicyOptimization)
        found[old] = config.algorithm.importance is not None
    assert found == {"trainer": True, "sampler": False}


def test_dapo_in_python_is_as_in_a_recipe() -> None:
    assert RlConfig.model_validate(USUAL | {"algorithm": Dapo()}).refill == DynamicSamplingConfig()


def test_a_reward_of_length_for_a_mode_without_tasks_is_refused(
    tokenizer: Tokenizer, tmp_path: Path, make_folder: Callable[[str], StageFolder]
) -> None:
    """When the stage begins, before anything is sampled: what mode a task is answered in only its kind knows."""
    checkpoint = checkpoint_of(tiny_model(tokenizer), tmp_path / "base")
    for weights, wanted in (
        ({"thinking": 0.1, "direct": 0.3}, "length_reward.thinking: no task"),
        ({"direct": 0.3}, ""),
    ):
        config = RlConfig.model_validate(USUAL | algorithm("grpo", length_reward=weights) | {"device": "cpu"})
        stage = Rl(config, {"checkpoint": checkpoint}, make_folder("rl"))
        with pytest.raises(RecipeError, match=wanted) if wanted else nullcontext():
            stage.check_lengths()
