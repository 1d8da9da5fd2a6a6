"""The routed experts of a mixture, with stacked weights: each is applied to the tokens that chose it, and no token is dropped.

    out[n] = Σ_k weight[n, k] · expert_{index[n, k]}(x[n])          or, where the router weighs the input (Llama 4),
    out[n] = Σ_k expert_{index[n, k]}(weight[n, k] · x[n])

Two backends compute it:

* `loop`, the definition: expert after expert, its tokens picked out and its outputs added back.
* `grouped`, the default: the N·K choices are sorted by expert, so that each expert's rows lie together and both products are
  one grouped product each (kernels/experts/grouped_linear.py). In bfloat16, on Hopper and newer, nothing waits for the device.
  The few tokens of a decoding step on a GPU are not sorted: each reads its experts' matrices (kernels/experts/chosen_linear.py).

Sorting is stable and the sum over k has a fixed order, forward and backward, so that equal inputs give equal bits.

Shapes: N tokens, K choices of a token, R = N·K rows, E experts, D width, F inner width, I and O the widths of a product.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from ingot.kernels.experts.chosen_linear import chosen_linear, chosen_sum, kernel_allowed
from ingot.kernels.experts.grouped_linear import grouped_linear, has_kernel
from ingot.kernels.experts.sum_rows import sum_rows
from ingot.kernels.layer.swiglu import is_swiglu, swiglu
from ingot.model.feed_forward.dense import FeedForwardConfig, activate
from ingot.model.matrices import in_order
from ingot.model.order import local
from ingot.model.sharding import Sharding

HOPPER = (9, 0)  # compute capability


class Experts(nn.Module):
    """Stacked weights `gate_up` [E, 2F, D] (ungated: `up` [E, F, D]) and `down` [E, D, F], and their biases if any."""

    backend: Literal["grouped", "loop"] = "grouped"
    rounding: Callable[[Tensor], Tensor] | None = None  # of the weights, as in linear.py
    gate_up_copy: Tensor | None = None  # copies to multiply with instead (train/bf16_copies.py)
    up_copy: Tensor | None = None
    down_copy: Tensor | None = None

    def __init__(self, config: FeedForwardConfig, experts: int, width: int, *, weigh_input: bool = False) -> None:
        super().__init__()
        self.config, self.experts, self.weigh_input = config, experts, weigh_input
        self.is_swiglu = is_swiglu(config)
        self.first = "gate_up" if config.gated else "up"
        inner = 2 * config.width if config.gated else config.width
        self._add(self.first, inner, width)
        self._add("down", width, config.width)
        self.matrices = {"gate_up": in_order((1, config.width), (1, config.width))} if config.gated else {}

    def _add(self, name: str, out: int, into: int) -> None:
        weight = nn.Parameter(torch.empty(self.experts, out, into))
        nn.init.uniform_(weight, -(into**-0.5), into**-0.5)
        self.register_parameter(name, weight)
        bias = nn.Parameter(torch.zeros(self.experts, out)) if self.config.bias else None
        self.register_parameter(f"{name}_bias", bias)

    @property
    def capturable(self) -> bool:
        """Whether nothing waits for the device, so that a CUDA graph can hold it: torch's kernel on Hopper and newer."""
        weight = self.get_parameter(self.first)
        fast = not weight.is_cuda or torch.cuda.get_device_capability(weight.device) >= HOPPER
        return fast and weight.dtype == torch.bfloat16 and has_kernel(weight, *weight.shape[1:])

    def sharding(self) -> Sharding:
        return Sharding((self.first,), ("down",), ("width",), enter="inside")

    def forward(self, x_ND: Tensor, indices_NK: Tensor, weights_NK: Tensor) -> Tensor:
        """Σ_k of the chosen experts' outputs [N, D], in the dtype of the products."""
        device = x_ND.device.type
        dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else x_ND.dtype
        run = self._loop if self.backend == "loop" else self._grouped
        out_ND = run(x_ND.to(dtype), indices_NK, weights_NK).to(dtype)
        return out_ND * self.config.output_multiplier if self.config.output_multiplier != 1 else out_ND

    def _weights(self, name: str, dtype: torch.dtype) -> tuple[Tensor, Tensor | None]:
        """The stacked matrix, rounded if training is quantised, and its bias, in the dtype of the product."""
        weight, bias, copy = self.get_parameter(name), getattr(self, f"{name}_bias"), getattr(self, f"{name}_copy")
        if copy is None:
            copy = local(weight) if self.rounding is None else self.rounding(local(weight))
        return copy.to(dtype), None if bias is None else local(bias).to(dtype)

    def _loop(self, x_ND: Tensor, indices_NK: Tensor, weights_NK: Tensor) -> Tensor:
        first, first_bias = self._weights(self.first, x_ND.dtype)
        down, down_bias = self._weights("down", x_ND.dtype)
        out_ND = torch.zeros_like(x_ND, dtype=torch.promote_types(x_ND.dtype, weights_NK.dtype))
        for expert in indices_NK.unique().tolist():
            tokens, choice = (indices_NK == expert).nonzero(as_tuple=True)
            weight = weights_NK[tokens, choice, None]
            rows = x_ND[tokens] * weight.to(x_ND.dtype) if self.weigh_input else x_ND[tokens]
            inner = linear(rows, first[expert], None if first_bias is None else first_bias[expert])
            part = linear(self._activate(inner), down[expert], None if down_bias is None else down_bias[expert])
            out_ND = out_ND.index_add(0, tokens, (part if self.weigh_input else part * weight).to(out_ND.dtype))
        return out_ND

    def _grouped(self, x_ND: Tensor, indices_NK: Tensor, weights_NK: Tensor) -> Tensor:
        if self._are_few(x_ND, indices_NK):
            return self._few(x_ND, indices_NK, weights_NK)
        active = indices_NK.shape[1]
        expert_R = indices_NK.reshape(-1)
        # sorted row r is choice order_R[r] = token·K + k; a radix sort takes time by the bits of a number, hence int16
        order_R = expert_R.to(torch.int16).argsort(stable=True)
        sorted_R = torch.empty_like(order_R)  # the inverse: choice c is sorted row sorted_R[c]
        sorted_R.scatter_(0, order_R, torch.arange(len(order_R), device=x_ND.device))
        counts_E = torch.zeros(self.experts, dtype=torch.int32, device=x_ND.device)
        counts_E.scatter_add_(0, expert_R, torch.ones_like(expert_R, dtype=torch.int32))
        rows_RD = gather(x_ND, order_R // active, sorted_R, active)
        if self.weigh_input:
            rows_RD = rows_RD * gather(weights_NK.reshape(-1, 1), order_R, sorted_R).to(x_ND.dtype)
        out_RD = self._sorted(rows_RD, counts_E, expert_R[order_R])
        return combine(out_RD, None if self.weigh_input else weights_NK, order_R, sorted_R.view(-1, active))

    def _are_few(self, x_ND: Tensor, indices_NK: Tensor) -> bool:
        """Whether sorting would cost more than it saves; never where other ranks have some of the experts."""
        weight = local(self.get_parameter(self.first))
        return len(weight) == self.experts and kernel_allowed(x_ND, weight, indices_NK)

    def _few(self, x_ND: Tensor, indices_NK: Tensor, weights_NK: Tensor) -> Tensor:
        """`_grouped` without sorting: every choice reads the matrices of its expert."""
        x = x_ND[:, None] * weights_NK[..., None].to(x_ND.dtype) if self.weigh_input else x_ND
        inner_NKF = self._activate(chosen_linear(x, *self._weights(self.first, x.dtype), indices_NK))
        weights = None if self.weigh_input else weights_NK
        return chosen_sum(inner_NKF, *self._weights("down", x.dtype), indices_NK, weights)

    def _sorted(self, rows_RD: Tensor, counts_E: Tensor, expert_R: Tensor) -> Tensor:
        """The experts' outputs for rows that are sorted by expert [R, D]. Expert parallelism replaces this."""
        ends_E = counts_E.cumsum(0, dtype=torch.int32)
        inner_RF = self._activate(self._product(self.first, rows_RD, ends_E, expert_R))
        return self._product("down", inner_RF, ends_E, expert_R)

    def _product(self, name: str, rows_RI: Tensor, ends_E: Tensor, expert_R: Tensor) -> Tensor:
        weight_EOI, bias_EO = self._weights(name, rows_RI.dtype)
        out_RO = grouped_linear(rows_RI, weight_EOI, ends_E)
        return out_RO if bias_EO is None else out_RO + bias_EO[expert_R]

    def _activate(self, inner: Tensor) -> Tensor:
        return swiglu(inner) if self.is_swiglu else activate(self.config, inner)


class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(context: Any, x: Tensor, index: Tensor, back: Tensor, copies: int) -> Tensor:
        context.save_for_backward(back)
        context.copies = copies
        return x[index]

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> tuple[Tensor, None, None, None]:
        (back,) = context.saved_tensors
        return sum_rows(gradient, back.view(-1, context.copies)).to(gradient.dtype), None, None, None


def gather(x: Tensor, index: Tensor, back: Tensor, copies: int = 1) -> Tensor:
    """x[index], where every row of x is taken `copies` times and `back` lists, row after row, the indices of the copies.

    Autograd would add the gradients of the copies in whatever order the device finds them; here they are gathered and summed.
    """
    return _Gather.apply(x, index, back, copies)  # type: ignore[no-untyped-call]


class _Combine(torch.autograd.Function):
    @staticmethod
    def forward(context: Any, rows_RD: Tensor, weights_NK: Tensor | None, order_R: Tensor, sorted_NK: Tensor) -> Tensor:
        context.save_for_backward(rows_RD, weights_NK, order_R, sorted_NK)
        return sum_rows(rows_RD, sorted_NK, weights_NK)

    @staticmethod
    def backward(context: Any, gradient_ND: Tensor) -> tuple[Tensor, Tensor | None, None, None]:
        rows_RD, weights_NK, order_R, sorted_NK = context.saved_tensors
        given_RD = gradient_ND[order_R // sorted_NK.shape[1]]
        if weights_NK is None:
            return given_RD.to(rows_RD.dtype), None, None, None
        of_rows_RD = (given_RD * weights_NK.reshape(-1)[order_R, None]).to(rows_RD.dtype)
        products = [(rows_RD[sorted_N] * gradient_ND).sum(-1) for sorted_N in sorted_NK.unbind(1)]
        return of_rows_RD, torch.stack(products, dim=1).to(weights_NK.dtype), None, None


def combine(rows_RD: Tensor, weights_NK: Tensor | None, order_R: Tensor, sorted_NK: Tensor) -> Tensor:
    """Σ_k weight[n, k] · (the row of token n's k-th choice) [N, D]; without weights the plain sum.

    Sorted row r is choice order_R[r] = n·K + k, and that choice is sorted row sorted_NK[n, k]: gradients are gathered too,
    so that equal inputs give equal bits.
    """
    return _Combine.apply(rows_RD, weights_NK, order_R, sorted_NK)  # type: ignore[no-untyped-call]
