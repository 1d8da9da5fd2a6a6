"""The recipes of published post-training: their numbers against the sources', their plans, and the miniatures to their ends.

The facts are copied from the scripts and reports that the recipes name, not from the recipes.
"""

from __future__ import annotations

from operator import attrgetter
from pathlib import Path
from typing import NamedTuple

import pytest
import yaml

import ingot
from ingot.evals.config import VerdictConfig
from ingot.planner.cost import stage_models
from ingot.planner.plan import make_plan
from ingot.post.algorithms.apo_zero import ApoZero
from ingot.post.algorithms.dpo import Dpo
from ingot.post.distill.config import DistillConfig
from ingot.post.prefer_config import PreferConfig
from ingot.post.rl.config import RlConfig
from ingot.post.sft_config import SftConfig
from ingot.recipe.flow import run_recipe
from ingot.recipe.load import load_recipe
from ingot.train.config import TrainingConfig
from tests.making.rows import write_rows
from tests.slow import first_fast

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


RL_FACTS: dict[str, dict[str, object]] = {  # 7b_think_rl.sh, 7b_instruct_rl.sh; the clip of the first never acts
    "olmo3-7b-think": {
        **{"group": 8, "mini_batches": 1, "epochs": 1, "max_new_tokens": 32768, "asynchronous.staleness": 8},
        **{"algorithm.importance.high": 2, "algorithm.importance.mode": "truncate", "algorithm.divide_by_std": False},
        **{"algorithm.reference_weight": 0, "algorithm.mask_truncated": False, "temperature": 1, "refill": None},
    },
    "olmo3-7b-instruct": {
        **{"group": 8, "mini_batches": 4, "epochs": 1, "max_new_tokens": 8192, "asynchronous.staleness": 8 * 4},
        **{"algorithm.clip_low": 0.2, "algorithm.clip_high": 0.272, "algorithm.divide_by_std": False},
        **{"algorithm.reference_weight": 0, "algorithm.mask_truncated": False, "temperature": 1},
        **{
            "refill.ask": "batch",
            "exclude_solved": 0.875,
        },  # active sampling; the samplers never wait for a whole batch
    },
    "tulu3-8b": {"group": 16, "max_new_tokens": 2048, "algorithm.reference_weight": 0},
}


@pytest.mark.parametrize("name", RL_FACTS)
def test_what_the_sources_say_of_rl(name: str) -> None:
    config = load_recipe(ROOT / f"{name}.yaml", absent=True).stage("rl").config
    assert {key: attrgetter(key)(config) for key in RL_FACTS[name]} == RL_FACTS[name]


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


STAGES = {  # in their order, of what is published
    "olmo3-7b-think": ["sft", "prefer", "rl"],
    "olmo3-7b-instruct": ["think", "sft", "prefer", "rl"],
    "smollm3-3b": ["reason", "sft", "prefer", "soup"],
    "tulu3-8b": ["sft", "prefer", "rl"],
    "r1-distill-7b": ["sft"],
    "hermes-4-14b": ["sft", "cut", "stop"],
    "glm-5-distill": ["reasoning", "chat", "distill"],
}
KEPT = {  # options of the full-size recipe that its miniature has too: stage and names, of nested ones with dots
    "olmo3-7b-think": {
        "sft": ["schedule"],
        "prefer": ["algorithm", "schedule"],
        "rl": ["algorithm", "group", "schedule"],
    },
    "olmo3-7b-instruct": {
        "sft": ["schedule"],
        "prefer": ["algorithm", "schedule"],
        "rl": ["algorithm", "group", "mini_batches"],
    },
    "smollm3-3b": {
        "reason": ["learn", "schedule", "optimizer.clip"],
        "sft": ["schedule", "optimizer.clip"],
        "prefer": ["algorithm", "schedule", "optimizer.clip"],
        "soup": ["method", "weights"],
    },
    "tulu3-8b": {"sft": ["schedule"], "prefer": ["algorithm", "schedule"], "rl": ["algorithm", "group", "schedule"]},
    "r1-distill-7b": {"sft": ["schedule", "optimizer.clip"]},
    "hermes-4-14b": {"sft": ["schedule.kind", "schedule.final"], "stop": ["learn", "schedule"]},
    "glm-5-distill": {"distill": ["algorithm", "group", "schedule.kind"]},
}
BASE = ["curate", "tokenizer", "tokenize", "pretrain"]


def test_every_recipe_has_a_miniature() -> None:
    minis = {path.stem.removesuffix("-mini") for path in ROOT.glob("*-mini.yaml")}
    assert sorted(minis) == FULL == sorted(STAGES) == sorted(KEPT)


@pytest.mark.parametrize("name", FULL)
def test_a_miniature_has_the_published_shape(name: str) -> None:
    """The stages in their order, the options that its header says are kept, and a claim about every stage that trains."""
    full, mini = load_recipe(ROOT / f"{name}.yaml", absent=True), load_recipe(ROOT / f"{name}-mini.yaml")
    names = [stage.name for stage in mini.stages if stage.kind not in ("eval", "verdict")]
    assert names == [*BASE, *STAGES[name]]
    for stage, options in KEPT[name].items():
        for option in options:
            values = [attrgetter(option)(recipe.stage(stage).config) for recipe in (full, mini)]
            assert values[0] == values[1], f"{stage}.{option}"
    verdict = mini.stages[-1].config
    assert isinstance(verdict, VerdictConfig)
    trained = [stage.name for stage in mini.stages[len(BASE) :] if isinstance(stage.config, TrainingConfig)]
    last = trained[-1] if "soup" not in names else "soup"
    assert last in {claim.stage for claim in verdict.claims}
    assert all(claim.reference_stage is not None or claim.sigmas for claim in verdict.claims)
    make_plan(mini, Path("runs"))


SMALL: dict[str, object] = {"curate.max_bytes": 100_000, "pretrain.steps": 2, "pretrain.batch_tokens": 512}
PAIR = {
    "prompt": [{"role": "user", "content": "Last letter: abc"}],
    "chosen": [{"role": "assistant", "content": "c", "thinking": "abc"}],
    "rejected": [{"role": "assistant", "content": "b", "thinking": "abc"}],
}
TEXT = {"messages": [*PAIR["prompt"], *PAIR["chosen"]]}


OTHERS = [name for name in FULL if name not in ("glm-5-distill", "smollm3-3b", "tulu3-8b")]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run folder in which all miniatures find the same small beginning; pairs and conversations beside it."""
    runs = tmp_path_factory.mktemp("runs")
    write_rows(runs / "pairs.jsonl", [PAIR] * 4)
    write_rows(runs / "texts.jsonl", [TEXT] * 4)
    run_recipe(load_recipe(ROOT / "mini-base.yaml", {"name": "minis", **SMALL}), runs)
    return runs


def of_given_pairs(name: str, runs: Path) -> Path:
    """The miniature, without what `prefer` samples with where it has pairs of its own: that cannot be taken away by a change."""
    path = ROOT / f"{name}-mini.yaml"
    tree = yaml.safe_load(path.read_text(encoding="utf-8"))
    sampled = tree["stages"].get("prefer", {})
    if "tasks" not in sampled:
        return path
    for option in ("tasks", "prompts", "samples", "max_new_tokens"):
        sampled.pop(option, None)
    tree["extends"] = str(ROOT / tree["extends"])
    copy = runs / path.name
    copy.write_text(yaml.safe_dump(tree, sort_keys=False), encoding="utf-8")
    return copy


def few_steps(name: str, runs: Path) -> dict[str, object]:
    """Two steps of everything; files where a model that has learnt nothing has neither right answers nor thoughts of its own."""
    changes: dict[str, object] = {"name": "minis", **SMALL}
    for stage in load_recipe(ROOT / f"{name}-mini.yaml").stages[len(BASE) :]:
        few: dict[str, object] = {}
        match stage.config:
            case SftConfig(tasks=None):
                few = {"steps": 2, "files": [str(runs / "texts.jsonl")], "inputs.conversations": None}
            case SftConfig():
                few = {"steps": 2, "task_conversations": 32, "batch_conversations": 4}
            case PreferConfig():
                few = {"steps": 2, "pairs": {"files": [str(runs / "pairs.jsonl")]}, "batch_pairs": 2}
            case RlConfig() | DistillConfig():
                few = {"steps": 2, "prompts_per_step": 2}
        changes |= {f"{stage.name}.{key}": value for key, value in few.items()}
    return changes


@pytest.mark.parametrize("name", first_fast(["glm-5-distill", "tulu3-8b", "smollm3-3b", *OTHERS], 2))
def test_the_stages_of_a_miniature_run(name: str, runs: Path) -> None:
    """All that train or merge, with two steps each: the options fit together and the stages fit each other."""
    wanted = [stage for stage in STAGES[name] if stage != "cut"]
    recipe = load_recipe(of_given_pairs(name, runs), few_steps(name, runs))
    result = run_recipe(recipe, runs, only=[*BASE, *wanted])
    assert [stage.name for stage in result.stages if stage.status in ("done", "reused")] == [*BASE, *wanted]
    assert all((stage.folder / "checkpoint").exists() for stage in result.stages if stage.name in wanted)


@pytest.mark.slow
@pytest.mark.parametrize("name", FULL)
def test_the_miniature_runs(name: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    """To its verdict, which raises where a claim does not hold. All share one folder, and so one pre-training."""
    runs = tmp_path_factory.getbasetemp() / "minis"
    result = ingot.run(ROOT / f"{name}-mini.yaml", runs=runs, set={"name": "minis"}, report=False)
    assert result.stages[-1].name == "verdict" and result.stages[-1].summary["held"] >= 1
