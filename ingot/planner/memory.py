"""Estimates the peak memory of one device in a training stage, by parts, with a few constants fitted to measurements.

    weights       4 B · parameters of this device (float32 masters)
    gradients     4 B · parameters, as far as they exist when the activations do: all of them from the second pass of a
                  step on; in a step of one pass they grow while activations are freed, and count only where they exceed them
    optimizer     8 B · parameters (AdamW, two moments); Muon keeps one momentum, 4 B, of the matrices of the blocks
    copies        2 B · parameters of all blocks on one device (train/bf16_copies.py), of gathered ones under FSDP; with float8
                  and a scale per tensor 1 B of every rounded weight, which waits for the backward pass
    activations   bytes per token and block (shape.py, by `activations.keep`) · tokens of a pass · passes in flight
                  + what one block computes again or holds while its gradient is taken, beyond the logits, which are gone then
    loss          a chunk of logits (its size: train/hardware.py), which become their gradient; the states and their gradient;
                  the head's gradient in float32
    workspace     a constant and a share for what kernels and the allocator hold in addition
    adapters      with `lora` only the adapters have gradients and moments; frozen weights take 4 B, or what their packed form
                  takes (lora_memory.py), and then no copy but that of the one in use
    sampler, reference, teacher, cache     of stages that sample (`Stage.memory`)

A device holds 1/(tensor · pipeline · shard · context) of the blocks; embedding and head are divided by `tensor` too where it
divides the vocabulary, and on one stage each. With a pipeline of p stages (1F1B) the first stage keeps the activations of
min(p, passes) passes of its L/p layers, of (p − 1)/v more with v interleaved stages, and between the passes of a step its weights
(in the products' dtype) and its gradients are whole on the ranks of `shard`.

Checked: against one H200 (see docs/planning.md).
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace

from ingot.inference.planned_memory import MASTER
from ingot.optim.config import MuonConfig
from ingot.planner.hardware import GIB
from ingot.planner.lora_memory import UNPACKED_BYTES, lora_sizes
from ingot.planner.shape import Shape
from ingot.train.config import TrainingConfig
from ingot.train.hardware import bytes_of_logits
from ingot.train.parallel.config import MeshConfig
from ingot.workspace.estimates import NOTHING, SamplerMemory

GRADIENT, MOMENT = 4, 4
"""Bytes of a weight's gradient, of one moment."""
BLOCKS_GATHERED = 2
"""Blocks whose whole weights are there at once: the one that computes, and the next one (FSDP gathers it ahead)."""
VALUE = 2
"""Bytes of a number in the products."""
BYTES_PER_STATE = 10
"""After the last block, per number of a state: normed states, their gradient, and the stream's gradient (float32)."""
TRANSIENT = 1.0
"""While a block's gradient is taken: further bytes, as a multiple of what the block keeps with `all`."""
WORKSPACE_BYTES = 512 * 1024**2
"""Matrix product and attention kernels' own memory, indices, tokens, statistics."""
WORKSPACE_SHARE = 0.02
"""Blocks of the allocator that are not filled, as a share of all the rest."""
RESERVED_SHARE, CONTEXT_BYTES = 0.05, int(0.6 * GIB)
"""Memory beyond the allocator's peak of use (fragmentation), and CUDA's own: only for the question whether a run fits."""


@dataclass(frozen=True)
class DeviceMemory:
    """Bytes on one device at the peak, by part. `total` compares with torch.cuda.max_memory_allocated()."""

    weights: int
    gradients: int
    optimizer: int
    copies: int
    activations: int
    loss: int
    workspace: int
    sampler: int = 0
    reference: int = 0
    teacher: int = 0
    cache: int = 0

    @property
    def total(self) -> int:
        return sum(self.as_json().values())

    @property
    def needed(self) -> int:
        """The memory that a device must have for a run to fit."""
        return int(self.total * (1 + RESERVED_SHARE)) + CONTEXT_BYTES

    def as_json(self) -> dict[str, int]:
        """The parts."""
        return asdict(self)


def memory(
    shape: Shape, config: TrainingConfig, mesh: MeshConfig, device: int, *, sampling: SamplerMemory = NOTHING
) -> DeviceMemory:
    """The estimate for the most loaded device, one of `device` bytes, of a mesh whose `shard` is resolved.

    `sampling`: what the stage also holds for sampling (`Stage.memory`).
    """
    training = _training(shape, config, mesh, device)
    if not sampling.before:
        return replace(training, **sampling.parts)
    # a process by itself samples from the model that it trains
    whole = 0 if sampling.whole else MASTER * shape.parameters
    sampled = DeviceMemory(whole, 0, 0, 0, 0, 0, WORKSPACE_BYTES, **sampling.parts)
    return max(training, sampled, key=lambda one: one.total)


def _training(shape: Shape, config: TrainingConfig, mesh: MeshConfig, device: int) -> DeviceMemory:
    stages, ranks, data = mesh.pipeline, max(1, mesh.shard) * mesh.context, mesh.replicate * max(1, mesh.shard)
    rows = rows_per_pass(config, data)
    passes = passes_per_step(config, data, rows)
    tokens = rows * config.sequence_length / mesh.context

    share = -(-shape.depth // stages) / shape.depth  # of the layers, on one stage
    vocabulary = vocabulary_ranks(shape, mesh)
    ends = (
        shape.embedding + shape.head if stages == 1 else max(shape.embedding, shape.head)
    ) / vocabulary + shape.width
    blocks = shape.block_parameters * share / mesh.tensor
    held = (blocks + ends) / ranks
    muon = shape.block_matrices * share / mesh.tensor / ranks if isinstance(config.optimizer, MuonConfig) else 0.0

    in_flight = min(stages, passes or stages) + ((stages - 1) / mesh.pipeline_stages if mesh.pipeline_stages > 1 else 0)
    keep, budget = config.activations.keep, config.activations.budget
    per_token = sum(block.kept(keep, budget, mesh.tensor) * block.count for block in shape.blocks)
    kept = tokens * (VALUE * per_token - _saved_by_float8(shape, config, mesh)) * share * in_flight
    largest = max(block.kept("all", tensor=mesh.tensor) for block in shape.blocks)
    logits = min(bytes_of_logits(device), VALUE * tokens * shape.vocabulary / vocabulary)
    whole = _in_use(shape, mesh, shape.depth * share) + ends  # what FSDP gathers of this device's layers
    gradients = GRADIENT * (whole if stages > 1 and ranks > 1 else held)
    gradients = gradients if passes != 1 else max(0.0, gradients - kept)

    weights = MASTER * held
    remembered = 2 if isinstance(config.optimizer, MuonConfig) else config.optimizer.state_size
    moments = remembered * MOMENT * held - MOMENT * muon
    copies = VALUE * _copies(shape, mesh, share, ends, ranks) + _rounded_weights(shape, config, mesh) * share
    head = GRADIENT
    if config.lora is not None:
        sizes = lora_sizes(shape.model, config.lora)
        trained = (sizes.adapters * share + sizes.rows / vocabulary + sizes.heads) / ranks
        others = min((sizes.float32 - sizes.float32_of_blocks) / vocabulary, ends)
        frozen = (sizes.float32_of_blocks * share / mesh.tensor + others) / ranks
        weights = MASTER * (frozen + trained) + sizes.packed * share
        gradients, moments = GRADIENT * trained, config.optimizer.state_size * MOMENT * trained
        if config.lora.base != "float32":
            copies *= sizes.float32_of_blocks / shape.block_parameters
            copies += UNPACKED_BYTES[config.lora.base] * sizes.unpacked
        head = GRADIENT if config.lora.train_rows else 0

    parts = (
        weights,
        gradients,
        moments,
        copies,
        kept + max(0.0, TRANSIENT * VALUE * tokens * largest - logits),
        logits + _loss(shape, tokens, vocabulary, head),
    )
    return DeviceMemory(*(int(part) for part in (*parts, WORKSPACE_BYTES + WORKSPACE_SHARE * sum(parts))))


def _in_use(shape: Shape, mesh: MeshConfig, layers: float) -> float:
    """Parameters of so many layers, whole but for what `tensor` and `expert` divide."""
    local = shape.block_parameters - shape.expert_parameters * (1 - 1 / mesh.expert)
    return local / mesh.tensor * layers / shape.depth


def _copies(shape: Shape, mesh: MeshConfig, share: float, ends: float, ranks: int) -> float:
    """Weights in the dtype of the products. FSDP gathers whole blocks, and embedding and head for the whole pass (shard.py)."""
    if ranks > 1 and (mesh.pipeline > 1 or not mesh.reshard_after_forward):
        return _in_use(shape, mesh, shape.depth * share) + ends
    if mesh.tensor * mesh.pipeline * ranks * mesh.replicate == 1:
        return shape.block_parameters
    return _in_use(shape, mesh, BLOCKS_GATHERED) + (ends if ranks > 1 else 0)


def _saved_by_float8(shape: Shape, config: TrainingConfig, mesh: MeshConfig) -> float:
    """Bytes per token. What recomputation keeps are results of products, which are in bfloat16 in any case."""
    if config.precision != "float8" or config.activations.keep != "all":
        return 0.0
    return sum(block.saved_by_float8(config.float8_scaling, mesh.tensor) * block.count for block in shape.blocks)


def _rounded_weights(shape: Shape, config: TrainingConfig, mesh: MeshConfig) -> int:
    """Bytes of the weights in float8 that all layers keep from the forward to the backward pass."""
    if config.precision != "float8" or config.activations.keep != "all" or config.float8_scaling == "row":
        return 0
    return sum(block.float8(mesh.tensor).parameters * block.count for block in shape.blocks)


def vocabulary_ranks(shape: Shape, mesh: MeshConfig) -> int:
    """Over how many devices embedding and head are divided (train/parallel/vocabulary.py)."""
    return mesh.tensor if shape.vocabulary % mesh.tensor == 0 else 1


def _loss(shape: Shape, tokens: float, ranks: int, gradient: int) -> float:
    """Besides the chunk of logits: the states, the gradient of this device's part of the head if it trains, its bf16 copy."""
    head = (gradient + VALUE) * shape.vocabulary / ranks * shape.width
    return BYTES_PER_STATE * tokens * shape.width + head


def rows_per_pass(config: TrainingConfig, data: int) -> int:
    """Rows that a device takes at once, of the rows that a step gives it."""
    rows = max(1, config.micro_batch_tokens // config.sequence_length)
    if config.step_tokens is None:
        return rows
    return min(rows, -(-config.step_tokens // (config.sequence_length * data)))


def passes_per_step(config: TrainingConfig, data: int, rows: int) -> int | None:
    """Forward passes of a device in one step; None where the stage does not know its tokens in advance."""
    if not config.counts_tokens or config.step_tokens is None:
        return None
    return max(1, -(-config.step_tokens // (config.sequence_length * data * rows)))


def step_rows(config: TrainingConfig) -> int | None:
    """Rows of every step; None where the stage does not know its tokens in advance."""
    known = config.counts_tokens and config.step_tokens is not None
    return (config.step_tokens or 0) // config.sequence_length if known else None
