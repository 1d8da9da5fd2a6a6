"""The published recipes: their numbers against the reports', and their miniatures end to end.

Rates are computed by the schedule at token counts of the whole run and compared with what the report says (or, for OLMo 3, with
the formulas of OLMo-core's schedulers written out here). The rotation that a recipe ends with is compared with the preset,
which was written from the released checkpoint's configuration.
"""

from __future__ import annotations

import itertools
import json
import math
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import ingot
from ingot.checkpoints.families.table import architecture
from ingot.model.config import ModelConfig
from ingot.model.count import count
from ingot.model.presets.preset import preset
from ingot.optim.config import MuonConfig
from ingot.optim.schedule import learning_rate_share
from ingot.planner.check_data import check_seeds
from ingot.planner.plan import make_plan
from ingot.recipe.flow import RunResult
from ingot.recipe.graph import SHARDS_INDEX
from ingot.recipe.load import load_recipe
from ingot.recipe.recipe import FromStage, Recipe
from ingot.tokens.shards import INDEX_FILE
from ingot.train.changes import changed_model
from ingot.train.pretrain_config import PretrainConfig
from ingot.workspace.errors import RecipeError
from tests.making.rows import read_rows

ROOT = Path(__file__).parents[2] / "recipes"
FULL = [*sorted(path.stem for path in ROOT.glob("*.yaml") if (ROOT / f"{path.stem}-mini.yaml").exists()), "olmo3-32b"]
MINIS = sorted(path.stem for path in ROOT.glob("*-mini.yaml"))
T, B = 10**12, 10**9


class Facts(NamedTuple):
    """What a report says. `rates` and `batches` by tokens of the whole run; `lengths` of rows, stage by stage."""

    tokens: float  # of the stages with the first row length
    rates: dict[float, float]
    batches: dict[float, int]
    lengths: tuple[int, ...]
    released: str | None = None  # the preset whose rotation the last stage must have


def cosine(peak: float, final: float, share: float) -> float:
    return final + (peak - final) * (1 + math.cos(math.pi * share)) / 2


def olmo_half_cosine(step: int, warmup: int = 1_192_092 // 2 + 1000, most: int = 1_668_930) -> float:
    """HalfCosWithWarmup of OLMo-core after its warmup, whose length continues the first schedule."""
    return cosine(3e-4, 3e-5, (step - warmup + most - warmup) / (2 * (most - warmup)))


SMOL3 = 2_359_296  # tokens of a batch
FACTS = {
    "smollm2-135m": Facts(
        2.097 * T, {1.67 * T: 3e-3, 1.8 * 2**20 * 10**6: 1.5e-3}, {0: 2**20}, (2048, 8192), "smollm2-135m"
    ),
    "smollm3-3b": Facts(
        11.136 * T,
        {
            9.9 * T: 2e-4,
            4_459_000 * SMOL3: 1e-4,
            4_704_800 * SMOL3: 15_200 / 522_000 * 2e-4,
            11.136 * T + 10_500 * SMOL3: 1e-5,
        },
        {0: SMOL3},
        (4096, 32768, 65536, 65536),
        "smollm3-3b",
    ),
    "olmo3-7b": Facts(
        5.93 * T + 100 * B,
        {
            1 * T: cosine(3e-4, 3e-5, (1e12 / 2**22 - 2000) / (1_192_092 - 2000)),
            2.504 * T: 1.65e-4,
            4 * T: olmo_half_cosine(int(4e12 / 2**22)),
            5.929 * T: olmo_half_cosine(1_413_500),
            5.93 * T + 50 * B: 1.0356e-4,
        },
        {0: 2**22, 5.93 * T + 10 * B: 2**21, 5.93 * T + 120 * B: 2**22},
        (8192, 8192, 8192, 65536),
        "olmo3-7b-extended",
    ),
    "olmo3-32b": Facts(
        5.503 * T + 100 * B,
        {0.1 * T: cosine(6e-4, 6e-5, 0.01), 5.503 * T + 50 * B: 1.0356e-4},
        {0: 2**23, 5.503 * T + 10 * B: 2**22, 5.503 * T + 120 * B: 2**23},
        (8192, 8192, 65536),
        "olmo3-32b-extended",
    ),
    "deepseek-v2": Facts(
        8.1 * T,
        {
            1 * T: 2.4e-4,
            4.7 * T: 2.4e-4,
            4.9 * T: 2.4e-4 * 0.316,
            7.2 * T: 2.4e-4 * 0.316,
            7.4 * T: 2.4e-4 * 0.316**2,
            8.11 * T: 2.4e-5,
        },
        {0: 2304 * 4096, 226 * B: 9216 * 4096, 8.11 * T: 576 * 32768},
        (4096, 32768),
        "deepseek-v2",
    ),
    "deepseek-v3": Facts(
        14.8 * T,
        {
            0.1 * T: 2.2e-4,
            9.99 * T: 2.2e-4,
            12.15 * T: 1.21e-4,
            14.31 * T: 2.2e-5,
            14.63 * T: 2.2e-5,
            14.64 * T: 7.3e-6,
            14.799 * T: 7.3e-6,
            14.9 * T: 7.3e-6,
        },
        {0: 3072 * 4096, 470 * B: 15360 * 4096, 14.82 * T: 1920 * 32768, 14.9 * T: 480 * 131072},
        (4096, 4096, 4096, 32768, 131072),
        "deepseek-v3",
    ),
    "deepseek-v3.2": Facts(  # from a finished model: 2.1B and 943.7B tokens
        945.8 * B,
        {0: 1e-3, 2.09 * B: 1e-3, 2.1 * B: 7.3e-6, 945 * B: 7.3e-6},
        {0: 16 * 131072, 2.1 * B: 480 * 131072},
        (131072, 131072),
        "deepseek-v3.2",
    ),
    "kimi-k2": Facts(
        15.9 * T,
        {1 * T: 2e-4, 10 * T: 2e-4, 12.75 * T: 1.1e-4, 15.499 * T: 2e-5, 15.501 * T: 2e-5, 15.9599 * T: 7e-6},
        {0: 2**26},
        (4096, 4096, 32768),
        "kimi-k2",
    ),
    "glm-4.5": Facts(
        22 * T,
        {0.1 * T: 2.5e-4, 23.099 * T: 2.5e-5},
        {0: 16 * 2**20, 501 * B: 64 * 2**20, 22.5 * T: 64 * 2**20},
        (4096, 4096, 32768, 131072),
        "glm-4.5",
    ),
    "trinity-large": Facts(
        17 * T,
        {1 * T: 8e-4, 9.99 * T: 8e-4, 16.999 * T: 8e-5, 17.0999 * T: 4e-5},
        {0: 12288 * 8192, 4.91 * T: 16384 * 8192},
        (8192, 262144),
        "trinity-large",
    ),
    "qwen3-8b": Facts(35 * T, {}, {}, (4096, 4096, 32768), "qwen3-8b"),
    "minimax-01": Facts(
        11.4 * T,
        {1 * T: 2e-4, 7.19 * T: 2e-4, 7.21 * T: 1.3e-4, 10.39 * T: 1.3e-4, 11.3999 * T: 3e-5},
        {0: 2**24, 70 * B: 2**25, 0.8 * T: 2**26, 4.71 * T: 2**27},
        (8192, 131072, 524288, 1048576),
        "minimax-text-01",
    ),
    "nemotron-h-8b": Facts(15 * T, {11.39 * T: 8e-4, 14.9999 * T: 8e-6}, {0: 768 * 8192}, (8192,), "nemotron-h-8b"),
}


def training(recipe: Recipe) -> dict[str, PretrainConfig]:
    """The training stages by name."""
    return {stage.name: stage.config for stage in recipe.stages if isinstance(stage.config, PretrainConfig)}


def place(recipe: Recipe, tokens: float) -> tuple[PretrainConfig, int]:
    """The stage in which the run has seen `tokens`, and the step that begins there."""
    left = round(tokens)
    for config in training(recipe).values():
        if left < config.total_tokens:
            return config, config.batch_sizes.steps_for(left)
        left -= config.total_tokens
    raise AssertionError(f"{tokens} lie beyond the run")


def rate(recipe: Recipe, tokens: float) -> float:
    config, step = place(recipe, tokens)
    share = learning_rate_share(config.schedule_in_steps, step, config.steps)
    return config.optimizer.lr * share * config.batch_sizes.rate_share(step)


def last_model(recipe: Recipe) -> ModelConfig:
    """The configuration that the last stage leaves: of a new model, or of the preset that stands for the input checkpoint."""
    stages = list(training(recipe).values())
    if stages[0].model is None:
        (base,) = recipe.presets.values()
        model = preset(base)
    else:
        model = stages[0].model.model_copy(update={"context": stages[0].sequence_length})
    for config in stages:
        model = changed_model(model, config)
    return model


@pytest.fixture(scope="module")
def loaded() -> Callable[[str], Recipe]:
    """A recipe by name, read once."""
    recipes: dict[str, Recipe] = {}
    return lambda name: recipes.setdefault(name, load_recipe(ROOT / f"{name}.yaml", absent=True))


def test_every_full_recipe_has_facts_and_a_miniature() -> None:
    assert set(FULL) == set(FACTS)
    assert {name.removesuffix("-mini") for name in MINIS} == set(FACTS) - {"olmo3-32b"}


@pytest.mark.parametrize("name", FULL)
def test_numbers_of_the_report(name: str, loaded: Callable[[str], Recipe]) -> None:
    recipe, facts = loaded(name), FACTS[name]
    stages = list(training(recipe).values())
    first = [config.total_tokens for config in stages if config.sequence_length == stages[0].sequence_length]
    assert sum(first) == pytest.approx(facts.tokens, rel=1e-3)
    assert tuple(config.sequence_length for config in stages) == facts.lengths
    for tokens, expected in facts.rates.items():
        assert rate(recipe, tokens) == pytest.approx(expected, rel=0.01), f"{tokens / T:g}T tokens"
    for tokens, expected in facts.batches.items():
        config, step = place(recipe, tokens)
        assert config.batch_sizes.rows(step) * config.sequence_length == expected, f"{tokens / T:g}T tokens"


@pytest.mark.parametrize("name", [*FULL, *MINIS])
def test_stages_fit_together(name: str, loaded: Callable[[str], Recipe]) -> None:
    """A stage that goes on with the optimizer names the last step of the one before, and that one keeps it."""
    recipe = loaded(name)
    configs = training(recipe)
    for stage in recipe.stages:
        source = stage.inputs.get("checkpoint")
        if stage.name in configs and isinstance(source, FromStage) and configs[stage.name].keep_optimizer:
            before = configs[source.stage]
            assert configs[stage.name].from_step == before.steps == before.checkpoints.keep_every
    for earlier, later in itertools.pairwise(configs.values()):
        if earlier.schedule.part[1] < 1 and later.schedule.part[0] > 0:  # one schedule: no jump of the rate
            ends = learning_rate_share(earlier.schedule_in_steps, earlier.steps - 1, earlier.steps)
            begins = learning_rate_share(later.schedule_in_steps, 0, later.steps)
            assert ends * earlier.optimizer.lr == pytest.approx(begins * later.optimizer.lr, rel=0.05)
    assert check_seeds(recipe).status == "ok", "no stage reads again what one before it has read"


@pytest.mark.parametrize("name", FULL)
def test_the_last_stage_has_the_released_rotation(name: str, loaded: Callable[[str], Recipe]) -> None:
    recipe = loaded(name)
    released, made = FACTS[name].released, last_model(recipe)
    assert released is not None
    given = preset(released)

    def rotations(model: ModelConfig) -> list[Any]:
        return [getattr(model.block(layer).mixer, "rope", None) for layer in range(model.depth)]

    assert rotations(made) == rotations(given)
    assert made.context == (given.context if recipe.presets else FACTS[name].lengths[-1])
    if name not in ("deepseek-v2", "deepseek-v3", "kimi-k2"):  # released with more than was trained, by YaRN
        assert made.context == given.context


def test_what_changes_during_a_run(loaded: Callable[[str], Recipe]) -> None:
    """Coefficients of the last model, and optimizers that are not AdamW."""
    v3, glm = last_model(loaded("deepseek-v3")), last_model(loaded("glm-4.5"))
    for model in (v3, glm):
        assert model.multi_token is not None and model.multi_token.weight == 0.1
        balancers = model.model_dump()["blocks"]["moe"]["feed_forward"]["balancers"]
        assert [one["rate"] for one in balancers if one["kind"] == "bias"] == [0]
    kimi = training(loaded("kimi-k2"))["pretrain"].optimizer
    assert isinstance(kimi, MuonConfig) and (kimi.scale, kimi.qk_clip, kimi.weight_decay) == ("rms", 100, 0.1)
    zai = training(loaded("glm-4.5"))["pretrain"].optimizer
    assert isinstance(zai, MuonConfig) and (zai.scale, zai.head, zai.momentum, zai.iterations) == (
        "rms",
        "muon",
        0.95,
        5,
    )
    arcee = training(loaded("trinity-large"))["pretrain"].optimizer
    assert isinstance(arcee, MuonConfig) and (arcee.scale, arcee.lr, arcee.rest_lr) == ("spectral", 8e-4, 2e-4)
    for config in training(loaded("olmo3-7b")).values():
        guards = config.guards
        assert (guards.spike, guards.spike_score, guards.spike_sigmas, guards.window) == ("skip", "standard", 6, 128)
        assert config.z_loss == 1e-5


def test_sparse_attention_on_a_dense_base(loaded: Callable[[str], Recipe]) -> None:
    """The indexers alone on dense attention for 1,000 steps, then all weights for 15,000: the released model comes out."""
    recipe = loaded("deepseek-v3.2")
    warmup, sparse = training(recipe).values()
    assert warmup.sparse is not None and sparse.sparse is not None
    assert (warmup.steps, warmup.sparse.stage, warmup.train_only) == (1_000, "dense_warmup", ("*.indexer.*",))
    assert (sparse.steps, sparse.sparse.stage, sparse.train_only, sparse.sparse.keep) == (15_000, "sparse", (), 2048)
    released, made = preset("deepseek-v3.2"), last_model(recipe)
    assert architecture(made) == architecture(released)
    plan = {stage.name: stage.cost for stage in make_plan(recipe).stages}
    assert (
        plan["warmup"].parameters
        == plan["sparse"].parameters
        == count(released).total + count(released).multi_token.total
    )


@pytest.mark.parametrize("name", [*FULL, *MINIS])
def test_plans_without_the_data(name: str, loaded: Callable[[str], Recipe], tmp_path: Path) -> None:
    plan = make_plan(loaded(name), tmp_path)
    stages = [stage for stage in plan.stages if stage.kind == "pretrain"]
    assert all(stage.cost.parameters and stage.cost.tokens for stage in stages)
    assert bool(plan.absent) == (name in FULL)  # a miniature makes its own


def test_a_plan_on_gpus() -> None:
    plan = make_plan(load_recipe(ROOT / "smollm3-3b.yaml", absent=True), gpus=384, gpu="h100")
    pretrain = plan.stages[0]
    assert pretrain.placement is not None and pretrain.placement.fits and pretrain.problem is None
    assert pretrain.seconds is not None and 10 < pretrain.seconds / 86400 < 40  # 24 days were published
    assert plan.published is not None and plan.published.gpus == 384


@pytest.mark.slow
@pytest.mark.parametrize("name", FULL)
def test_the_plan_that_a_recipe_names_fits_its_devices(name: str, loaded: Callable[[str], Recipe]) -> None:
    """The command in the recipe's head, on its number of devices: every stage has a layout."""
    given = re.search(r"# ingot plan \S+ --gpus (\d+)(?: --gpu (\w+))?", (ROOT / f"{name}.yaml").read_text())
    assert given is not None
    for stage in make_plan(loaded(name), gpus=int(given[1]), gpu=given[2]).stages:
        assert stage.problem is None and stage.placement is not None and stage.placement.fits, stage.name


def test_running_needs_the_data() -> None:
    with pytest.raises(
        RecipeError, match=r"inputs.shards: data/deepseek-v3/shards does not exist(.|\n)*--set inputs.shards=PATH"
    ):
        load_recipe(ROOT / "deepseek-v3.yaml")


def test_inputs_of_a_recipe(tmp_path: Path) -> None:
    """A path for all stages; shards are known by their index alone, which has the checksums."""
    assert SHARDS_INDEX == INDEX_FILE
    for name in ("tokenizer", "shards"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "index.json").write_text("{}")
    given = {"inputs.tokenizer": str(tmp_path / "tokenizer"), "inputs.shards": str(tmp_path / "shards")}
    recipe = load_recipe(ROOT / "kimi-k2.yaml", given)
    before = [stage.hash for stage in make_plan(recipe).stages]
    (tmp_path / "shards" / "tokens.bin").write_bytes(b"0")
    assert [stage.hash for stage in make_plan(recipe).stages] == before
    (tmp_path / "shards" / "index.json").write_text("[]")
    assert all(a != b.hash for a, b in zip(before, make_plan(recipe).stages, strict=True))
    with pytest.raises(RecipeError, match=r"no stage takes shard(.|\n)*did you mean shards"):
        load_recipe(ROOT / "kimi-k2.yaml", {"inputs.shard": "x"}, absent=True)


# ------------------------------------------------------------------------------------------------- miniatures, end to end

SMALLER = {"curate.max_bytes": 1_000_000, "curate.workers": 1}
TINY = {"eval.suites.0.rows": 4}
SHORTER: dict[str, dict[str, Any]] = {
    "smollm3-3b-mini": {
        "pretrain.steps": 40,
        "pretrain.schedule": {"warmup": 4, "decay": 5},
        "pretrain.checkpoints": {"every": 40, "keep_every": 40},
        "extend-256": {"from_step": 40, "steps": 4, "checkpoints": {"keep_every": 4}, "schedule": {"warmup": 0.25}},
        "extend-512": {"from_step": 4, "steps": 3, "schedule": {"warmup": 0.3}},
    },
    "deepseek-v3-mini": {
        "pretrain": {"tokens": 12_288, "batch_warmup": {"over": 4096}, "schedule": {"warmup": 4}},
        "pretrain.checkpoints.keep_every": 30,
        "decay": {"from_step": 30, "tokens": 5_120, "checkpoints": {"keep_every": 10}},
        "last": {"from_step": 10, "tokens": 1_536, "checkpoints": {"keep_every": 3}},
        "last.schedule.pieces": [{"until_tokens": 1_024, "to": 1}, {"until": 1, "to": 0.33}],
        "extend-256": {"from_step": 3, "steps": 3, "checkpoints": {"keep_every": 3}},
        "extend-512": {"from_step": 3, "steps": 2},
    },
    "kimi-k2-mini": {
        "pretrain": {"tokens": 15_872, "checkpoints": {"keep_every": 31}},
        "pretrain.schedule.pieces": [{"until_tokens": 10_240, "to": 1}, {"until": 1, "to": 0.1, "shape": "cosine"}],
        "anneal": {"from_step": 31, "steps": 5, "checkpoints": {"keep_every": 5}},
        "extend-256": {"from_step": 5, "steps": 3},
    },
}
CONTEXT = {"smollm3-3b-mini": 512, "deepseek-v3-mini": 512, "kimi-k2-mini": 256}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The finished stages that all miniatures begin with."""
    runs = tmp_path_factory.mktemp("runs")
    ingot.run(ROOT / "mini-data.yaml", set=SMALLER, runs=runs, report=False)
    return runs / "mini-data"


def losses(folder: Path) -> list[float]:
    return [row["loss"] for row in read_rows(folder / "metrics.jsonl")]


def run_mini(name: str, data: Path, changes: dict[str, Any]) -> RunResult:
    """Run a miniature that finds its data made."""
    runs = data.parent
    for folder in data.glob("*-*/"):
        shutil.copytree(folder, runs / name / folder.name, dirs_exist_ok=True)
    return ingot.run(ROOT / f"{name}.yaml", set={**SMALLER, **changes}, runs=runs, report=False)


def test_the_stages_of_a_miniature_fit_each_other(data: Path) -> None:
    """A few steps of each: the context grows, the data is found made."""
    changes: dict[str, Any] = {
        "pretrain.steps": 4,
        "pretrain.schedule": {"warmup": 0.25, "decay": 0.25},
        "pretrain.checkpoints": {"every": 4, "keep_every": 4},
        "extend-256": {"from_step": 4, "steps": 2, "checkpoints": {"keep_every": 2}, "schedule": {"warmup": 0.5}},
        "extend-512": {"from_step": 2, "steps": 1, "schedule": {"warmup": 0}},
    }
    result = run_mini("smollm3-3b-mini", data, {**TINY, **changes, "eval": None, "verdict": None})
    assert [stage.status for stage in result.stages] == ["reused"] * 3 + ["done"] * 3
    configs = [json.loads((stage.folder / "checkpoint" / "config.json").read_text()) for stage in result.stages[3:]]
    assert [config["context"] for config in configs] == [128, 256, 512]
    assert len({json.dumps(config["blocks"]) for config in configs}) == 3  # the rotation was changed


@pytest.mark.slow
@pytest.mark.parametrize("name", SHORTER)
def test_a_shortened_miniature_runs(name: str, data: Path) -> None:
    """It learns, ends with a longer context, finds its data made, and a second run finds everything made."""
    result = run_mini(name, data, {**TINY, **SHORTER[name], "verdict": None})
    folders = {stage.name: stage.folder for stage in result.stages}
    status = {stage.name: stage.status for stage in result.stages}
    assert [status[one] for one in ("curate", "tokenizer", "tokenize", "pretrain")] == ["reused"] * 3 + ["done"]
    seen = losses(folders["pretrain"])
    assert sum(seen[-3:]) / 3 < seen[0] - 0.9  # from about ln 1024 = 6.9
    trained = [stage for stage in folders if stage not in ("curate", "tokenizer", "tokenize") and "eval" not in stage]
    assert losses(folders[trained[-1]])[-1] < seen[0] - 0.9
    first, last = (
        json.loads((folders[stage] / "checkpoint" / "config.json").read_text()) for stage in (trained[0], trained[-1])
    )
    assert (first["context"], last["context"]) == (128, CONTEXT[name])
    assert first["blocks"] != last["blocks"]  # the rotation was changed
    again = ingot.run(
        ROOT / f"{name}.yaml", set={**SMALLER, **TINY, **SHORTER[name], "verdict": None}, runs=data.parent, report=False
    )
    assert {stage.status for stage in again.stages} == {"reused"}


@pytest.mark.slow
def test_sparse_attention_in_miniature(tmp_path: Path) -> None:
    """The warm-up changes no score and lowers the divergence; it saves nine tenths of what the switch costs without it."""
    switched = {"steps": 1, "optimizer": {"lr": 1e-9}, "schedule": {"warmup": 0}}
    shorter = {"curate.max_bytes": 100_000, "pretrain.steps": 110, "sparse": switched, "cold": switched, **TINY}
    changes = {**shorter, "verdict": None}
    result = ingot.run(ROOT / "deepseek-v3.2-mini.yaml", set=changes, runs=tmp_path, report=False)
    folders = {stage.name: stage.folder for stage in result.stages}
    rows = {stage: read_rows(folders[stage] / "metrics.jsonl") for stage in ("pretrain", "warmup", "sparse", "cold")}
    divergence = [row["index_divergence"] for row in rows["warmup"]]
    assert divergence[-1] < 0.1 * divergence[0], (divergence[0], divergence[-1])
    before, after, warm, cold = (found[-1]["validation_bits_per_byte"] for found in rows.values())
    assert after == before, "nothing but the indexers has changed"
    assert cold - before > 1 and warm - before < 0.1 * (cold - before), (before, warm, cold)


@pytest.mark.slow
@pytest.mark.parametrize("name", MINIS)
def test_a_miniature_runs_and_its_claims_hold(name: str, tmp_path: Path) -> None:
    result = ingot.run(ROOT / f"{name}.yaml", runs=tmp_path, report=False)  # a claim that fails raises
    assert {stage.status for stage in result.stages} == {"done"}
