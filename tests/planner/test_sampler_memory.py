"""What stages that sample hold besides their training: by hand, and against the bytes that a stage really holds."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from torch import Tensor, nn

from ingot.cli.show_plan import show_plan
from ingot.inference.engine import Engine
from ingot.model.config import ModelConfig
from ingot.model.initialise import initialise
from ingot.model.transformer import Transformer
from ingot.planner.cost import stage_costs
from ingot.planner.hardware import GIB
from ingot.planner.memory import WORKSPACE_BYTES, memory
from ingot.planner.plan import make_plan
from ingot.planner.shape import shape_of
from ingot.post.data.pairs.online_pairs import OnlinePairs
from ingot.post.distill.config import DistillConfig
from ingot.post.distill.source import StudentSamples
from ingot.post.distill.teacher import LocalTeacher
from ingot.post.prefer_config import PreferConfig
from ingot.post.processes import ALONE
from ingot.post.rl.config import RlConfig
from ingot.post.rl.source import RlSource
from ingot.post.sampled_answers import SLOTS
from ingot.post.sft_config import SftConfig
from ingot.recipe.load import load_recipe
from ingot.recipe.stages import STAGES
from ingot.train.config import TrainingConfig
from ingot.train.parallel.config import MeshConfig
from ingot.workspace.estimates import NOTHING, SamplerMemory
from tests.making.stages import stage_folder
from tests.planner.test_memory import DEVICE, LLAMA, ONE, llama
from tests.planner.test_plan import EMBEDDING, LAYER, NORMS, REAL
from tests.post.making import SUMS, engine_of, tiny_model, tiny_tokenizer
from tests.recipe.conftest import Write

MIB = 1024**2
LLAMA_BYTES = 4 * (128256 * 2048 + 16 * (2048 * 3072 + 2048 * 2048 + 3 * 2048 * 8192) + 33 * 2048)
PAGE_BYTES = 16 * 4 * 16 * 2 * 8 * 64  # 16 tokens, float32, 16 layers, keys and values of 8 heads of 64: one MiB
SAMPLES: dict[str, Any] = {"steps": 1, "sequence_length": 1024, "prompts_per_step": 6, "group": 8}


def sampler_memory(
    model: ModelConfig,
    config: TrainingConfig,
    processes: int = 1,
    teacher: ModelConfig | None = None,
    device: int | None = None,
) -> SamplerMemory:
    """What the kind of stage with these options says."""
    (kind,) = (kind for kind in STAGES.values() if kind.config is type(config))
    held = kind.memory(config, {"checkpoint": model, "teacher": teacher}, processes, device)
    assert held is not None
    return held


def test_rl_by_hand() -> None:
    assert PAGE_BYTES == MIB
    config = RlConfig.model_validate(SAMPLES)
    alone = (1 + 48 * 64) * PAGE_BYTES  # page 0 is for padding; 48 samples of 64 pages
    assert sampler_memory(llama(), config) == SamplerMemory(cache=alone)
    shared = (1 + 24 * 64) * PAGE_BYTES
    assert sampler_memory(llama(), config, processes=2) == SamplerMemory(sampler=LLAMA_BYTES, cache=shared)
    uneven = (1 + 10 * 64) * PAGE_BYTES  # 48 samples, five processes: the fullest has ten
    held = RlConfig.model_validate(SAMPLES | {"algorithm": {"algorithm": "grpo", "reference_weight": 0.1}})
    assert sampler_memory(llama(), held, processes=5) == SamplerMemory(
        LLAMA_BYTES, reference=LLAMA_BYTES // 5, cache=uneven
    )


def test_asynchronous_rl_by_hand() -> None:
    """Two samplers and two slots of weights on their way; on a GPU in bfloat16, with half the cache."""
    config = RlConfig.model_validate(SAMPLES | {"asynchronous": {"samplers": 2}})
    pages = 1 + 48 * 64
    assert sampler_memory(llama(), config) == SamplerMemory(4 * LLAMA_BYTES, cache=pages * PAGE_BYTES)
    assert sampler_memory(llama(), config, device=80 * GIB) == SamplerMemory(
        2 * LLAMA_BYTES, cache=pages * PAGE_BYTES // 2
    )
    divided = RlConfig.model_validate(SAMPLES | {"asynchronous": {"samplers": 2, "tensor": 4}})
    assert sampler_memory(llama(), divided) == sampler_memory(llama(), config), "it is one machine's memory"
    quarters = sampler_memory(llama(), divided, device=80 * GIB)
    assert quarters.sampler == LLAMA_BYTES // 4, "two copies in bfloat16, on four devices each; slots are the host's"
    elsewhere = RlConfig.model_validate(SAMPLES | {"asynchronous": {"samplers": 2, "transport": "ray"}})
    assert sampler_memory(llama(), elsewhere) == SamplerMemory(LLAMA_BYTES), "the weights on their way"
    assert sampler_memory(llama(), elsewhere, device=80 * GIB) == NOTHING


def test_a_divided_learner_by_hand() -> None:
    """Eight processes divide the model and the reference, two copies of four parts each; nothing is whole but in the samplers."""
    elsewhere: dict[str, Any] = {"asynchronous": {"samplers": 2, "transport": "ray"}}
    referred = elsewhere | {"algorithm": {"algorithm": "grpo", "reference_weight": 0.1}}
    replaced = elsewhere | {"algorithm": {"algorithm": "grpo", "reference_weight": 0.1, "reference_every": 5}}

    def held(options: dict[str, Any], device: int | None = 80 * GIB) -> SamplerMemory:
        return sampler_memory(llama(), RlConfig.model_validate(SAMPLES | options), 8, device=device)

    assert held(referred) == SamplerMemory(reference=LLAMA_BYTES // 8)
    assert held(referred | {"mesh": {"replicate": 2}}) == SamplerMemory(reference=LLAMA_BYTES // 4)
    assert held(referred, None) == SamplerMemory(LLAMA_BYTES, LLAMA_BYTES // 8), "weights on their way"
    assert held(referred | {"lora": {"rank": 4}}) == NOTHING, "the model without its adapters"
    assert held(replaced | {"lora": {"rank": 4}}) == SamplerMemory(reference=LLAMA_BYTES // 8)
    assert held({}).sampler == LLAMA_BYTES // 2, "by turns every process samples"
    assert held({"asynchronous": {"samplers": 2}}).sampler == (2 + 2) * LLAMA_BYTES // 2


def test_a_copy_in_float8_by_hand() -> None:
    """Large matrices have a byte a weight and a scale an output; embedding, head and norms are in bfloat16."""
    layer = (2048 * 3072 + 2048 * 2048 + 3 * 2048 * 8192) + 4 * (3072 + 2048 + 2 * 8192 + 2048)
    rl = RlConfig.model_validate(SAMPLES | {"sampling_precision": "float8", "asynchronous": {"samplers": 2}})
    held = sampler_memory(llama(), rl, 8, device=80 * GIB)
    copy = 16 * layer + 2 * (128256 * 2048 + 33 * 2048)
    assert held.sampler == (2 + 2) * copy
    turns = RlConfig.model_validate(SAMPLES | {"sampling_precision": "float8"})
    assert sampler_memory(llama(), turns, device=80 * GIB).sampler == copy
    assert sampler_memory(llama(), turns, 8, device=80 * GIB).sampler == copy + LLAMA_BYTES // 2, "gathered, then cast"


def test_a_cache_takes_what_is_free_and_no_more() -> None:
    large = RlConfig.model_validate(SAMPLES | {"prompts_per_step": 100})
    assert sampler_memory(llama(), large).cache == 4 * GIB
    assert sampler_memory(llama(), large, device=LLAMA_BYTES * 3 // 2 + 10 * GIB).cache == int(0.6 * 10 * GIB)


def test_distillation_and_preferences_by_hand() -> None:
    teacher = ModelConfig.model_validate(LLAMA | {"layers": "layer*4"})
    held = sampler_memory(llama(), DistillConfig.model_validate(SAMPLES), 2, teacher, LLAMA_BYTES + 80 * GIB)
    whole = LLAMA_BYTES - 4 * 12 * (2048 * 3072 + 2048 * 2048 + 3 * 2048 * 8192 + 2 * 2048)
    assert held.teacher == whole // 2, "bfloat16"
    exact = DistillConfig.model_validate(SAMPLES | {"precision": "float32"})
    assert sampler_memory(llama(), exact, 2, teacher, LLAMA_BYTES + 80 * GIB).teacher == whole
    assert sampler_memory(llama(), DistillConfig.model_validate(SAMPLES), 2, teacher).teacher == whole, "on a CPU"
    assert (held.sampler, held.reference, held.before) == (LLAMA_BYTES // 2, 0, False)
    pairs = PreferConfig(steps=1, sequence_length=1000)
    assert sampler_memory(llama(), pairs, device=80 * GIB) == SamplerMemory(
        LLAMA_BYTES // 2, cache=(1 + SLOTS * 63) * PAGE_BYTES // 2, before=True
    )
    assert sampler_memory(llama(), SftConfig(steps=1, sequence_length=8)) == NOTHING


def test_preferences_of_other_origins_by_hand() -> None:
    """Files need no cache, and without a reference nothing; online pairs keep sampler, reference and cache."""

    def held(processes: int, **options: object) -> SamplerMemory:
        config = PreferConfig.model_validate({"steps": 1, "sequence_length": 1000, **options})
        return sampler_memory(llama(), config, processes, device=80 * GIB)

    files, online, cache = {"files": ("pairs.jsonl",)}, {"refresh": 1}, (1 + SLOTS * 63) * PAGE_BYTES // 2
    narrow = LLAMA_BYTES // 2  # what is sampled from is a copy in bfloat16
    assert held(2, pairs=files) == SamplerMemory(LLAMA_BYTES, before=True, whole=True)
    assert held(2, pairs=files, algorithm="simpo").total == held(1, pairs=files, algorithm="orpo").total == 0
    assert held(2, pairs=files, algorithm="kto") == SamplerMemory(LLAMA_BYTES, whole=True)
    assert held(2, pairs=online) == SamplerMemory(LLAMA_BYTES, LLAMA_BYTES, cache=2 * cache, whole=True)
    assert held(1, pairs=online, algorithm="simpo") == SamplerMemory(narrow, cache=cache)


def test_the_peak_by_hand() -> None:
    """RL has it all at once; preferences are sampled, and then trained on."""
    shape, mesh = shape_of(llama()), MeshConfig(shard=64)
    rl = RlConfig.model_validate(SAMPLES | {"micro_batch_tokens": 1024})
    training, whole = memory(shape, rl, mesh, DEVICE), sampler_memory(llama(), rl, 64)
    both = memory(shape, rl, mesh, DEVICE, sampling=whole)
    assert (both.sampler, both.cache) == (LLAMA_BYTES, (1 + 64) * PAGE_BYTES)
    assert both.total == training.total + LLAMA_BYTES + 65 * PAGE_BYTES
    options = {"steps": 1, "micro_batch_tokens": 1024, "sequence_length": 1024}
    pairs, cache = PreferConfig.model_validate(options), (1 + SLOTS * 64) * PAGE_BYTES
    held = sampler_memory(llama(), pairs, 64, device=DEVICE)
    assert memory(shape, pairs, mesh, DEVICE, sampling=held).total == WORKSPACE_BYTES + LLAMA_BYTES + cache
    alone = sampler_memory(llama(), pairs, device=DEVICE)
    assert memory(shape, pairs, ONE, DEVICE, sampling=alone) == memory(shape, pairs, ONE, DEVICE)


def bytes_of(tensors: Iterable[Tensor]) -> int:
    return sum(each.numel() * each.element_size() for each in tensors)


def model_bytes(model: nn.Module | None) -> int:
    return 0 if model is None else bytes_of([*model.parameters(), *model.buffers()])


def cache_bytes(engine: Engine) -> int:
    return bytes_of(tensor for cache in engine._memory.caches if cache is not None for tensor in cache.tensors())


@pytest.mark.parametrize("preset", ["qwen3-8b", "nemotron-h-8b", "gemma2-2b", "kimi-k2", "minimax-text-01"])
def test_against_an_engine(preset: str) -> None:
    """Pages of attention and of latents, rings of windows, states."""
    config = ModelConfig.model_validate({"preset": f"{preset}-mini", "vocabulary_size": 512})
    model = Transformer(config)
    initialise(model, seed=0)
    for length in (100, 1000):  # rings are shorter than the second
        stage = RlConfig.model_validate(SAMPLES | {"prompts_per_step": 3, "group": 2, "sequence_length": length})
        assert sampler_memory(config, stage).cache == cache_bytes(Engine(model, slots=6, length=length))
    assert sampler_memory(config, stage, processes=2).sampler == model_bytes(model)


def test_against_stages(tmp_path: Path) -> None:
    """The sources of RL and of distillation, with all that they hold."""
    tokenizer, folder = tiny_tokenizer(), stage_folder(tmp_path)
    model, copy, teacher = (tiny_model(tokenizer, seed=seed) for seed in range(3))
    options = {"steps": 1, "sequence_length": 64, "tasks": SUMS, "prompts_per_step": 3, "device": "cpu"}
    rl = RlConfig.model_validate(options | {"algorithm": {"algorithm": "grpo", "reference_weight": 0.1}, "group": 2})
    source = RlSource(model, rl, folder, whole=copy)
    sampler, frozen = engine_of(source), source.scores.frozen
    estimate = sampler_memory(model.config, rl)
    assert frozen is not None
    assert (estimate.reference, estimate.cache) == (model_bytes(frozen.model), cache_bytes(sampler.engine))
    assert sampler_memory(model.config, rl, processes=2).sampler == model_bytes(sampler.whole)
    pairs = {key: value for key, value in options.items() if key != "prompts_per_step"} | {"pairs": {"refresh": 1}}
    online = PreferConfig.model_validate(pairs)
    sampled = OnlinePairs(model, online, folder, whole=copy)
    estimate = sampler_memory(model.config, online)
    assert (estimate.reference, estimate.cache) == (model_bytes(sampled.reference), cache_bytes(sampled.engine))
    distill = DistillConfig.model_validate(options)
    graded = StudentSamples(model, distill, folder, ALONE, None, {"one": LocalTeacher("one", teacher, None)})
    assert sampler_memory(model.config, distill, 1, teacher.config) == SamplerMemory(
        teacher=model_bytes(teacher), cache=cache_bytes(graded.sampler.engine)
    )


SAMPLING_STAGES = """
  rl: {steps: 5, sequence_length: 64, prompts_per_step: 2, group: 3, algorithm: {algorithm: grpo, reference_weight: 0.1}}
  distill: {steps: 5, sequence_length: 64, prompts_per_step: 2, inputs: {teacher: sft}}
"""
WEIGHTS = 4 * (EMBEDDING + 3 * LAYER + NORMS)
TINY_PAGE = 16 * 4 * 3 * 2 * 2 * 16  # 16 tokens of three layers with two heads of 16


@pytest.fixture
def sampling(write: Write) -> Path:
    write("x", "given/part-0.parquet")
    return write(REAL + SAMPLING_STAGES, "tiny.yaml")


def test_a_plan_counts_it(sampling: Path, capsys: pytest.CaptureFixture[str]) -> None:
    costs = stage_costs(load_recipe(sampling))
    assert costs["rl"].sampling == SamplerMemory(reference=WEIGHTS, cache=(1 + 6 * 4) * TINY_PAGE)
    plain = stage_costs(load_recipe(sampling, ["rl.algorithm=grpo"]))["rl"]
    assert (costs["rl"].memory_bytes or 0) - (plain.memory_bytes or 0) == WEIGHTS
    assert costs["distill"].sampling == SamplerMemory(teacher=WEIGHTS, cache=(1 + 2 * 4) * TINY_PAGE)
    divided = stage_costs(load_recipe(sampling, ["rl.mesh={shard: 2}"]))["rl"]
    assert divided.sampling == SamplerMemory(WEIGHTS, WEIGHTS // 2, cache=(1 + 3 * 4) * TINY_PAGE)
    assert (divided.memory_bytes or 0) - (plain.memory_bytes or 0) == 3 * WEIGHTS + (26 - 25) * TINY_PAGE
    show_plan(make_plan(load_recipe(sampling)))
    assert "rl holds during its training, in every process: reference" in " ".join(capsys.readouterr().out.split())


def test_a_teacher_that_is_not_known_leaves_the_memory_unknown(sampling: Path) -> None:
    recipe = load_recipe(sampling, ["distill.inputs={teacher: given}"])
    assert stage_costs(recipe)["distill"].memory_bytes is None
    placed = make_plan(recipe, gpu="h100").stages[-1]
    assert (
        placed.placement is None and placed.problem is not None and "its teacher lies in a checkpoint" in placed.problem
    )


def test_what_is_whole_in_every_process_is_shown_and_not_helped_by_more_devices(
    write: Write, capsys: pytest.CaptureFixture[str]
) -> None:
    write("x", "given/part-0.parquet")
    stages = """
name: large
stages:
  tokenizer: {vocabulary_size: 100278, inputs: {documents: given}}
  tokenize: {inputs: {documents: given}}
  pretrain:
    steps: 10
    batch_tokens: 4194304
    sequence_length: 8192
    phases: [{until: 1.0, weights: {all: 1}}]
    model: {preset: olmo3-32b}
  rl: {steps: 20, sequence_length: 2048, micro_batch_tokens: 2048, sampling_precision: float32}
  prefer: {steps: 20, sequence_length: 32768, micro_batch_tokens: 32768}
"""
    made = make_plan(load_recipe(write(stages, "large.yaml")), gpu="h100", gpus=512)
    rl, prefer = made.stages[-2:]
    assert rl.placement is not None and not rl.placement.fits and rl.placement.memory.sampler > 100 * GIB
    assert rl.problem == "does not fit: each device holds its sampler whole, 120 GiB: larger devices, a smaller model"
    assert prefer.placement is not None and prefer.placement.mesh.context == 1, "which preferences refuse"
    show_plan(made)
    assert "sampler 120.1 · cache" in capsys.readouterr().out
