"""Halves of layers, one after the other, as one step of autograd: the loops of all of them are the stages of one plan.

    x₁ = half₀(x₀)    x₂ = half₁(x₁)    …        attention_half.py, feed_forward_half.py

Python between two calls of the team finds its caches empty, as products leave nothing of it there: with a step of autograd for
every half, a step of training took 14 of 562 ms longer for a model of 10M parameters with 16 halves.

Names in a plan: `n.x` is what enters half n, `n.kept` what its backward pass needs, `n.i` its i-th weight and `n.i.grad` the
gradient of that; `up` and `d_x` are the gradients of the last output and of the first input, `own` what only the backward pass
needs, the same for all halves.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from ingot.model.rooms import new_room
from ingot.model.team import Place, Stage
from ingot.model.team_plan import Plan, room_for

PLANS = 64  # that are remembered: rows of ever different lengths need ever new ones

Places = Sequence[Place]


class Half(Protocol):
    """y = x + f(norm(x)) for one shape of x; equal ones have equal hashes. Its first weight is the norm's gain."""

    def weights(self) -> int:
        """How many tensors it takes besides x."""

    def kept(self) -> Sequence[int]:
        """Floats of each thing that the backward pass needs."""

    def own(self) -> Sequence[int]:
        """Floats of each thing that the backward pass makes for itself."""

    def forward(self, x: Place, weights: Places, kept: Places, y: Place) -> list[Stage]:
        """Fill `kept` and y."""

    def backward(
        self, x: Place, weights: Places, kept: Places, own: Places, up: Place, d_x: Place, grads: Sequence[Place | None]
    ) -> list[Stage]:
        """From the gradient of y those of x and of the weights that want one; the gain always does."""


Given = tuple[Half, Sequence[Tensor]]  # a half with its weights


def run_halves(x_BTD: Tensor, given: Sequence[Given]) -> Tensor:
    """What the last of these halves puts out."""
    weights = [weight for _, own in given for weight in own]
    y: Tensor = _Halves.apply(x_BTD, tuple(half for half, _ in given), *weights)  # type: ignore[no-untyped-call]
    return y


def _places(number: int, half: Half) -> tuple[Place, list[Place], list[Place]]:
    """Of half n: what enters it, its weights, what is kept."""
    weights = [Place(f"{number}.{index}") for index in range(half.weights())]
    return Place(f"{number}.x"), weights, Place(f"{number}.kept").side_by_side(half.kept())


@lru_cache(PLANS)
def _forward(halves: tuple[Half, ...], threads: int) -> Plan:
    stages: list[Stage] = []
    for number, half in enumerate(halves):
        stages += half.forward(*_places(number, half), Place(f"{number + 1}.x"))
    return Plan(stages, threads)


@lru_cache(PLANS)
def _backward(halves: tuple[Half, ...], threads: int, size: int, wanted: frozenset[str]) -> tuple[Plan, int]:
    """The plan for states of so many floats and gradients of the named weights, and the floats of `own`: gradients of two
    neighbouring states, then what a half needs."""
    stages: list[Stage] = []
    most = max(room_for(half.own()) for half in halves)
    *between, rest = Place("own").side_by_side((size, size, most))
    ups = [Place("d_x"), *(between[number % 2] for number in range(1, len(halves))), Place("up")]
    for number, half in reversed(list(enumerate(halves))):
        x, weights, kept = _places(number, half)
        grads = [Place(f"{each.name}.grad") if each.name in wanted else None for each in weights]
        own = rest.side_by_side(half.own())
        stages += half.backward(x, weights, kept, own, ups[number + 1], ups[number], grads)
    return Plan(stages, threads), room_for((size, size, most))


class _Halves(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, halves: tuple[Half, ...], *weights: Tensor) -> Tensor:
        ctx.halves = halves
        states = [x.contiguous(), *(new_room(*x.shape) for _ in halves)]
        kept = [new_room(room_for(half.kept())) for half in halves]
        _forward(halves, torch.get_num_threads()).run(_named(halves, states, kept, weights))
        ctx.save_for_backward(*states[:-1], *kept, *weights)
        return states[-1]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, up: Tensor) -> tuple[Tensor | None, ...]:
        saved, count = ctx.saved_tensors, len(ctx.halves)
        states, kept, weights = saved[:count], saved[count : 2 * count], saved[2 * count :]
        names = _weight_names(ctx.halves)
        asked = zip(names, weights, ctx.needs_input_grad[2:], strict=True)
        gradients = {name: new_room(*weight.shape) for name, weight, wants in asked if wants or name.endswith(".0")}
        plan, own = _backward(ctx.halves, torch.get_num_threads(), up.numel(), frozenset(gradients))
        tensors = _named(ctx.halves, states, kept, weights) | {f"{name}.grad": each for name, each in gradients.items()}
        d_x = new_room(*up.shape)
        plan.run(tensors | {"up": up.contiguous(), "d_x": d_x, "own": new_room(own)})
        return d_x, None, *map(gradients.get, names)


def _weight_names(halves: Sequence[Half]) -> list[str]:
    return [f"{number}.{index}" for number, half in enumerate(halves) for index in range(half.weights())]


def _named(
    halves: Sequence[Half], states: Sequence[Tensor], kept: Sequence[Tensor], weights: Sequence[Tensor]
) -> dict[str, Tensor]:
    """The tensors by their names in a plan."""
    named = dict(zip(_weight_names(halves), weights, strict=True))
    named |= {f"{number}.x": state for number, state in enumerate(states)}
    return named | {f"{number}.kept": each for number, each in enumerate(kept)}
