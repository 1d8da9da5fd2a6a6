"""Muon for matrices (Keller Jordan, 2024) and AdamW for the rest, in one optimizer, on one device or many.

    M ← μ M + (1 − μ) G             U = (1 − μ) G + μ M   (Nesterov; else U = M)
    O = orthogonalise(U)            newton_schulz.py
    W ← W − lr · (scale · O + λ W)

scale "rms": 0.2·√max(rows, columns), with which O's entries have the size of AdamW's steps, so that its rates and decay carry
over (Moonlight, arXiv 2502.16982); "spectral": √max(1, rows/columns) (K. Jordan). A weight that holds several matrices is taken
apart first (model/matrices.py), with `split_heads` down to single heads (Muon Split: GLM-5, arXiv 2602.15763); stacked experts
are matrices each. Parameters of one shape are stacked and orthogonalised together.

Sharded parameters: momentum is elementwise and stays where the shard is. Then the stack of N equal parameters, each cut into
pieces, is resharded so that every rank has some of them whole (one all-to-all), orthogonalises those, and the way back:

    [N, rows, columns]    Shard(1) ──▶ Shard(0) ── orthogonalise ──▶ Shard(1)

Along mesh axes that cut a stack of experts between experts nothing moves; along axes that hold copies the work is divided too.
The result does not depend on the layout, beyond rounding.

On CUDA ranks exchange directions in bfloat16 and changes in float16. `grad_scale` and `found_inf`: see adamw.py.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor, Placement, Shard
from torch.distributed.tensor.placement_types import _StridedShard

from ingot.model.matrices import Rows, fused_weights
from ingot.model.order import ShardOrder, orders
from ingot.optim.adamw import AdamW, local, local_gradient
from ingot.optim.newton_schulz import iteration_dtype, orthogonalise, polynomials

AT_ONCE = 2**29  # entries of the matrices that are orthogonalised together: bounds the memory for intermediate results


class Muon(AdamW):
    """Groups have `half`: "muon" (with the fields of MuonConfig) or "adamw".

    `rows` describes fused weights, `orders` those whose rows lie in another order than the model's (model/order.py).
    """

    def __init__(
        self,
        groups: Iterable[dict[str, Any]],
        rows: Mapping[nn.Parameter, tuple[Rows, ...]],
        orders: Mapping[nn.Parameter, ShardOrder],
    ) -> None:
        super().__init__(groups)
        self.rows, self.orders = rows, orders

    def update(self, group: dict[str, Any], parameters: list[nn.Parameter]) -> None:
        if group["half"] == "adamw":
            super().update(group, parameters)
            return
        alike: dict[Hashable, list[nn.Parameter]] = {}
        for parameter in parameters:
            alike.setdefault(self._kind(parameter), []).append(parameter)
        # three loops and not one: the exchange of one kind runs while another kind is computed
        wholes = [gather(self._directions(group, members), members[0]) for members in alike.values()]
        changes = [
            scatter(self._orthogonalised(group, whole, members[0]), members[0])
            for whole, members in zip(wholes, alike.values(), strict=True)
        ]
        for change, members in zip(changes, alike.values(), strict=True):
            self._apply(group, members, change)

    def _kind(self, parameter: nn.Parameter) -> Hashable:
        """Parameters of one kind can be stacked."""
        where: Hashable = parameter.device
        if isinstance(parameter, DTensor):
            where = parameter.device_mesh, parameter.placements
        return parameter.shape, parameter.dtype, where, self.rows.get(parameter)

    def _directions(self, group: dict[str, Any], parameters: list[nn.Parameter]) -> Tensor:
        """The shards of U of all parameters, stacked; the momentum is updated on the way."""
        example, device = local(parameters[0]), parameters[0].device
        dtype = torch.bfloat16 if example.is_cuda and example.dtype != torch.float64 else example.dtype
        stack = torch.empty(len(parameters), *example.shape, dtype=dtype, device=device)
        inverse = None if self.grad_scale is None else 1.0 / self.grad_scale.to(device)
        skip = None if self.found_inf is None else self.found_inf.to(device) != 0
        ahead = group["momentum"] if group["nesterov"] else 1.0
        for parameter, direction in zip(parameters, stack.unbind(), strict=True):
            state = self.state[parameter]
            if not state:
                state["momentum"] = torch.zeros_like(parameter, memory_format=torch.contiguous_format)
            momentum, gradient = local(state["momentum"]).view(-1), local_gradient(parameter).reshape(-1)
            advance = _fast(_advance, device)
            advance(momentum, gradient, direction.view(-1), group["momentum"], ahead, inverse, skip)
        return stack

    def _orthogonalised(self, group: dict[str, Any], whole: Tensor, example: nn.Parameter) -> Tensor:
        """`whole` [N, ..., rows, columns] with each of its matrices replaced by its orthogonalised and scaled self."""
        steps = polynomials(group["coefficients"], group["iterations"])
        here, order = local(whole), self.orders.get(example)
        if order is not None:
            here = here.index_select(-2, order.rows.argsort().to(here.device))
        changes = torch.empty(here.shape, dtype=iteration_dtype(here), device=here.device)
        few = max(1, AT_ONCE // example.numel())
        for part in self.rows.get(example) or (Rows(0, 1, example.shape[-2], example.shape[-2]),):
            for some, into in zip(here.split(few), changes.split(few), strict=True) if len(here) else ():
                given, view = _stacked(part.of(some), group["split_heads"]), part.of(into)
                found = _stacked(view, group["split_heads"])
                _, height, width = given.shape
                orthogonalise(given, steps, update_scale(height, width, group["scale"]), out=found)
                if found.data_ptr() != view.data_ptr():  # heads that lie apart have been stacked by a copy
                    view.copy_(found.view(view.shape))
        if order is not None:
            changes = changes.index_select(-2, order.rows.to(here.device))
        if not isinstance(whole, DTensor):
            return changes
        return DTensor.from_local(
            changes, whole.device_mesh, whole.placements, run_check=False, shape=whole.shape, stride=whole.stride()
        )

    def _apply(self, group: dict[str, Any], parameters: list[nn.Parameter], changes: Tensor) -> None:
        device = changes.device
        taken = 1.0 if self.found_inf is None else 1.0 - self.found_inf.to(device)
        precise = torch.promote_types(parameters[0].dtype, torch.float32)
        rate = torch.as_tensor(group["lr"] * taken, dtype=precise, device=device)
        for parameter, change in zip(parameters, changes.unbind(), strict=True):
            _fast(_apply, device)(local(parameter).view(-1), change.reshape(-1), rate, group["weight_decay"])


def muon_of(groups: Iterable[dict[str, Any]], model: nn.Module) -> Muon:
    """Muon for the parameters of a model, which says what its weights are made of."""
    named, fused, ordered = list(model.named_parameters()), fused_weights(model), orders(model)
    return Muon(
        groups,
        rows={each: fused[name] for name, each in named if name in fused},
        orders={each: ordered[name] for name, each in named if name in ordered},
    )


def _stacked(view: Tensor, split_heads: bool) -> Tensor:
    """[..., heads, width, columns] as matrices [N, rows, columns]: of single heads, or of all together."""
    matrices = view if split_heads else view.flatten(-3, -2)
    return matrices.reshape(-1, *matrices.shape[-2:])


def _advance(
    momentum: Tensor,
    gradient: Tensor,
    direction: Tensor,
    decay: float,
    ahead: float,
    inverse: Tensor | None,
    skip: Tensor | None,
) -> None:
    """One step of the momentum; `direction` becomes U. A skipped step does not change the momentum, whatever the gradient is."""
    gradient = gradient if inverse is None else gradient * inverse
    gradient = gradient if skip is None else torch.where(skip, momentum, gradient)
    momentum.lerp_(gradient, 1 - decay)
    direction.copy_(gradient.lerp(momentum, ahead))


def _apply(parameter: Tensor, change: Tensor, rate: Tensor, weight_decay: float) -> None:
    """W ← W − rate · (change + λ W)."""
    parameter.sub_((change.to(parameter.dtype) + weight_decay * parameter) * rate.to(parameter.dtype))


@cache
def _compiled(function: Callable[..., None]) -> Callable[..., None]:
    return torch.compile(function, dynamic=True)


def _fast(function: Callable[..., None], device: torch.device) -> Callable[..., None]:
    """Compiled into one pass over memory on CUDA, where memory traffic takes the time."""
    return _compiled(function) if device.type == "cuda" else function


def update_scale(rows: int, columns: int, kind: str) -> float:
    """The factor on an orthogonal update."""
    return 0.2 * max(rows, columns) ** 0.5 if kind == "rms" else max(1.0, rows / columns) ** 0.5


def gather(stack: Tensor, example: nn.Parameter) -> Tensor:
    """This rank's shards of N parameters like `example` become some of these parameters, whole."""
    if not isinstance(example, DTensor):
        return stack
    cut = [_behind_stack(each) for each in example.placements]
    shape = torch.Size((len(stack), *example.shape))
    stride = torch.empty(shape, device="meta").stride()
    sharded = DTensor.from_local(stack, example.device_mesh, cut, run_check=False, shape=shape, stride=stride)
    experts = range(1, example.dim() - 1)  # axes in front of a matrix: a cut there leaves it whole
    whole = [each if isinstance(each, Shard | _StridedShard) and each.dim in experts else Shard(0) for each in cut]
    return sharded.redistribute(placements=whole)


def scatter(whole: Tensor, example: nn.Parameter) -> Tensor:
    """This rank's shards of all N parameters."""
    if not isinstance(whole, DTensor):
        return whole
    assert isinstance(example, DTensor)
    return whole.redistribute(placements=[_behind_stack(each) for each in example.placements]).to_local()


def _behind_stack(placement: Placement) -> Placement:
    """A parameter's placement in a stack of such parameters."""
    if isinstance(placement, _StridedShard):
        return _StridedShard(placement.dim + 1, split_factor=placement.split_factor)
    return Shard(placement.dim + 1) if isinstance(placement, Shard) else placement
