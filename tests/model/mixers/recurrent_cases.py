"""What every recurrent mixer must do, written once: packed documents, caches, and the same numbers as transformers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from ingot.model.context import Context
from ingot.model.mixers.cache import CacheShape
from ingot.model.mixers.mixer import Mixer, Site
from ingot.model.norm import NormConfig

WIDTH = 20
SITE = Site(width=WIDTH, layer=1, depth=3, norm=NormConfig(epsilon=1e-5))
# Documents of each row, and padding after them. Chunks have 64 tokens: boundaries inside and at the ends of chunks,
# documents of one token, several in one chunk, one over three chunks, and padding over more than a chunk.
ROWS = (((64, 1, 1, 62, 30), 2), ((3, 150, 7), 0), ((1,), 159), ((63, 65, 32), 0))
LENGTH = 160
Get = Callable[[str], Tensor]
Pairs = list[tuple[Tensor, Tensor]]


def random_values(module: nn.Module, seed: int = 0, scale: float = 0.3) -> None:
    """Make no parameter special: gains, skips and biases are random too."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in sorted(module.named_parameters()):
            drawn = torch.empty(parameter.shape, dtype=torch.float64).normal_(0.0, scale, generator=generator)
            parameter.copy_(drawn + 1.0 if name.endswith("gain") else drawn)


def random_input(*shape: int, seed: int = 1, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def plain_context(rows: int, length: int) -> Context:
    return Context(torch.arange(length).expand(rows, length))


def packed_rows() -> tuple[Tensor, Tensor, list[tuple[int, slice]]]:
    """Positions, document numbers, and the place of each document."""
    positions = torch.full((len(ROWS), LENGTH), 3)
    documents = torch.full((len(ROWS), LENGTH), -1)
    places, number = [], 50
    for row, (lengths, padding) in enumerate(ROWS):
        assert sum(lengths) + padding == LENGTH
        start = 0
        for length in lengths:
            place = slice(start, start + length)
            positions[row, place], documents[row, place] = torch.arange(length), number
            places.append((row, place))
            start, number = start + length, number - 1
    return positions, documents, places


def gradients(mixer: nn.Module, x: Tensor, outputs: list[Tensor], weights: list[Tensor]) -> dict[str, Tensor]:
    """Of Σ output · weight, for the input and every parameter."""
    names = ["input", *(name for name, _ in mixer.named_parameters())]
    total = torch.stack([(output * weight).sum() for output, weight in zip(outputs, weights, strict=True)]).sum()
    found = torch.autograd.grad(total, [x, *mixer.parameters()])
    return dict(zip(names, found, strict=True))


def assert_same(found: dict[str, Tensor], expected: dict[str, Tensor], tolerance: float) -> None:
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        assert_near(found[name], value, tolerance, name)


def assert_near(found: Tensor, expected: Tensor, tolerance: float, name: str = "") -> None:
    """Equal up to `tolerance` of the largest expected value."""
    scale = expected.detach().abs().max().item()
    assert scale > 0, name
    torch.testing.assert_close(found, expected, rtol=0.0, atol=tolerance * scale, msg=lambda text: f"{name}: {text}")


def check_packed_documents(mixer: Mixer) -> None:
    """A packed row gives what each document gives alone, padding influences nothing, and all gradients are finite."""
    mixer = mixer.double()
    random_values(mixer)
    positions, documents, places = packed_rows()
    x = random_input(len(ROWS), LENGTH, WIDTH).requires_grad_()
    weights = [random_input(place.stop - place.start, WIDTH, seed=place.stop) for _, place in places]

    packed = mixer(x, Context(positions, documents))
    together = [packed[row, place] for row, place in places]
    alone = [mixer(x[row : row + 1, place], plain_context(1, place.stop - place.start))[0] for row, place in places]
    for one, other in zip(together, alone, strict=True):
        assert_near(one, other, 1e-10)
    found = gradients(mixer, x, together, weights)
    assert_same(found, gradients(mixer, x, alone, weights), 1e-10)
    assert (found["input"][documents == -1] == 0).all()

    everything = mixer(x, Context(positions, documents))
    assert everything.isfinite().all()
    assert all(grad.isfinite().all() for grad in torch.autograd.grad(everything.sum(), [x, *mixer.parameters()]))


def check_cache(mixer: Mixer) -> None:
    """Prefill in two pieces of different lengths and then decode, in shuffled slots: the same as the full pass."""
    mixer = mixer.double()
    random_values(mixer)
    first, second, decoded, rows = (70, 5, 1), (3, 66, 9), 4, 3
    slots, longest = torch.tensor([4, 0, 2]), 145
    x = random_input(rows, longest, WIDTH)
    lengths = [a + b + decoded for a, b in zip(first, second, strict=True)]
    full = mixer(x, plain_context(rows, longest))
    cache = mixer.make_cache(CacheShape(slots=5, length=longest), torch.float64, torch.device("cpu"))
    with torch.no_grad():  # what an earlier sequence left behind must not matter
        mixer(random_input(5, 3, WIDTH, seed=9), cached_context(torch.arange(5), [0] * 5, 3), cache)

    done = [0] * rows
    for pieces in (first, second, *[(1,) * rows] * decoded):
        length = max(pieces) + (2 if max(pieces) > 1 else 0)  # padding after the longest row too
        piece = random_input(rows, length, WIDTH, seed=77)
        for row, count in enumerate(pieces):
            piece[row, :count] = x[row, done[row] : done[row] + count]
        with torch.no_grad():
            found = mixer(piece, cached_context(slots, done, length, pieces), cache)
        assert found.isfinite().all()
        for row, count in enumerate(pieces):
            assert_near(
                found[row, :count], full[row, done[row] : done[row] + count], 1e-10, f"row {row} at {done[row]}"
            )
            done[row] += count
    assert done == lengths


def cached_context(slots: Tensor, starts: list[int], length: int, lengths: tuple[int, ...] | None = None) -> Context:
    positions = torch.tensor(starts)[:, None] + torch.arange(length)
    real = None if lengths is None or set(lengths) == {length} else torch.tensor(lengths)
    return Context(positions, slots_B=slots, lengths_B=real, reach=int(positions.max()) + 1)


def check_against(
    ours: Mixer, theirs: nn.Module, run: Callable[[Tensor], Tensor], pairs: Callable[[Get, Get], Pairs], length: int
) -> None:
    """The reference's weights in our module: the same outputs, and gradients of the input and of every weight, in float32.

    `pairs` gives views of our tensors with the equal views of theirs, as the layout of a checkpoint does.
    """
    random_values(theirs)
    with torch.no_grad():
        for mine, other in pairs(
            dict(ours.named_parameters()).__getitem__, dict(theirs.named_parameters()).__getitem__
        ):
            assert mine.shape == other.shape
            mine.fill_(torch.nan)
            mine.copy_(other)
    assert all(parameter.isfinite().all() for parameter in ours.parameters()), "a parameter has no counterpart"

    x = random_input(2, length, WIDTH, dtype=torch.float32)
    weight = random_input(2, length, WIDTH, seed=5, dtype=torch.float32)
    outputs, grads = [], []
    for module, call in ((ours, lambda y: ours(y, plain_context(2, length))), (theirs, run)):
        y = x.clone().requires_grad_()
        outputs.append(call(y))
        grads.append(gradients(module, y, [outputs[-1]], [weight]))
    assert_near(outputs[0], outputs[1], 1e-5, "output")
    assert_near(grads[0]["input"], grads[1]["input"], 2e-5, "input")
    for number, (mine, other) in enumerate(pairs(grads[0].__getitem__, grads[1].__getitem__)):
        assert_near(mine, other, 2e-5, f"weight {number}")


def check_reset(mixer: Any) -> None:
    """The special parameters have the published first values, as a function of the generator only."""
    random_values(mixer)
    mixer.reset_special(torch.Generator().manual_seed(3))
    again = mixer.decay.detach().clone()
    rates = again.exp()
    assert rates.min() >= 1 and rates.max() <= 16 and rates.max() - rates.min() > 4
    steps = nn.functional.softplus(mixer.time_step_bias.detach())
    assert steps.min() >= 0.00099 and steps.max() <= 0.101 and steps.max() / steps.min() > 5
    mixer.reset_special(torch.Generator().manual_seed(3))
    assert torch.equal(mixer.decay, again)
