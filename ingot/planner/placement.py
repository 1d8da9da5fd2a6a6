"""Chooses the layout of a training stage: estimates a given one, or tries all legal ones and takes the best.

A layout is a mesh, the rows of a pass and what is kept for the backward pass. Legal layouts divide the model
(train/parallel/divisible.py), keep tensor parallelism within a node, give every rank the same number of rows, and fit into the
memory. The fastest by speed.py wins; of those within TIE of it the simplest, so that a plan does not add an axis for a
difference that the estimate cannot see.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from ingot.model.config import ModelConfig
from ingot.planner.hardware import NODE, Gpu, Reached
from ingot.planner.memory import DeviceMemory, memory, step_rows
from ingot.planner.shape import Shape
from ingot.planner.speed import Speed, step_speed
from ingot.train.config import ActivationsConfig, TrainingConfig
from ingot.train.parallel.config import MeshConfig
from ingot.train.parallel.divisible import Indivisible, expert_counts, find_indivisible
from ingot.workspace.estimates import NOTHING, SamplerMemory

TIE = 0.05
"""Relative difference of speed that the estimate cannot be trusted to see."""
MOST_PIPELINE, MOST_CONTEXT, MOST_EXPERT, MOST_ROWS, MOST_STAGES = 16, 32, 64, 32, 8
SHORTEST_PIECE = 4096
"""Tokens of a row below which a search does not divide it further."""


@dataclass(frozen=True)
class Placement:
    """A layout with its estimates on one device. Speeds are None where a stage does not know its tokens in advance."""

    gpu: str
    gpus: int
    mesh: MeshConfig
    micro_batch_tokens: int
    keep: str
    memory: DeviceMemory
    fits: bool
    speed: Speed | None = None
    tokens_per_second: float | None = None
    mfu: float | None = None

    def options(self) -> str:
        """The layout as the lines of a recipe that ask for it."""
        defaults = MeshConfig().model_dump(mode="json")
        changed = {name: value for name, value in self.mesh.model_dump(mode="json").items() if value != defaults[name]}
        if self.gpus == 1:
            changed.pop("shard")
        mesh = ", ".join(f"{name}: {str(value).lower()}" for name, value in changed.items())
        lines = [f"mesh: {{ {mesh} }}"] if changed else []
        lines.append(f"micro_batch_tokens: {self.micro_batch_tokens}")
        return "\n".join([*lines, f"activations: {{ keep: {self.keep} }}"] if self.keep != "all" else lines)

    def as_json(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "gpu": self.gpu,
            "gpus": self.gpus,
            "mesh": self.mesh.model_dump(mode="json"),
            "micro_batch_tokens": self.micro_batch_tokens,
            "keep": self.keep,
            "memory": {**self.memory.as_json(), "total": self.memory.total, "needed": self.memory.needed},
            "fits": self.fits,
            "speed": None if self.speed is None else asdict(self.speed),
            "tokens_per_second": self.tokens_per_second,
            "mfu": self.mfu,
        }


def judge(
    shape: Shape,
    config: TrainingConfig,
    mesh: MeshConfig,
    gpu: Gpu,
    kernels: Reached,
    flops: int,
    sampling: SamplerMemory = NOTHING,
) -> Placement:
    """The estimates of a layout; `flops` are the model's per token (model/count.py). The mesh's `shard` is resolved."""
    held = memory(shape, config, mesh, gpu.memory, sampling=sampling)
    speed = tokens = mfu = None
    if config.counts_tokens and config.step_tokens is not None:
        speed = step_speed(shape, config, mesh, gpu, kernels)
        tokens = config.step_tokens / speed.step / devices(mesh)
        mfu = tokens * flops / gpu.bfloat16
    fits = held.needed <= gpu.memory
    keep = config.activations.keep
    return Placement(gpu.name, devices(mesh), mesh, config.micro_batch_tokens, keep, held, fits, speed, tokens, mfu)


def devices(mesh: MeshConfig) -> int:
    """The devices of a mesh; a `shard` of 0 counts as 1."""
    return mesh.replicate * max(1, mesh.shard) * mesh.tensor * mesh.context * mesh.pipeline


def resolve(mesh: MeshConfig, gpus: int | None = None) -> MeshConfig:
    """The mesh with `shard` filled in: the rest of `gpus`, or 1."""
    if mesh.shard:
        return mesh
    rest = max(1, (gpus or 1) // devices(mesh))
    return mesh.model_copy(update={"shard": rest})


def best(
    model: ModelConfig, shape: Shape, config: TrainingConfig, gpus: int, gpu: Gpu, kernels: Reached, flops: int
) -> Placement | None:
    """The best layout on so many devices; None if no legal one fits."""
    tried = ((changed, mesh) for mesh in legal_meshes(model, config, gpus) for changed in _passes(config, mesh))
    fitting = (
        (changed, mesh) for changed, mesh in tried if memory(shape, changed, mesh, gpu.memory).needed <= gpu.memory
    )
    found = [judge(shape, changed, mesh, gpu, kernels, flops) for changed, mesh in fitting]
    if not found:
        return None
    fastest = max(one.tokens_per_second or 0.0 for one in found)
    near = [one for one in found if (one.tokens_per_second or 0.0) >= fastest * (1 - TIE)]
    return min(near, key=_complexity)


def first_fit(
    model: ModelConfig,
    shape: Shape,
    config: TrainingConfig,
    gpus: int,
    gpu: Gpu,
    kernels: Reached,
    flops: int,
    sampling: SamplerMemory = NOTHING,
) -> Placement:
    """For a stage whose tokens are unknown: the recipe's mesh, with as much recomputation and context as its memory asks for."""
    placement = None
    pieces = config.sequence_length // SHORTEST_PIECE
    most = min(MOST_CONTEXT, pieces) if config.divides_rows else 1
    for context in _powers(max(config.mesh.context, most)):
        for keep in ("all", "products", "blocks"):
            mesh = resolve(config.mesh.model_copy(update={"context": max(context, config.mesh.context)}), gpus)
            rows = max(1, config.micro_batch_tokens // config.sequence_length)
            changed = {"micro_batch_tokens": rows * config.sequence_length, "activations": ActivationsConfig(keep=keep)}
            placement = judge(shape, config.model_copy(update=changed), mesh, gpu, kernels, flops, sampling)
            if placement.fits and devices(mesh) == gpus and not _broken(model, config, mesh):
                return placement
    assert placement is not None
    return placement


def legal_meshes(model: ModelConfig, config: TrainingConfig, gpus: int) -> Iterator[MeshConfig]:
    """Every mesh of powers of two on `gpus` devices that divides the model and gives each rank the same rows."""
    rows = step_rows(config) or 0
    experts = [size for size in _powers(MOST_EXPERT) if all(count % size == 0 for count in expert_counts(model))]
    experts = experts if expert_counts(model) else [1]
    for tensor in _powers(min(NODE, gpus)):
        if _broken(model, config, MeshConfig(tensor=tensor)):
            continue
        for context in _powers(min(MOST_CONTEXT, config.sequence_length // SHORTEST_PIECE)):
            for pipeline in _powers(min(MOST_PIPELINE, model.depth)):
                data, rest = divmod(gpus, tensor * context * pipeline)
                if rest or not data or rows % data or _broken(model, config, MeshConfig(context=context)):
                    continue
                for shard in sorted(
                    {size for size in (NODE // tensor, NODE, 8 * NODE, data) if size and data % size == 0}
                ):
                    for expert in (size for size in experts if (shard * context) % size == 0):
                        mesh = MeshConfig(
                            replicate=data // shard,
                            shard=shard,
                            tensor=tensor,
                            context=context,
                            pipeline=pipeline,
                            expert=expert,
                        )
                        if pipeline > 1 and shard * context > 1:  # a pipeline would gather again for every pass
                            mesh = mesh.model_copy(update={"reshard_after_forward": False})
                        yield from _schedules(model.depth, mesh)


def _schedules(depth: int, mesh: MeshConfig) -> Iterator[MeshConfig]:
    """The mesh with every number of stages per device."""
    yield mesh
    for stages in _powers(MOST_STAGES)[1:]:
        if mesh.pipeline > 1 and mesh.pipeline * stages <= depth:
            yield mesh.model_copy(update={"pipeline_schedule": "interleaved", "pipeline_stages": stages})


def why_none(model: ModelConfig, config: TrainingConfig, gpus: int) -> str:
    """Why a search found nothing, in words."""
    meshes = list(legal_meshes(model, config, gpus))
    if meshes:
        return f"none of the {len(meshes)} legal meshes of {gpus} devices fits into the memory: use more of them, or larger ones"
    rows = step_rows(config) or 0
    return (
        f"no mesh of {gpus} devices divides {rows} rows a step, {model.depth} layers and the model's widths: "
        "change batch_tokens, or take a number of devices that divides it"
    )


def _broken(model: ModelConfig, config: TrainingConfig, mesh: MeshConfig) -> list[Indivisible]:
    return find_indivisible(model, mesh, sequence_length=config.sequence_length)


def _passes(config: TrainingConfig, mesh: MeshConfig) -> Iterator[TrainingConfig]:
    """The stage with every number of rows in a pass and everything that may be kept."""
    rows = (step_rows(config) or 0) // (mesh.replicate * mesh.shard)
    for size in (size for size in _powers(min(MOST_ROWS, rows)) if rows % size == 0):
        if mesh.pipeline > 1 and rows // size < mesh.pipeline:
            continue  # more bubble than work
        for keep in ("all", "products", "blocks"):
            changed = {"micro_batch_tokens": size * config.sequence_length, "activations": ActivationsConfig(keep=keep)}
            yield config.model_copy(update=changed)


def _complexity(placement: Placement) -> tuple[float, ...]:
    """Fewer axes first, then less recomputation, then speed."""
    mesh = placement.mesh
    axes = sum(
        size > 1
        for size in (mesh.tensor, mesh.context, mesh.pipeline, mesh.expert, mesh.replicate, mesh.pipeline_stages)
    )
    again = ("all", "products", "blocks").index(placement.keep)
    return (
        axes,
        mesh.tensor * mesh.context * mesh.pipeline * mesh.expert,
        again,
        -(placement.tokens_per_second or 0.0),
    )


def _powers(most: int) -> list[int]:
    return [1 << exponent for exponent in range(max(1, most).bit_length())]
