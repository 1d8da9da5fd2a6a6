"""Finds the layer where a number stopped being finite, by running the step's passes again and checking every module's output.

The step was not taken, so its weights are still there. The first module whose output is not finite is to blame; if all
outputs are finite the trouble began in the backward pass, and the gradient nearest to the loss that is not finite says where.
This waits for the device at every module: it runs once, before the run ends.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, distributed, nn
from torch.distributed.tensor import DTensor

from ingot.train.parallel.layout import world_size
from ingot.workspace.errors import listed

SHOWN = 3


def locate(model: nn.Module, forward: Callable[[], object], norms: Mapping[str, Tensor]) -> str:
    """Says in words where `forward` or its backward pass is not finite. `norms` are those of the gradients, by parameter.

    Every rank runs all passes, because ranks exchange data in them; the most specific of all answers counts.
    """
    outputs: list[str] = []
    with torch.no_grad(), torch.compiler.set_stance("force_eager"), _watching(model, outputs):
        forward()
    weights = [name for name, parameter in model.named_parameters() if not _finite(parameter)]
    gradients = [name for name, norm in norms.items() if not _finite(norm)]
    mine = _answer(weights, outputs, gradients[::-1])
    found: list[tuple[int, float, str]] = [mine] * world_size()
    if len(found) > 1:
        distributed.all_gather_object(found, mine)
    return min(found)[2]


def _answer(weights: Sequence[str], outputs: Sequence[str], gradients: Sequence[str]) -> tuple[int, float, str]:
    """In words, after two numbers: of the answers of all ranks the smallest tells most. Names in the order in which they ran.

    The stages of a pipeline know different layers: of outputs the first one counts, of gradients the last.
    """
    if weights:
        return 0, _depth(weights[0]), f"weights that are not finite: {listed(weights, SHOWN)}"
    if outputs:
        return 1, _depth(outputs[0]), f"first output that is not finite: {outputs[0]}"
    if gradients:
        bad = f"gradients that are not, from the loss back: {listed(gradients, SHOWN)}"
        return 2, -_depth(gradients[0]), f"all outputs are finite; {bad}"
    return 3, 0, "outputs and single gradients are finite, their sum is not"


def _depth(name: str) -> float:
    """The number of the layer that a module or parameter belongs to; the embedding comes before all, the head after."""
    layer = re.match(r"blocks\.(\d+)\b", name)
    if layer is not None:
        return int(layer[1])
    return -1 if name.startswith("embedding") else math.inf


@contextmanager
def _watching(model: nn.Module, seen: list[str]) -> Iterator[None]:
    """A context in which the names of modules whose output is not finite are added to `seen`, in the order in which they ran."""

    def watch(name: str) -> Callable[[nn.Module, Any, Any], None]:
        def look(module: nn.Module, inputs: Any, output: Any) -> None:
            if not all(_finite(tensor) for tensor in _tensors(output)):
                seen.append(f"{name} ({type(module).__name__})")

        return look

    hooks = [module.register_forward_hook(watch(name)) for name, module in model.named_modules() if name]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def _tensors(output: Any) -> Iterable[Tensor]:
    if isinstance(output, Tensor):
        return [output]
    return [each for each in output if isinstance(each, Tensor)] if isinstance(output, tuple | list) else []


def _finite(tensor: Tensor) -> bool:
    local = tensor.to_local() if isinstance(tensor, DTensor) else tensor
    return not local.is_floating_point() or bool(torch.isfinite(local).all())
