"""CUDA graphs: the passes of a step are captured once for each shape of its batches, and replayed from then on.

A step of a small model is thousands of kernels of some microseconds each; launching them one by one takes the host longer than
the device needs to compute them. A graph is launched as a whole. A graph holds everything from the bf16 copies of the weights to
the last gradient; clipping, the guards and the optimizer come after it and are few.

    first times with a shape     as usual, so that everything is compiled and loaded
    then                         captured: the kernels are recorded, nothing is computed
    from then on                 batches are copied to where the graph reads them, and it is replayed

A captured graph reads and writes the same memory every time. Its sums, which the loop reads a step later, are copied out;
gradients are used before the next replay. A shape is that of all tensors of a step's batches, and what the host knows of them:
packed documents have a few (tokens/metadata.py rounds them up). Graphs share their memory and the gradients: one runs at a time.

Numbers of the host are captured as they are. So a loss must be made of terms that cannot change (frozen dataclasses), and the
temperature is a part of the shape. Terms that compare tokens (`by_token = False`) ask the device which belong together.

A part that waits for the device in the middle of a pass cannot be captured; nor is there a graph where memory does not suffice
for it and for a step of another shape at the same time. Both are checked before: a capture that fails leaves torch in the middle
of it. The run then says so and goes on without graphs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ingot.kernels.capture import capturing
from ingot.model.count import count
from ingot.model.transformer import Transformer
from ingot.tokens.batch import Batch
from ingot.train.config import TrainingConfig
from ingot.train.losses.terms import LossTerm
from ingot.train.passes import Passes, Sums
from ingot.workspace.errors import RecipeError

WARM = 2  # times that a shape is computed as usual
MOST = 16  # captured graphs; shapes beyond that are always computed as usual
SHAPES = 64  # different ones; a run with more has nothing to gain
MEMORY_NEEDED = 2.2  # times the memory of a step: one in the graph, one for a step of another shape, and a margin
SHORT_FLOPS = 4e12  # of a layer, both passes: some 8 ms on an H100, in which the host launches its kernels twice


def make_graphs(config: TrainingConfig, passes: Passes, say: Callable[[str], None]) -> Graphs | None:
    """What captures the passes of a run, or None; `graphs: on` where that is impossible is an error that says why."""
    reason = _obstacle(config, passes)
    if config.graphs == "on" and reason is not None:
        raise RecipeError(
            f"graphs: on, but {reason}", place="graphs", fix="leave `graphs` out: auto uses them where they help"
        )
    if config.graphs == "off" or reason is not None:
        return None
    return Graphs(passes, say, short_pass(passes.model, config.sequence_length) if config.graphs == "auto" else None)


def short_pass(model: Transformer, length: int) -> int:
    """The tokens of a pass that is too short for the host to be ahead of the device."""
    return int(SHORT_FLOPS * len(model.blocks) / count(model.config).training_flops_per_token(length))


def _obstacle(config: TrainingConfig, passes: Passes) -> str | None:
    """Why a run has no graphs."""
    if passes.device.type != "cuda":
        return "the run is on a CPU"
    if passes.layout is not None:
        return "the work is divided over several processes, whose exchanges are not captured"
    for term in passes.objective.terms:
        if not term.by_token:
            return f"the term {term.name!r} of its loss compares tokens, whose numbers are known on the device alone"
        if not is_frozen(term):
            return f"the term {term.name!r} of its loss is not a frozen dataclass: what changes in it would not be seen"
    if config.measure_noise:
        return "measure_noise looks at the gradients between two passes"
    return None


def is_frozen(term: LossTerm) -> bool:
    """Whether nothing of a term can change between two steps."""
    return bool(getattr(vars(type(term)).get("__dataclass_params__"), "frozen", False))


@dataclass
class CapturedGraph:
    """A graph with its input buffers, gradients and sums."""

    graph: torch.cuda.CUDAGraph
    inputs: list[Tensor]
    gradients: list[tuple[nn.Parameter, Tensor]]
    sums: Sums

    def replay(self, inputs: Sequence[Tensor]) -> Sums:
        """Compute with these inputs: fills the gradients, returns sums that are the caller's own."""
        for buffer, given in zip(self.inputs, inputs, strict=True):
            buffer.copy_(given, non_blocking=True)
        self.graph.replay()
        _give(self.gradients)
        return self.sums.map(Tensor.clone)


class Graphs:
    """Runs the passes of a step, from captured graphs where there are some. `say` tells the user why there are none.

    Steps with a pass of more than `short` tokens are not captured.
    """

    def __init__(self, passes: Passes, say: Callable[[str], None], short: int | None = None) -> None:
        self.passes, self.say, self.short = passes, say, short
        self.captured: dict[Hashable, CapturedGraph] = {}
        self.seen: Counter[Hashable] = Counter()
        self.stream = torch.cuda.Stream(passes.device)
        self.pool = torch.cuda.graph_pool_handle()
        self.gradients: list[tuple[nn.Parameter, Tensor]] = []  # where all graphs put them
        self.possible = True  # to capture more
        self.watched = False  # a step has shown that nothing in it waits for the device

    def run(self, batches: Sequence[Batch], denominators: Mapping[str, Tensor], tokens: Tensor) -> Sums:
        """Fill the gradients with those of the whole step; the same as `Passes.run`."""
        key = self.passes.objective.temperature, *(shape_of(batch) for batch in batches)
        if key in self.captured:
            return self.captured[key].replay(inputs_of(batches, denominators, tokens))
        long = self.short is not None and max(batch.tokens.numel() for batch in batches) > self.short
        if long or not self.possible:
            return self.passes.run(batches, denominators, tokens)
        self.seen[key] += 1
        if len(self.seen) > SHAPES:
            self._give_up("batches have too many shapes")
        elif self.seen[key] > WARM and len(self.captured) < MOST and self._suffices():
            self._capture(key, batches, denominators, tokens)
            return self.captured[key].replay(inputs_of(batches, denominators, tokens))
        watched = self.seen[key] == WARM and not self.watched
        return self._on_stream(lambda: self._compute(batches, denominators, tokens, watched))

    def _compute(
        self, batches: Sequence[Batch], denominators: Mapping[str, Tensor], tokens: Tensor, watched: bool
    ) -> Sums:
        """The passes as usual; `watched`, whatever waits for the device in them shows that they cannot be captured."""
        if not watched:
            return self.passes.run(batches, denominators, tokens)
        self.watched = True
        torch.cuda.set_sync_debug_mode("error")
        try:
            return self.passes.run(batches, denominators, tokens)
        except RuntimeError as error:
            if "synchronizing" not in str(error):
                raise
            self._give_up("a part of the model or of its loss waits for the device in the middle of a pass")
        finally:
            torch.cuda.set_sync_debug_mode("default")
        for parameter in self.passes.model.parameters():
            parameter.grad = None  # left by the failed pass
        return self.passes.run(batches, denominators, tokens)

    def _suffices(self) -> bool:
        """Whether there is memory for a graph and for a step of another shape; both need at most what steps needed so far."""
        device = self.passes.device
        torch.cuda.synchronize(device)
        torch.cuda.empty_cache()  # the memory of the eager steps would lie idle next to the graph's
        need = torch.cuda.max_memory_allocated(device) - torch.cuda.memory_allocated(device)
        enough = torch.cuda.mem_get_info(device)[0] > MEMORY_NEEDED * need
        if not enough:
            self._give_up("a graph and a step of another shape do not fit into the device's memory together")
        return enough

    def _give_up(self, reason: str) -> None:
        self.possible = False
        self.say(f"no CUDA graphs from here on: {reason}")

    def _on_stream(self, run: Callable[[], Sums]) -> Sums:
        """Run on the stream that graphs are captured on: what is set up for one stream does not serve another."""
        here = torch.cuda.current_stream(self.passes.device)
        self.stream.wait_stream(here)
        with torch.cuda.stream(self.stream):
            sums = run()
        here.wait_stream(self.stream)
        return sums

    def _capture(
        self, key: Hashable, batches: Sequence[Batch], denominators: Mapping[str, Tensor], tokens: Tensor
    ) -> None:
        """Capture the kernels of a step with batches of this shape."""
        device = self.passes.device
        here = [batch.map(lambda tensor: tensor.to(device, copy=True)) for batch in batches]
        counts, total = {name: value.clone() for name, value in denominators.items()}, tokens.clone()
        graph = torch.cuda.CUDAGraph()
        # other threads (the one that makes batches) may allocate memory meanwhile
        with capturing(graph, self.pool, self.stream, errors="thread_local"):
            if self.gradients:
                torch._foreach_zero_([gradient for _, gradient in self.gradients])
                _give(self.gradients)
            sums = self.passes.run(here, counts, total)
        self.gradients = [(each, each.grad) for each in self.passes.model.parameters() if each.grad is not None]
        self.captured[key] = CapturedGraph(graph, inputs_of(here, counts, total), self.gradients, sums)


def shape_of(batch: Batch) -> Hashable:
    """All of a batch but the values of its tensors."""
    metadata = batch.metadata
    known = None if metadata is None else (metadata.longest, metadata.whole, metadata.scored is None)
    return tuple(batch.streams), known, tuple((tensor.dtype, tensor.shape) for tensor in tensors_of(batch))


def tensors_of(batch: Batch) -> list[Tensor]:
    """All tensors of a batch, in a fixed order."""
    found: list[Tensor] = []

    def keep(tensor: Tensor) -> Tensor:
        found.append(tensor)
        return tensor

    batch.map(keep)
    return found


def inputs_of(batches: Sequence[Batch], denominators: Mapping[str, Tensor], tokens: Tensor) -> list[Tensor]:
    """Everything that differs between two steps."""
    return [*(tensor for batch in batches for tensor in tensors_of(batch)), *denominators.values(), tokens]


def _give(gradients: Sequence[tuple[nn.Parameter, Tensor]]) -> None:
    for parameter, gradient in gradients:
        parameter.grad = gradient
