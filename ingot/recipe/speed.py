"""How long a training step takes on many devices: a small model of kernels and networks, for choosing between layouts.

    step = passes · pass / (1 − bubble) + gradients' exchange + optimizer
    pass = matrix products + mixing + elementwise + head, forward and backward, + recomputation, + what is not hidden of
           the communication
    bubble = (p − 1) / (v·m + p − 1)         p stages, v of them per device, m passes (1F1B, interleaved: arXiv 2104.04473)
    MFU  = model FLOPs (model/count.py: causal attention counts half) / (devices · stated bfloat16 speed · step)

A matrix product [M, K]·[K, N] runs in tiles of 128 × 256 on the device's multiprocessors; the last, partly filled wave costs as
much as a full one, and no product is faster than the memory it reads and writes. Elementwise work is bytes over the memory's
bandwidth. All speeds are those that were measured (hardware.py) times KERNEL_SHARE.

Communication per pass, n tokens of the device's rows, D width, 2 bytes each:

    tensor    4 all-reduces of n·D per block (forward 2, backward 2; 2 more with recomputation): not hidden
    context   keys and values gathered, their gradients scattered, per block: not hidden
    expert    4 exchanges of n·K·D per mixture (send and bring back, forward and backward): not hidden
    shard     weights gathered forward and, if they were freed, backward; gradients scattered in float32: hidden up to HIDDEN
              of the pass. In a pipeline both happen once a step: torch's stages keep weights and gradients whole in between
    replicate gradients summed over the copies, once per step: hidden up to HIDDEN of the last pass

An exchange over a group that leaves the node runs at the adapters of the group's devices in one node together, but not faster
than NVLink: eight 400 Gb/s adapters make 400 GB/s, where 320 to 350 were seen on 16 nodes (Smol Training Playbook, 2025).
Not modelled: activations sent between pipeline stages, unequal expert loads, stragglers, checkpoints, failures.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from ingot.optim.config import MuonConfig
from ingot.recipe.hardware import NODE, Gpu, Reached
from ingot.recipe.memory import passes_per_step, rows_per_pass, vocabulary_ranks
from ingot.recipe.shape import Matrix, Shape
from ingot.train.config import TrainingConfig
from ingot.train.parallel.config import MeshConfig

KERNEL_SHARE = 0.82
"""Of a kernel's speed alone, what it reaches inside a step (clocks under load, gaps between kernels). Fitted to one reading:
65,885 tokens/s of a plain compiled 1.24B model on one H200."""
FLEET_SHARE = 0.75
"""Of a device alone, what it reaches in a run of more than one node: exchanges that hide behind kernels take bandwidth from
them, and the slowest device sets the pace. Not derived: with it, published runs of dense models under FSDP (published.py)
come out 1.1 to 1.3 times as fast as they were."""
LINK_SHARE = 0.8
"""Of a link's stated bandwidth, what collectives reach."""
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


@dataclass(frozen=True)
class Speed:
    """One step on all devices; seconds, and what they are made of."""

    step: float
    compute: float
    communication: float
    bubble: float
    optimizer: float


def step_speed(shape: Shape, config: TrainingConfig, mesh: MeshConfig, gpu: Gpu, kernels: Reached) -> Speed:
    """The estimate for a mesh whose `shard` is resolved."""
    data = mesh.replicate * max(1, mesh.shard)
    rows = rows_per_pass(config, data)
    devices = data * mesh.tensor * mesh.context * mesh.pipeline
    passes = passes_per_step(config, data, rows) or 1
    tokens = rows * config.sequence_length / mesh.context
    share = -(-shape.depth // mesh.pipeline) / shape.depth
    forward, backward, recomputed = _compute(shape, config, mesh, gpu, kernels, tokens)
    compute = (forward + backward + recomputed) * share + _head(
        shape, gpu, kernels, tokens, vocabulary_ranks(shape, mesh)
    )
    inside = _inside(shape, config, mesh, gpu, tokens) * share
    gathered, scattered, copied = _sharding(shape, mesh, gpu, share)
    if mesh.pipeline > 1:  # once for all passes of the step
        gathered, scattered, copied = 0.0, 0.0, copied + scattered + gathered
    exposed = max(0.0, gathered + scattered - HIDDEN * compute)
    last = max(0.0, copied - HIDDEN * compute)
    one_pass = compute + inside + exposed
    bubble = (mesh.pipeline - 1) / (mesh.pipeline_stages * passes + mesh.pipeline - 1)
    optimizer = _optimizer(shape, config, mesh, kernels)
    fleet = FLEET_SHARE if devices > NODE else 1.0
    running = passes * one_pass / fleet
    return Speed(
        step=running / (1 - bubble) + last + optimizer,
        compute=passes * compute / fleet,
        communication=passes * (inside + exposed) / fleet + last,
        bubble=running / (1 - bubble) - running,
        optimizer=optimizer,
    )


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


def _compute(
    shape: Shape, config: TrainingConfig, mesh: MeshConfig, gpu: Gpu, kernels: Reached, tokens: float
) -> tuple[float, float, float]:
    """Forward, backward and recomputation of all blocks for one pass."""
    forward = recomputed = elementwise = 0.0
    dense = kernels.float8 if config.precision == "float8" else kernels.bfloat16
    for block in shape.blocks:
        products = mixing = 0.0
        for matrix in block.matrices:
            if matrix.experts == 1:
                products += product_seconds(matrix, tokens, dense, gpu, kernels, mesh.tensor)
            else:  # a device computes its own experts, with the rows of all `expert` ranks
                local = Matrix(
                    matrix.out, matrix.into, max(1, matrix.experts // mesh.expert), matrix.tokens * mesh.expert
                )
                products += product_seconds(local, tokens, kernels.grouped, gpu, kernels, mesh.tensor)
        flops = block.mixing_flops(config.sequence_length) * tokens / mesh.tensor
        mixing = flops / (kernels.attention * KERNEL_SHARE)
        moved = (
            STREAM_BYTES * shape.width * (1 + block.routed / 2) + MIXER_BYTES * block.mixed + INNER_BYTES * block.inner
        )
        touched = moved * tokens / mesh.tensor / kernels.copy
        forward += (products + mixing) * block.count
        elementwise += touched * block.count
        match config.activations.keep:
            case "blocks":
                recomputed += (products + mixing + touched / 3) * block.count
            case "products":
                recomputed += touched / 3 * block.count
            case "budget":
                recomputed += (1 - config.activations.budget) * (products + mixing + touched / 3) * block.count
    return forward + elementwise / 3, 2 * forward + elementwise * 2 / 3, recomputed


def _head(shape: Shape, gpu: Gpu, kernels: Reached, tokens: float, ranks: int) -> float:
    """Logits, their loss and both gradients: three products, divided over `ranks`; in a pipeline the others wait."""
    if not shape.vocabulary:
        return 0.0
    matrix = Matrix(shape.vocabulary, shape.width)
    product = product_seconds(matrix, tokens, kernels.bfloat16, gpu, kernels, ranks)
    return 3 * product + LOGIT_BYTES * tokens * shape.vocabulary / ranks / kernels.copy


def _inside(shape: Shape, config: TrainingConfig, mesh: MeshConfig, gpu: Gpu, tokens: float) -> float:
    """Communication inside the blocks of one pass."""
    seconds, again = 0.0, 1.5 if config.activations.keep == "blocks" else 1.0
    for block in shape.blocks:
        if mesh.tensor > 1:
            volume = 4 * again * 2 * 2 * tokens * shape.width  # an all-reduce moves its volume twice
            seconds += volume * _part(mesh.tensor) / _bandwidth(gpu, mesh.tensor, 1) * block.count
        if mesh.context > 1:
            volume = (again + 1) * 2 * tokens * mesh.context * block.key_value_width / mesh.tensor
            seconds += volume * _part(mesh.context) / _bandwidth(gpu, mesh.context, mesh.tensor) * block.count
        if mesh.expert > 1 and block.routed:
            volume = 4 * again * 2 * tokens * block.routed * shape.width / mesh.tensor
            near = min(1.0, max(1, NODE // mesh.tensor) / mesh.expert)
            link = near / (gpu.nvlink * LINK_SHARE) + (1 - near) / (gpu.network * LINK_SHARE)
            seconds += volume * _part(mesh.expert) * link * block.count
    return seconds


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
    """What of a tensor a rank does not have already."""
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
