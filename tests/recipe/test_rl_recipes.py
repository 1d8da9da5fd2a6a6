"""The recipes of published RL: their numbers against the sources', their plans, and the miniatures to their ends.

The facts are copied from the scripts and reports that the recipes name, not from the recipes.
"""

from __future__ import annotations

from operator import attrgetter
from pathlib import Path
from typing import Any

import pytest
import torch

import ingot
from ingot.evals.config import VerdictConfig
from ingot.planner.cost import stage_models
from ingot.planner.plan import make_plan
from ingot.post.rl.config import RlConfig
from ingot.recipe.flow import run_recipe
from ingot.recipe.load import load_recipe
from ingot.recipe.recipe import Recipe
from ingot.train.losses.terms import Scored
from tests.slow import first_fast

ROOT = Path(__file__).parents[2] / "recipes" / "rl"
FULL = sorted(path.stem for path in ROOT.glob("*.yaml") if "mini" not in path.stem)

FACTS: dict[str, dict[str, Any]] = {
    "r1-zero": {
        **{"steps": 10_400, "optimizer.lr": 3e-6, "prompts_per_step": 32, "group": 16, "mini_batches": 8192 // 512},
        **{"epochs": 1, "temperature": 1.0, "max_new_tokens": 32_768, "longer_from": {8200: 65_536}},
        **{"algorithm.reference_weight": 1e-3, "algorithm.reference_every": 400, "algorithm.reference_in": "loss"},
        **{"algorithm.algorithm": "grpo", "algorithm.divide_by_std": True, "algorithm.aggregation": "sequence"},
    },
    "olmo3-7b-rl-zero": {
        **{"steps": 512_000 // 256, "optimizer.lr": 1e-6, "prompts_per_step": 32, "group": 8, "mini_batches": 1},
        **{"max_new_tokens": 16_384, "sequence_length": 2048 + 16_384, "asynchronous.staleness": 4},
        **{"algorithm.reference_weight": 0},  # its clip, 0.2 and 0.272, never acts: one update on a batch
        **{"algorithm.importance.mode": "truncate", "algorithm.importance.high": 2, "algorithm.divide_by_std": False},
        **{"algorithm.mask_truncated": False, "schedule.kind": "constant"},
    },
    "dapo-32b": {
        **{"optimizer.lr": 1e-6, "optimizer.weight_decay": 0.1, "optimizer.clip": 1, "schedule.warmup": 10},
        **{"prompts_per_step": 32, "mini_batches": 512 // 32, "group": 16, "temperature": 1},
        **{"max_new_tokens": 20_480, "sequence_length": 2048 + 20_480, "refill.rounds": 10, "refill.ask": "batch"},
        **{"algorithm.clip_low": 0.2, "algorithm.clip_high": 0.28, "algorithm.overlong.buffer": 4096},
        **{
            "algorithm.overlong.factor": 1 / 2
        },  # its rewards are 1 and -1: a penalty of 1 is half of what they differ by
        **{"algorithm.reference_weight": 0, "algorithm.divide_by_std": True, "algorithm.aggregation": "token"},
    },
    "intellect-3": {
        **{"optimizer.kind": "muon", "optimizer.lr": 1e-6, "prompts_per_step": 256, "group": 16, "mini_batches": 1},
        **{"sequence_length": 65_536, "asynchronous.staleness": 8, "steps": 600, "algorithm.divide_by_std": False},
        **{"algorithm.importance.mode": "mask", "algorithm.importance.low": 0.5, "algorithm.importance.high": 5},
        **{"algorithm.importance.of": "current", "algorithm.reference_weight": 0},
    },
    "kimi-k2-rl": {  # the report has no numbers
        **{"optimizer.kind": "muon", "algorithm.ratio": "product", "algorithm.divide_by_std": False},
    },
    "glm-5-rl": {
        **{"prompts_per_step": 32, "group": 32, "mini_batches": 1, "epochs": 1, "asynchronous": None},
        **{"algorithm.importance.mode": "mask", "algorithm.importance.low": 1 / 2, "algorithm.importance.high": 2},
        **{"algorithm.importance.of": "old", "algorithm.reference_weight": 0},
        **{"algorithm.clip_low": 0.2, "algorithm.clip_high": 0.28},
    },
}
AFTER_SFT = ("intellect-3", "kimi-k2-rl", "glm-5-rl")
KEPT = {  # options of the full-size recipe that its miniature has too
    "r1-zero": ["group", "mini_batches", "temperature", "schedule", "algorithm.reference_weight"],
    "olmo3-7b-rl-zero": ["algorithm", "group", "mini_batches", "asynchronous.staleness", "schedule"],
    "dapo-32b": ["group", "mini_batches", "refill", "algorithm.clip_high", "algorithm.overlong.factor", "schedule"],
    "intellect-3": [
        "algorithm",
        "group",
        "refill",
        "asynchronous.staleness",
        "optimizer.kind",
        "optimizer.weight_decay",
    ],
    "kimi-k2-rl": ["group", "mini_batches", "temperature", "temperature_end", "algorithm.tau", "optimizer.kind"],
    "glm-5-rl": ["algorithm", "group", "mini_batches", "optimizer.betas", "optimizer.weight_decay"],
}
BASE = ["curate", "tokenizer", "tokenize", "pretrain"]


def rl_of(recipe: Recipe) -> RlConfig:
    config = recipe.stage("rl").config
    assert isinstance(config, RlConfig)
    return config


def full(name: str) -> Recipe:
    return load_recipe(ROOT / f"{name}.yaml", absent=True)


def test_every_recipe_has_its_facts_and_a_miniature() -> None:
    minis = {path.stem.removesuffix("-mini") for path in ROOT.glob("*-mini.yaml")}
    assert sorted(FACTS) == FULL == sorted(KEPT) == sorted(minis)


@pytest.mark.parametrize("name", FULL)
def test_what_the_sources_say(name: str) -> None:
    config = rl_of(full(name))
    assert {key: attrgetter(key)(config) for key in FACTS[name]} == FACTS[name]
    longest = max(config.max_new_tokens, *config.longer_from.values(), 0)
    assert longest < config.sequence_length  # the limit is the answer's, not what its row has left


@pytest.mark.parametrize("name", FULL)
def test_it_can_be_planned(name: str) -> None:
    """The preset stands for the checkpoint that is not there; the plan has the model, and what sampling holds beside it."""
    recipe = full(name)
    assert None not in stage_models(recipe).values()
    (planned,) = make_plan(recipe, Path("runs")).stages
    assert planned.cost.parameters and planned.cost.parameters > 7e9


@pytest.mark.parametrize("name", FULL)
def test_a_miniature_has_the_published_shape(name: str) -> None:
    """Its stages, the options that its header says are kept, and a claim that RL raised what its input had."""
    mini = load_recipe(ROOT / f"{name}-mini.yaml")
    names = [stage.name for stage in mini.stages if stage.kind not in ("eval", "verdict")]
    assert names == [*BASE, *(["sft"] if name in AFTER_SFT else []), "rl"]
    configs = rl_of(full(name)), rl_of(mini)
    for option in KEPT[name]:
        values = [attrgetter(option)(config) for config in configs]
        assert values[0] == values[1], option
    verdict = mini.stages[-1].config
    assert isinstance(verdict, VerdictConfig)
    (claim,) = verdict.claims
    assert (claim.stage, claim.above, claim.sigmas) == ("rl", names[-2], 2)
    make_plan(mini, Path("runs"))


def test_the_lengths_of_r1_zero_grow_in_both() -> None:
    """The later limit begins in the last third of the run and is twice the first; the reference is replaced before that."""
    for config in (rl_of(full("r1-zero")), rl_of(load_recipe(ROOT / "r1-zero-mini.yaml"))):
        ((begin, limit),) = config.longer_from.items()
        assert 0.6 < begin / config.steps < 0.8 and limit == 2 * config.max_new_tokens
        assert attrgetter("algorithm.reference_every")(config) < begin


def test_the_squared_error_of_kimi() -> None:
    """Loss and gradient are those of the report's formula, written out for answers, divided by 2τ."""
    config = rl_of(full("kimi-k2-rl"))
    (term,) = config.algorithm.terms(None, config)  # type: ignore[arg-type]  # the model is not looked at
    generator = torch.Generator().manual_seed(0)
    lengths, advantages = [3, 5, 2], [0.75, -0.25, -0.5]
    numbers = torch.repeat_interleave(torch.arange(1, 4), torch.tensor(lengths)).double()
    old = -torch.rand(10, generator=generator).double()
    policy = (old + 0.2 * torch.randn(10, generator=generator)).requires_grad_()
    by_token = torch.tensor(advantages).double()[numbers.long() - 1]
    streams = {"response_mask": torch.ones(10), "sequence": numbers, "advantage": by_token}
    streams |= {"episode_tokens": torch.tensor(lengths)[numbers.long() - 1], "old_logprob": old, "sampled_logprob": old}
    loss = term.numerator(Scored(policy, streams))[0] / term.denominator(streams)
    tau = 0.1
    answers = zip(advantages, policy.split(lengths), old.split(lengths), strict=True)
    expected = sum(
        (advantage - tau * (new.sum() - before.sum())) ** 2 / (2 * tau) / 3 for advantage, new, before in answers
    )
    assert isinstance(expected, torch.Tensor)
    torch.testing.assert_close(loss, expected)
    gradients = [torch.autograd.grad(one, policy)[0] for one in (loss, expected)]
    torch.testing.assert_close(*gradients)


SMALL: dict[str, object] = {"curate.max_bytes": 100_000, "pretrain.steps": 2, "pretrain.batch_tokens": 512}


@pytest.mark.parametrize("name", first_fast(["kimi-k2-rl", "r1-zero"]))
def test_one_batch_of_a_miniature(name: str, tmp_path: Path) -> None:
    """Without a way around its files: the task and the algorithm beside the recipes are found and run."""
    few: dict[str, object] = {"rl.steps": 2, "rl.mini_batches": 1, "rl.prompts_per_step": 2}
    few |= {"sft.steps": 2, "sft.task_conversations": 32} if name in AFTER_SFT else {"rl.longer_from": {1: 2}}
    recipe = load_recipe(ROOT / f"{name}-mini.yaml", {**SMALL, **few})
    stages = [stage.name for stage in recipe.stages if stage.kind not in ("eval", "verdict")]
    result = run_recipe(recipe, tmp_path, only=stages)
    trained = next(stage for stage in result.stages if stage.name == "rl")
    assert trained.status == "done" and (trained.folder / "checkpoint").exists()


@pytest.mark.slow
@pytest.mark.parametrize("name", FULL)
def test_the_miniature_runs(name: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    """To its verdict, which raises where a claim does not hold. All share one folder, and so one pre-training."""
    runs = tmp_path_factory.getbasetemp() / "rl-minis"
    result = ingot.run(ROOT / f"{name}-mini.yaml", runs=runs, set={"name": "minis"}, report=False)
    assert result.stages[-1].name == "verdict" and result.stages[-1].summary["held"] == 1
