"""The doctor's checks of training stages: the mesh divides the model, the disk holds the checkpoints, one step runs."""

from __future__ import annotations

import math
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

import torch

from ingot.checkpoints.classification import language_model
from ingot.checkpoints.families.table import write_config
from ingot.checkpoints.huggingface import is_huggingface
from ingot.model.config import ModelConfig
from ingot.planner.check import Check
from ingot.planner.check_machine import memory_bytes
from ingot.planner.cost import Cost, pass_tokens
from ingot.planner.dry_run import DryRunOutcome, dry_run
from ingot.planner.hardware import GIB
from ingot.planner.lora_memory import lora_sizes
from ingot.planner.memory import memory, step_rows
from ingot.planner.placement import devices, resolve
from ingot.planner.plan import assume_machine
from ingot.planner.shape import shape_of
from ingot.recipe.recipe import FromPath
from ingot.recipe.work import StageWork
from ingot.train.config import TrainingConfig
from ingot.train.parallel.config import MeshConfig
from ingot.train.parallel.divisible import divided_widths, find_indivisible, find_uneven
from ingot.train.pretrain_config import PretrainConfig
from ingot.workspace.errors import ArtifactError

DRY_RUN_SECONDS = 120.0
LONGEST_STEP = 60.0
"""A step that is estimated to take longer than this here is not tried."""
HIGH_LOSS = 1.5
"""A fresh model's loss on random tokens is about ln(vocabulary); above this multiple of it something is wrong."""
MEMORY_MISSED = 0.25
"""Difference between measured and estimated memory, as a share, from which it is worth a warning."""


def check_sharding(works: list[StageWork], models: Mapping[str, ModelConfig | None]) -> Iterator[Check]:
    """Whether each training stage's model can be divided over its mesh."""
    for work in works:
        config, model = work.stage.config, models.get(work.stage.name)
        if not isinstance(config, TrainingConfig) or model is None or work.done is not None:
            continue
        mesh = resolve(config.mesh)
        rows = step_rows(config)
        broken = find_indivisible(model, config.mesh, sequence_length=config.sequence_length, rows_per_step=rows)
        broken += find_uneven(model, config.sampler_tensor)
        name = f"{work.stage.name} sharding"
        if broken:
            problems, fixes = "; ".join(one.problem for one in broken), "; ".join(one.fix for one in broken)
            yield Check(name, "fail", problems, fixes)
        elif devices(mesh) > 1:
            sizes = ", ".join(
                f"{what} {'/'.join(map(str, sorted(found)))}" for what, found in divided_widths(model).items()
            )
            start = f"start it with torchrun --nproc-per-node, {devices(mesh)} processes in all"
            yield Check(name, "ok", f"the mesh divides {sizes}; {start}")


def checkpoint_bytes(
    config: TrainingConfig, cost: Cost, model: ModelConfig | None = None, start: FromPath | None = None
) -> tuple[int, int]:
    """Bytes below a stage's folder: the most while it runs, and what stays when it is done.

    With adapters (train/saving/adapter.py) step checkpoints hold what trains, and beside the merged model lie the adapters alone
    and, where the input `start` is no Hugging Face folder, the base that these are for.
    """
    trained = parameters = cost.parameters or 0
    moments, beside = 4 * config.optimizer.state_size, 0
    if config.lora is not None and model is not None:
        sizes = lora_sizes(model, config.lora)
        trained = sizes.adapters + sizes.rows + sizes.heads
        copied = start is None or not is_huggingface(start.path)
        beside = 4 * (sizes.adapters + parameters * copied) if _has_huggingface_form(model) else 0
    plan = config.checkpoints
    for_good = 0 if plan.keep_every is None else config.steps // plan.keep_every
    held = plan.keep + 1 + for_good + plan.keep_best  # one more is being written
    whole, weights = (4 + moments) * trained, 4 * parameters + beside
    written = 1 + config.steps // plan.every if config.steps else held  # 0: only the data says how many steps
    return whole * min(held, written) + weights, whole * for_good + weights


def _has_huggingface_form(model: ModelConfig) -> bool:
    """Whether adapters of this model can be written for PEFT, beside a base that it loads."""
    try:
        write_config(language_model(model))
    except ArtifactError:
        return False
    return True


def check_checkpoints(
    works: list[StageWork], costs: Mapping[str, Cost], models: Mapping[str, ModelConfig | None], folder: Path
) -> Check | None:
    """Whether the disk has space for the most that checkpoints take during the recipe."""
    kept = most = 0
    for work in works:
        config, cost = work.stage.config, costs.get(work.stage.name)
        if not isinstance(config, TrainingConfig) or cost is None or cost.parameters is None or work.done is not None:
            continue
        start = work.stage.inputs.get("checkpoint")
        own = start if isinstance(start, FromPath) else None
        running, stays = checkpoint_bytes(config, cost, models.get(work.stage.name), own)
        most, kept = max(most, kept + running), kept + stays
    if not most:
        return None
    free = shutil.disk_usage(folder).free
    text = f"checkpoints take {most / GIB:.2f} GiB at the most, {kept / GIB:.2f} stay; {free / GIB:.1f} GiB are free"
    if most > free:
        fix = "make room, give another folder with --runs, keep fewer (checkpoints.keep, keep_every)"
        return Check("recipe disk", "fail", text, fix)
    return Check("recipe disk", "ok", text)


def check_step(works: list[StageWork], models: Mapping[str, ModelConfig | None], costs: Mapping[str, Cost]) -> Check:
    """One real step of the pre-training stage that takes most memory, if this machine can take it."""
    pending = [work.stage for work in works if isinstance(work.stage.config, PretrainConfig) and work.done is None]
    known = [stage for stage in pending if models.get(stage.name) is not None]
    if not known:
        return Check("one step", "ok", "no pre-training stage with a known model is left to try")
    stage = max(known, key=lambda one: costs[one.name].memory_bytes or 0)
    config, model, cost = stage.config, models[stage.name], costs[stage.name]
    assert isinstance(config, PretrainConfig) and model is not None
    estimate, room = _memory_here(config, model, cost)
    if estimate > room:
        text = f"{stage.name} needs {estimate / GIB:.1f} GiB, {room / GIB:.1f} are here: only its shapes were built"
        return Check(
            "one step", "warn", text, "run the doctor on the machine that will train it, or see ingot plan --gpus"
        )
    tokens = min(max(config.micro_batch_tokens, config.sequence_length), config.batch_tokens)
    seconds = (
        (cost.flops_per_token or 0) * tokens / assume_machine().flops_per_second
        if not torch.cuda.is_available()
        else 0.0
    )
    if seconds > LONGEST_STEP:
        text = f"a pass of {stage.name} would take about {seconds / 60:.0f} minutes here: only its shapes were built"
        return Check("one step", "ok", text)
    return judge_step(dry_run(model, config, DRY_RUN_SECONDS), stage.name, estimate, model.vocabulary_size or 1)


def judge_step(outcome: DryRunOutcome, stage: str, estimate: int, vocabulary: int) -> Check:
    """The result of a step, compared with what was expected."""
    name = "one step"
    if outcome.error is not None:
        return Check(
            name,
            "fail",
            f"{stage}: {outcome.error}",
            "the same will happen to the run: see `ingot run --to` this stage",
        )
    expected = math.log(vocabulary)
    memory = f"{outcome.peak_bytes / GIB:.2f} GiB (estimate {estimate / GIB:.2f})"
    loss = f"loss {outcome.loss:.2f} (even odds {expected:.2f})"
    text = f"{stage} on {outcome.device}: {memory}, {outcome.seconds:.1f} s with start-up, {loss}"
    if not outcome.loss < HIGH_LOSS * expected:
        return Check(name, "warn", text, "the fresh model is far from even odds: look at initial.std and at scales")
    if abs(outcome.peak_bytes / estimate - 1) > MEMORY_MISSED and outcome.peak_bytes > GIB:
        return Check(name, "warn", text, "trust the measured memory; the estimate is off for this shape")
    return Check(name, "ok", text)


def _memory_here(config: PretrainConfig, model: ModelConfig, cost: Cost) -> tuple[int, int]:
    """The memory that one process would need on this machine's device, and the memory of the device."""
    if not torch.cuda.is_available():
        return cost.memory_bytes or 0, memory_bytes() or 1 << 62
    single = config.model_copy(update={"batch_tokens": max(pass_tokens(config), config.sequence_length)})
    device = torch.cuda.mem_get_info()[1]
    return memory(shape_of(model), single, MeshConfig(shard=1), device).total, device
