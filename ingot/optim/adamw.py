"""AdamW (Loshchilov and Hutter, arXiv 1711.05101) on sharded and unsharded parameters.

    m ← β₁ m + (1 − β₁) g       v ← β₂ v + (1 − β₂) g²       p ← p − lr · ( m̂ / (√v̂ + ε) + λ p ),      m̂, v̂ without their bias

The update is elementwise, so each rank hands its shards to torch's fused kernel, one call for a whole group. torch's class would
hand over DTensors, and those of one call must live on one mesh: experts do not.

`grad_scale` (gradients are divided by it) and `found_inf` (1: the step is not taken) are tensors that a trainer may set before a
step, as torch's fused optimizers have them: clipping and skipping then never wait for the device.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from torch.optim.adamw import adamw


def local(tensor: Tensor) -> Tensor:
    """This rank's shard, sharing memory; the tensor itself where it is not sharded."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def local_gradient(parameter: nn.Parameter) -> Tensor:
    """The gradient of this rank's shard."""
    gradient = parameter.grad
    assert gradient is not None
    if isinstance(gradient, DTensor) and isinstance(parameter, DTensor) and gradient.placements != parameter.placements:
        gradient = gradient.redistribute(placements=parameter.placements)
    return local(gradient)


class AdamW(torch.optim.Optimizer):
    """Groups have `lr`, `weight_decay`, `betas` and `epsilon`; state is torch's: step, exp_avg, exp_avg_sq."""

    _step_supports_amp_scaling = True
    grad_scale: Tensor | None = None
    found_inf: Tensor | None = None

    def __init__(self, groups: Iterable[dict[str, Any]]) -> None:
        # `fused`: loading a state moves `step` to the device, where the kernel wants it
        super().__init__(groups, {"fused": True})

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> None:  # type: ignore[override]
        """Update all parameters that have a gradient."""
        assert closure is None
        for group in self.param_groups:
            self.update(group, [each for each in group["params"] if each.grad is not None])

    def update(self, group: dict[str, Any], parameters: list[nn.Parameter]) -> None:
        """One group's update."""
        if not parameters:
            return
        states = [self._moments(each) for each in parameters]
        adamw(
            [local(each) for each in parameters],
            [local_gradient(each) for each in parameters],
            [local(state["exp_avg"]) for state in states],
            [local(state["exp_avg_sq"]) for state in states],
            [],
            [state["step"] for state in states],
            fused=True,
            grad_scale=self.grad_scale,
            found_inf=self.found_inf,
            amsgrad=False,
            beta1=group["betas"][0],
            beta2=group["betas"][1],
            lr=group["lr"],
            weight_decay=group["weight_decay"],
            eps=group["epsilon"],
            maximize=False,
        )

    def _moments(self, parameter: nn.Parameter) -> dict[str, Any]:
        state: dict[str, Any] = self.state[parameter]
        if not state:
            state["step"] = torch.zeros((), dtype=torch.float32, device=parameter.device)
            for name in ("exp_avg", "exp_avg_sq"):
                state[name] = torch.zeros_like(parameter, memory_format=torch.preserve_format)
        return state


def take_step(optimizer: torch.optim.Optimizer, grad_scale: Tensor, found_inf: Tensor) -> None:
    """One step with gradients divided by `grad_scale`; none where `found_inf` is 1.

    AdamW and Muon take both as tensors and never wait for the device. An optimizer of the user's own, which knows neither, gets
    gradients that are divided already, and is not called at all where the step is skipped.
    """
    if isinstance(optimizer, AdamW):
        optimizer.grad_scale, optimizer.found_inf = grad_scale, found_inf
        optimizer.step()
    elif not found_inf.item():
        gradients = [each.grad for group in optimizer.param_groups for each in group["params"] if each.grad is not None]
        torch._foreach_mul_([local(each) for each in gradients], 1.0 / grad_scale)
        optimizer.step()
