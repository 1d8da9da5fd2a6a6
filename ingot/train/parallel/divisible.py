"""Checks whether a model can be divided over a mesh: all rules, as a pure function of the two configurations.

    axis       divides                                                        rule
    tensor     heads and key-value heads of attention, inner channels         each a multiple of it
    context    the tokens of a row, in pairs of pieces that balance causality sequence_length a multiple of 2·context
    pipeline   layers                                                         at least one for every stage
    expert     routed experts, over ranks of shard × context                  experts and shard·context multiples of it
    data       rows of a step (data = replicate × shard)                      at least one for every rank

Key-value heads are never copied: two copies of one head would have to share a gradient, which no placement here does. Recurrent
mixers are whole on every tensor rank, and so is a vocabulary that is no multiple of it (tensor.py): they need not be divisible.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ingot.model.config import BlockConfig, ModelConfig
from ingot.model.mixers.attention import AttentionConfig
from ingot.train.parallel.config import MeshConfig
from ingot.workspace.errors import RecipeError
from ingot.workspace.outside import without_paths


@dataclass(frozen=True)
class Indivisible:
    """One rule that a mesh breaks: the axis, what is wrong, what to do."""

    axis: str
    problem: str
    fix: str


def find_indivisible(
    model: ModelConfig, mesh: MeshConfig, *, sequence_length: int, rows_per_step: int | None = None
) -> list[Indivisible]:
    """Every rule that `mesh` breaks. A `shard` of 0 (the rest of the processes) is not known here and breaks none."""
    return [
        *find_uneven(model, mesh.tensor),
        *_context(sequence_length, mesh.context),
        *_pipeline(model.depth, mesh),
        *_expert(model, mesh),
        *_rows(rows_per_step, mesh),
    ]


def find_unsupported(model: ModelConfig, mesh: MeshConfig) -> list[Indivisible]:
    """What goes with no size of an axis: a recipe with it is refused when it is read."""
    return list(_backends(model, mesh))


def check_divisible(
    model: ModelConfig, mesh: MeshConfig, *, sequence_length: int, rows_per_step: int | None = None
) -> None:
    """Raise an error that names every rule the mesh breaks."""
    found = find_indivisible(model, mesh, sequence_length=sequence_length, rows_per_step=rows_per_step)
    found += find_unsupported(model, mesh)
    if found:
        problems, fixes = "; ".join(one.problem for one in found), "; ".join(dict.fromkeys(one.fix for one in found))
        raise RecipeError(f"the model cannot be divided over the mesh: {problems}", place="mesh", fix=fixes)


def check_tensor(model: ModelConfig, tensor: int, place: str) -> None:
    """Raise an error that names what tensor parallelism over so many ranks cannot divide."""
    if found := find_uneven(model, tensor):
        problems, fixes = "; ".join(one.problem for one in found), "; ".join(dict.fromkeys(one.fix for one in found))
        raise RecipeError(f"the model cannot be divided: {problems}", place=place, fix=fixes)


def divided_widths(model: ModelConfig) -> dict[str, set[int]]:
    """The names of what tensor parallelism divides, and the sizes that occur: a legal `tensor` divides them all."""
    found: dict[str, set[int]] = {}
    for block in dict.fromkeys(model.block(layer) for layer in range(model.depth)):
        for name, size in _block_widths(block):
            found.setdefault(name, set()).add(size)
    return found


def expert_counts(model: ModelConfig) -> set[int]:
    """The numbers of routed experts that occur in the layers."""
    parts = [model.block(layer).feed_forward for layer in range(model.depth)]
    return {part.routed.experts for part in parts if part is not None and part.routed is not None}


def find_uneven(model: ModelConfig, tensor: int) -> list[Indivisible]:
    """What tensor parallelism over so many ranks cannot divide."""
    return [
        Indivisible(
            "tensor", f"tensor ({tensor}) does not divide {name} ({size})", f"choose a tensor that divides {size}"
        )
        for name, sizes in divided_widths(model).items()
        for size in sorted(size for size in sizes if size % tensor)
    ]


def _context(length: int, context: int) -> Iterator[Indivisible]:
    if context > 1 and length % (2 * context):
        problem = f"sequence_length ({length}) is not a multiple of 2·context ({2 * context})"
        longer = -(-length // (2 * context)) * 2 * context
        yield Indivisible("context", problem, f"set sequence_length to {longer}, or choose a smaller context")


def _backends(model: ModelConfig, mesh: MeshConfig) -> Iterator[Indivisible]:
    mixers = [block.mixer for block in model.blocks.values()]
    own = [mixer.backend for mixer in mixers if isinstance(mixer, AttentionConfig) and mixer.backend is not None]
    if own and mesh.context > 1 and mesh.context_method == "ring":
        problem = f"keys and values that go around a ring reach no backend ({without_paths(own[0])})"
        yield Indivisible("context", problem, "set context_method: gather, or leave the mixer's backend out")


def _pipeline(depth: int, mesh: MeshConfig) -> Iterator[Indivisible]:
    stages = mesh.pipeline * mesh.pipeline_stages
    if stages > depth:
        problem = f"{depth} layers are fewer than the {stages} stages of the pipeline"
        yield Indivisible("pipeline", problem, f"choose pipeline · pipeline_stages of at most {depth}")


def _expert(model: ModelConfig, mesh: MeshConfig) -> Iterator[Indivisible]:
    if mesh.expert == 1:
        return
    counts, ranks = expert_counts(model), mesh.shard * mesh.context
    if not counts:
        yield Indivisible("expert", f"expert is {mesh.expert}, but no layer has routed experts", "set expert to 1")
    for count in sorted(count for count in counts if count % mesh.expert):
        problem = f"expert ({mesh.expert}) does not divide the {count} routed experts"
        yield Indivisible("expert", problem, f"choose an expert that divides {count}")
    if ranks % mesh.expert:
        problem = f"expert ({mesh.expert}) does not divide shard × context ({ranks})"
        yield Indivisible("expert", problem, f"choose an expert that divides {ranks}")


def _rows(rows: int | None, mesh: MeshConfig) -> Iterator[Indivisible]:
    data = mesh.replicate * max(1, mesh.shard)
    if rows is not None and rows < data:
        problem = f"{rows} rows a step are fewer than the {data} ranks that read data (replicate × shard)"
        yield Indivisible("data", problem, "raise batch_tokens, or give more ranks to tensor, context or pipeline")


def _block_widths(block: BlockConfig) -> Iterator[tuple[str, int]]:
    if block.mixer is not None:
        yield from block.mixer.divided.items()
    if block.feed_forward is not None:
        yield from ((f"feed_forward.{name}", size) for name, size in block.feed_forward.divided.items())
