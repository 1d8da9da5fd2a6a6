"""The recipes of published post-training: their numbers against the sources', their plans, and a miniature to its end.

The facts are copied from the scripts and reports that the recipes name, not from the recipes.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import pytest

import ingot
from ingot.planner.cost import stage_models
from ingot.planner.plan import make_plan
from ingot.post.algorithms.apo_zero import ApoZero
from ingot.post.algorithms.dpo import Dpo
from ingot.post.prefer_config import PreferConfig
from ingot.post.sampling_config import RlConfig
from ingot.post.sft_config import SftConfig
from ingot.recipe.load import load_recipe
from ingot.train.config import TrainingConfig

ROOT = Path(__file__).parents[2] / "recipes" / "post"
FULL = sorted(path.stem for path in ROOT.glob("*.yaml") if "mini" not in path.stem)


class Fact(NamedTuple):
    """What a source says about a stage: the peak rate, the tokens of a row, and how much a step has of what it counts."""

    rate: float
    length: int
    batch: int
    passes: float | None = None  # over so many
    of: int | None = None


FACTS: dict[str, dict[str, Fact]] = {
    "olmo3-7b-think": {
        "sft": Fact(5e-5, 32768, 2**20),
        "prefer": Fact(8e-8, 16384, 128, 1, 150_000),
        "rl": Fact(1e-6, 2048 + 32768, 64),
    },
    "olmo3-7b-instruct": {
        "sft": Fact(8e-5, 32768, 2**20),
        "prefer": Fact(1e-6, 16384, 128, 1, 2 * (125_000 + 1_250 + 938 + 312 + 2_500)),
        "rl": Fact(1e-6, 2048 + 8192, 64),
    },
    "smollm3-3b": {
        "reason": Fact(2e-5, 32768, 128 * 32768, 4, 35_000_000_000),
        "sft": Fact(2e-5, 65536, 128 * 65536, 4, 1_800_000_000),
        "prefer": Fact(1e-6, 24576, 32),
    },
    "tulu3-8b": {
        "sft": Fact(5e-6, 4096, 128, 2, 939_344),
        "prefer": Fact(5e-7, 2048, 128, 1, 271_409),
        "rl": Fact(5e-7, 4096, 48),
    },
    "r1-distill-7b": {"sft": Fact(4e-5, 32768, 128, 5, 350_000)},
    "hermes-4-14b": {"sft": Fact(5e-5, 16384, 384 * 16384)},  # its rate is marked as a guess
    "glm-5-distill": {},
}


def test_every_recipe_has_its_facts() -> None:
    assert sorted(FACTS) == FULL


@pytest.mark.parametrize("name", FULL)
def test_what_the_sources_say(name: str) -> None:
    recipe = load_recipe(ROOT / f"{name}.yaml", absent=True)
    for stage, fact in FACTS[name].items():
        config = recipe.stage(stage).config
        assert isinstance(config, TrainingConfig)
        assert (config.optimizer.lr, config.sequence_length) == (fact.rate, fact.length)
        match config:
            case SftConfig():
                batch = config.batch_tokens or config.batch_conversations
            case PreferConfig():
                batch = config.batch_pairs
            case RlConfig():
                batch = config.prompts_per_step
        assert batch == fact.batch
        if fact.passes is not None and fact.of is not None:
            assert config.steps == pytest.approx(fact.passes * fact.of / fact.batch, abs=1)


@pytest.mark.parametrize("name", FULL)
def test_every_stage_can_be_planned(name: str) -> None:
    """The presets stand for checkpoints that are not there: every training stage has a model, and the plan its cost."""
    recipe = load_recipe(ROOT / f"{name}.yaml", absent=True)
    assert None not in stage_models(recipe).values()
    planned = make_plan(recipe, Path("runs"))
    assert all(each.cost.parameters for each in planned.stages if each.name != "soup")


def test_published_losses() -> None:
    smol, olmo = (load_recipe(ROOT / f"{name}.yaml", absent=True) for name in ("smollm3-3b", "olmo3-7b-think"))
    apo, dpo = smol.stage("prefer").config, olmo.stage("prefer").config
    assert isinstance(apo, PreferConfig) and isinstance(dpo, PreferConfig)
    assert isinstance(apo.algorithm, ApoZero) and apo.algorithm.beta == 0.05
    assert isinstance(dpo.algorithm, Dpo) and (dpo.algorithm.beta, dpo.algorithm.length_normalised) == (5, True)


@pytest.mark.slow
def test_the_miniature_runs(tmp_path: Path) -> None:
    result = ingot.run(ROOT / "olmo3-7b-think-mini.yaml", runs=tmp_path)
    assert [stage.name for stage in result.stages][-1] == "verdict"
