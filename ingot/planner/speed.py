"""Estimates the time of a training step on many devices, by a small model of kernels and networks, to choose layouts.

    step = passes · pass · stretch of a pipeline + its sends + gradients' exchange + optimizer
    pass = matrix products + mixing + elementwise, forward and backward, + recomputation, + what is not hidden of the
           communication, + at the end of the model the head; in a pipeline that of the rank that has most to do
    stretch, sends: pipeline_time.py          1F1B and interleaved (arXiv 2104.04473)
    MFU  = model FLOPs (model/count.py: causal attention counts half) / (devices · stated bfloat16 speed · step)

A matrix product [M, K]·[K, N] runs in tiles of 128 × 256 on the device's multiprocessors; the last, partly filled wave costs as
much as a full one, and no product is faster than the memory it reads and writes. Elementwise work is bytes over the memory's
bandwidth. All speeds are those that were measured (hardware.py) times KERNEL_SHARE.

Communication per pass, n tokens of the device's rows, D width, 2 bytes each:

    tensor    4 all-reduces of n·D per block (forward 2, backward 2; 2 more with recomputation): not hidden
    context   keys and values gathered, their gradients scattered, per block: not hidden
    expert    4 exchanges of n·K·D per mixture (send and bring back, forward and backward): not hidden. A row is sent to each
              of a token's K experts, also to two on one device or in one node
    shard     weights gathered forward and, if they were freed, backward; gradients scattered in float32: hidden up to HIDDEN
              of the pass. In a pipeline both happen once a step: torch's stages keep weights and gradients whole in between
    replicate gradients summed over the copies, once per step: hidden up to HIDDEN of the last pass

An exchange over a group that leaves the node runs at the adapters of the group's devices in one node together, but not faster
than NVLink: eight 400 Gb/s adapters make 400 GB/s, where 320 to 350 were seen on 16 nodes (Smol Training Playbook, 2025).
Not modelled: unequal expert loads, stragglers, checkpoints, failures.

The estimate is of our trainer, not of the hardware. `Practice` names what published trainers did and ours does not; compare.py
makes the estimate with them, to say how much of a difference from a published run they explain.
"""

from __future__ import annotations

import math
from collections.abc import Set
from dataclasses import dataclass, replace
from enum import StrEnum

from ingot.optim.config import MuonConfig
from ingot.planner.hardware import NODE, Gpu, Reached
from ingot.planner.memory import passes_per_step, rows_per_pass, vocabulary_ranks
from ingot.planner.pipeline_time import sends, stretch
from ingot.planner.shape import BlockShape, Matrix, Shape
from ingot.train.config import ActivationsConfig, TrainingConfig
from ingot.train.parallel.config import MeshConfig

KERNEL_SHARE = 0.82
"""The share of a kernel's speed that it reaches inside a step (clocks under load, gaps between kernels). Fitted to one reading:
65,885 tokens/s of a plain compiled 1.24B model on one H200."""
FLEET_SHARE = 0.75
"""A device's share of its own speed in a run of more than one node: exchanges that hide behind kernels take bandwidth from
them, and the slowest device sets the pace. Not derived: with it, published runs of dense models under FSDP (published.py)
come out 1.1 to 1.3 times as fast as they were."""
LINK_SHARE = 0.8
"""The share of a link's stated bandwidth that collectives reach."""
HIDDEN = 0.8
"""Share of a pass behind which the exchange of weights and gradients can hide."""
TILE_ROWS, TILE_COLUMNS = 128, 256
STREAM_BYTES = 60
"""Bytes moved per number of the stream and block by norms, residual sums and casts, forward and backward."""
MIXER_BYTES, INNER_BYTES = 8, 16
"""The same per number of queries, keys and values (rotation), and per inner channel (activation and product)."""
LOGIT_BYTES = 12
"""Bytes moved per logit by the cross-entropy and its gradient."""
OPTIMIZER_BYTES = 40
"""Bytes moved per parameter by clipping, AdamW and the cast of new weights."""
NEWTON_SCHULZ_FLOPS = 6
"""Muon, per iteration of a matrix m × n, m ≤ n: FLOPs / (m²·n). Two products of m²·n and one of m³."""


class Practice(StrEnum):
    """Techniques of published trainers that ours does not have."""

    FLOAT8_EXPERTS = "experts multiplied in float8"
    HIDDEN_EXCHANGES = "exchanges of experts hidden behind the other half of the batch (DualPipe)"
    PRODUCTS_KEPT = (
        "results of matrix products kept for the backward pass, where our plan has to recompute whole blocks"
    )


OURS: frozenset[Practice] = frozenset()
"""Our trainer has none of them."""


@dataclass(frozen=True)
class Speed:
    """One step on all devices; seconds, and what they are made of."""

    step: float
    compute: float
    communication: float
    bubble: float
    optimizer: float


def step_speed(
    shape: Shape,
    config: TrainingConfig,
    mesh: MeshConfig,
    gpu: Gpu,
    kernels: Reached,
    practices: Set[Practice] = OURS,
) -> Speed:
    """The estimate for a mesh whose `shard` is resolved; `practices` are those of a trainer that is not ours."""
    if Practice.FLOAT8_EXPERTS in practices:
        kernels = replace(kernels, grouped=kernels.grouped * kernels.float8 / kernels.bfloat16)
    if Practice.PRODUCTS_KEPT in practices and config.activations.keep == "blocks":
        config = config.model_copy(update={"activations": ActivationsConfig(keep="products")})
    data = mesh.replicate * max(1, mesh.shard)
    rows = rows_per_pass(config, data)
    devices = data * mesh.tensor * mesh.context * mesh.pipeline
    passes = passes_per_step(config, data, rows) or 1
    tokens = rows * config.sequence_length / mesh.context
    hidden = HIDDEN if Practice.HIDDEN_EXCHANGES in practices else 0.0
    compute, inside = _busiest(shape, config, mesh, gpu, kernels, tokens, hidden)
    gathered, scattered, copied = _sharding(shape, mesh, gpu, -(-shape.depth // mesh.pipeline) / shape.depth)
    if mesh.pipeline > 1:  # once for all passes of the step
        gathered, scattered, copied = 0.0, 0.0, copied + scattered + gathered
    exposed = max(0.0, gathered + scattered - HIDDEN * compute)
    last = max(0.0, copied - HIDDEN * compute)
    one_pass = compute + inside + exposed
    optimizer = _optimizer(shape, config, mesh, kernels)
    fleet = FLEET_SHARE if devices > NODE else 1.0
    running, bubble = passes * one_pass / fleet, 0.0
    if mesh.pipeline > 1:
        pipeline = mesh.pipeline, mesh.pipeline_stages, passes
        bubble = running * (stretch(*pipeline) - 1)
        last += sends(*pipeline) * _send(shape, mesh, gpu, tokens)
    return Speed(
        step=running + bubble + last + optimizer,
        compute=passes * compute / fleet,
        communication=passes * (inside + exposed) / fleet + last,
        bubble=bubble,
        optimizer=optimizer,
    )


def _busiest(
    shape: Shape, config: TrainingConfig, mesh: MeshConfig, gpu: Gpu, kernels: Reached, tokens: float, hidden: float
) -> tuple[float, float]:
    """Seconds of one pass on the pipeline rank that has most to do: computing, and what is not hidden of the exchanges inside
    the blocks, which hide behind a share `hidden` of the computing.

    The trainer cuts the layers where the costliest stage is cheapest, the last one having the head and multi-token prediction
    (train/parallel/stages.py): it has fewer layers. All wait for the rank whose stages take longest together.
    """
    kinds = [
        (_block(shape, block, config, mesh, gpu, kernels, tokens), _inside(shape, block, config, mesh, gpu, tokens))
        for block in shape.blocks
    ]
    count = mesh.pipeline * mesh.pipeline_stages
    ranks = [(0.0, 0.0)] * mesh.pipeline
    stages = shape.stages(count, config.sequence_length) if count > 1 else [range(len(shape.layers))]
    for stage, layers in enumerate(stages):
        rank = stage % mesh.pipeline
        ranks[rank] = _added(ranks[rank], *(kinds[shape.layers[layer]] for layer in layers))
    end = _end(shape, gpu, kernels, tokens, vocabulary_ranks(shape, mesh)), 0.0
    ranks[-1] = _added(ranks[-1], end, *(kinds[number] for number in shape.ahead))
    return max(((compute, max(0.0, inside - hidden * compute)) for compute, inside in ranks), key=sum)


def _added(*parts: tuple[float, float]) -> tuple[float, float]:
    return sum(part[0] for part in parts), sum(part[1] for part in parts)


def product_seconds(matrix: Matrix, tokens: float, rate: float, gpu: Gpu, kernels: Reached, tensor: int = 1) -> float:
    """One product of `tokens` rows with a matrix whose longer side `tensor` devices divide."""
    rows = tokens * matrix.tokens
    out, into = (matrix.out / tensor, matrix.into) if matrix.out >= matrix.into else (matrix.out, matrix.into / tensor)
    flops = 2 * rows * matrix.experts * out * into
    values = matrix.experts * (rows * (out + into) + out * into)
    filled = _filled(rows, out, matrix.experts, gpu) / _filled(8192, 8192, 1, gpu)
    return max(flops / (rate * min(1.0, filled)), 2 * values / kernels.copy) / KERNEL_SHARE


def _filled(rows: float, out: float, experts: int, gpu: Gpu) -> float:
    """Share of the tiles' multiplications that are wanted: edges of tiles, and the last wave."""
    tiles = math.ceil(rows / TILE_ROWS) * math.ceil(out / TILE_COLUMNS) * experts
    waves = math.ceil(tiles / gpu.multiprocessors)
    return rows * out * experts / (waves * gpu.multiprocessors * TILE_ROWS * TILE_COLUMNS)


def _block(
    shape: Shape,
    block: BlockShape,
    config: TrainingConfig,
    mesh: MeshConfig,
    gpu: Gpu,
    kernels: Reached,
    tokens: float,
) -> float:
    """Forward, backward and recomputation of one block for one pass."""
    products = 0.0
    for matrix in block.matrices:
        if matrix.experts == 1:
            rounded = config.precision == "float8" and matrix.in_float8(mesh.tensor)
            rate = kernels.float8 if rounded else kernels.bfloat16
            products += product_seconds(matrix, tokens, rate, gpu, kernels, mesh.tensor)
        else:  # a device computes its own experts, with the rows of all `expert` ranks
            local = Matrix(matrix.out, matrix.into, max(1, matrix.experts // mesh.expert), matrix.tokens * mesh.expert)
            products += product_seconds(local, tokens, kernels.grouped, gpu, kernels, mesh.tensor)
    mixing = block.mixing_flops(config.sequence_length) * tokens / mesh.tensor / (kernels.attention * KERNEL_SHARE)
    moved = STREAM_BYTES * shape.width * (1 + block.routed / 2) + MIXER_BYTES * block.mixed + INNER_BYTES * block.inner
    touched = moved * tokens / mesh.tensor / kernels.copy
    match config.activations.keep:
        case "blocks":
            recomputed = products + mixing + touched / 3
        case "products":
            recomputed = touched / 3
        case "budget":
            recomputed = (1 - config.activations.budget) * (products + mixing + touched / 3)
        case _:
            recomputed = 0.0
    return 3 * (products + mixing) + touched + recomputed


def _end(shape: Shape, gpu: Gpu, kernels: Reached, tokens: float, ranks: int) -> float:
    """The time after the last layer: logits, their loss and both gradients, three products, divided over `ranks`. Every module of
    multi-token prediction has its own, and a product that joins states and embeddings."""
    if not shape.vocabulary:
        return 0.0
    head = product_seconds(Matrix(shape.vocabulary, shape.width), tokens, kernels.bfloat16, gpu, kernels, ranks)
    join = product_seconds(Matrix(shape.width, 2 * shape.width), tokens, kernels.bfloat16, gpu, kernels)
    loss = LOGIT_BYTES * tokens * shape.vocabulary / ranks / kernels.copy
    return (1 + len(shape.ahead)) * (3 * head + loss) + 3 * join * len(shape.ahead)


def _inside(
    shape: Shape, block: BlockShape, config: TrainingConfig, mesh: MeshConfig, gpu: Gpu, tokens: float
) -> float:
    """Communication inside one block in one pass."""
    seconds, again = 0.0, 1.5 if config.activations.keep == "blocks" else 1.0
    if mesh.tensor > 1:
        volume = 4 * again * 2 * 2 * tokens * shape.width  # an all-reduce moves its volume twice
        seconds += volume * _part(mesh.tensor) / _bandwidth(gpu, mesh.tensor, 1)
    if mesh.context > 1:
        volume = (again + 1) * 2 * tokens * mesh.context * block.key_value_width / mesh.tensor
        seconds += volume * _part(mesh.context) / _bandwidth(gpu, mesh.context, mesh.tensor)
    if mesh.expert > 1 and block.routed:
        volume = 4 * again * 2 * tokens * block.routed * shape.width / mesh.tensor
        near = min(1.0, max(1, NODE // mesh.tensor) / mesh.expert)
        # rows for this node and for others leave at the same time, over different links
        link = max(near / gpu.nvlink, (1 - near) / gpu.network) / LINK_SHARE
        seconds += volume * _part(mesh.expert) * link
    return seconds


def _send(shape: Shape, mesh: MeshConfig, gpu: Gpu, tokens: float) -> float:
    """The states of one pass from a pipeline rank to the next; the axis is the mesh's outermost, so neighbours are far apart."""
    devices = mesh.pipeline * mesh.replicate * max(1, mesh.shard) * mesh.context * mesh.tensor
    return 2 * tokens * shape.width / ((gpu.nvlink if devices <= NODE else gpu.network) * LINK_SHARE)


def _sharding(shape: Shape, mesh: MeshConfig, gpu: Gpu, share: float) -> tuple[float, float, float]:
    """Seconds to gather the weights of one pass and to scatter its gradients, and to sum a step's over the copies."""
    ranks = max(1, mesh.shard) * mesh.context
    dense = (shape.block_parameters - shape.expert_parameters) * share / mesh.tensor
    dense += shape.embedding / vocabulary_ranks(shape, mesh)
    experts = shape.expert_parameters * share / mesh.tensor / mesh.expert
    inner = mesh.tensor
    gathers = 2 if mesh.reshard_after_forward else 1
    gathered = scattered = copied = 0.0
    for parameters, group, stride in ((dense, ranks, inner), (experts, ranks // mesh.expert, inner * mesh.expert)):
        bandwidth = _bandwidth(gpu, group, stride)
        gathered += gathers * 2 * parameters * _part(group) / bandwidth
        scattered += 4 * parameters * _part(group) / bandwidth
    if mesh.replicate > 1:
        held = (dense + shape.expert_parameters * share / mesh.tensor) / ranks
        copied = 2 * 4 * held * _part(mesh.replicate) / _bandwidth(gpu, mesh.replicate, inner * ranks)
    return gathered, scattered, copied


def _part(group: int) -> float:
    """The share of a tensor that a rank does not have already."""
    return (group - 1) / group


def _bandwidth(gpu: Gpu, group: int, stride: int) -> float:
    """Bytes per second of a collective over `group` ranks that stand `stride` devices apart."""
    if group * stride <= NODE:
        return gpu.nvlink * LINK_SHARE
    return min(gpu.nvlink, gpu.network * max(1, NODE // stride)) * LINK_SHARE


def _optimizer(shape: Shape, config: TrainingConfig, mesh: MeshConfig, kernels: Reached) -> float:
    """The update of this device's share of the parameters."""
    devices = mesh.tensor * mesh.pipeline * max(1, mesh.shard) * mesh.context
    seconds = OPTIMIZER_BYTES * shape.parameters / devices / kernels.copy
    if isinstance(config.optimizer, MuonConfig):
        flops = 0.0
        for block in shape.blocks:
            for matrix in block.matrices:
                short, long = sorted((matrix.out, matrix.into))
                flops += NEWTON_SCHULZ_FLOPS * short**2 * long * matrix.experts * block.count
        seconds += config.optimizer.iterations * flops / devices / (kernels.bfloat16 * KERNEL_SHARE)
    return seconds
