"""Where a number stopped being finite: the step's passes once more, this time looking at what every module puts out.

The step was not taken, so its weights are still there. The first module whose output is not finite is the place; if all
outputs are finite the trouble began in the backward pass, and the gradient nearest to the loss that is not finite says where.
This waits for the device at every module: it runs once, before the run ends.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, distributed, nn
from torch.distributed.tensor import DTensor

from ingot.train.parallel.layout import world_size

SHOWN = 3


def locate(model: nn.Module, forward: Callable[[], object], norms: Mapping[str, Tensor]) -> str:
    """Says in words where `forward` or its backward pass is not finite. `norms` are those of the gradients, by parameter.

    Every rank does all of it, because the passes talk to the other ranks; the most telling answer of all of them counts.
    """
    outputs: list[str] = []
    with torch.no_grad(), torch.compiler.set_stance("force_eager"), _watching(model, outputs):
        forward()
    weights = [name for name, parameter in model.named_parameters() if not _finite(parameter)]
    gradients = [name for name, norm in norms.items() if not _finite(norm)]
    answers = [
        (0, f"weights that are not finite: {_some(weights)}", weights),
        (1, f"first output that is not finite: {outputs[0] if outputs else ''}", outputs),
        (2, f"all outputs are finite; gradients that are not, from the loss back: {_some(gradients[::-1])}", gradients),
        (3, "outputs and single gradients are finite, their sum is not", [""]),
    ]
    mine = next((rank, text) for rank, text, found in answers if found)
    found: list[tuple[int, str]] = [mine] * world_size()
    if len(found) > 1:
        distributed.all_gather_object(found, mine)
    return min(found)[1]


@contextmanager
def _watching(model: nn.Module, seen: list[str]) -> Iterator[None]:
    """Inside, the names of modules whose output is not finite are added to `seen`, in the order in which they ran."""

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


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:SHOWN]) + (f" and {len(names) - SHOWN} more" if len(names) > SHOWN else "")
