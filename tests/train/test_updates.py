"""Update/weight ratios from a sample, against norms over all entries."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch
from torch import Tensor, nn

from ingot.train.hooks import OptimizerStep
from ingot.train.passes import Sums
from ingot.train.updates import SAMPLE, UpdateRatios, kind_of
from ingot.workspace.stage import StageFolder
from tests.model.tiny import config, random_model
from tests.train.test_routers import MOVERS, routed_model
from tests.train.toy import make_trainer


def exact(before: list[Tensor], after: list[Tensor]) -> float:
    """‖Δw‖ / ‖w‖ in float64 over every entry."""
    moved = sum(float((new.double() - old.double()).square().sum()) for old, new in zip(before, after, strict=True))
    return float((moved / sum(float(old.double().square().sum()) for old in before)) ** 0.5)


@contextmanager
def around(ratios: UpdateRatios, measured: dict[str, Tensor]) -> Iterator[None]:
    """Inside, the weights are updated; then `measured` has the ratios."""
    one = torch.ones(())
    step = OptimizerStep(0, 1, one, Sums(), one, one, measured)
    ratios.before_update(step)
    with torch.no_grad():
        yield
    ratios.after_update(step)


def measure(named: list[tuple[str, nn.Parameter]], change: list[Tensor]) -> dict[str, float]:
    measured: dict[str, Tensor] = {}
    with around(UpdateRatios(named, None), measured):
        for (_, parameter), each in zip(named, change, strict=True):
            parameter.add_(each)
    return {name: float(value) for name, value in measured.items()}


def test_small_parameters_are_measured_whole() -> None:
    """Nothing has more than 1024 entries, so the sample is everything."""
    model = routed_model(MOVERS["bias"])
    named = [(name, each) for name, each in model.named_parameters() if each.numel() <= SAMPLE]
    change = [torch.randn_like(each) * 0.01 for _, each in named]
    before = [each.detach().clone() for _, each in named]
    measured = measure(named, change)
    kinds = {kind_of(name) for name, _ in named}
    assert {"mixer", "norm", "router"} <= kinds
    assert measured.keys() == {f"update_ratio/{kind}" for kind in kinds}
    for kind in kinds:
        mine = [number for number, (name, _) in enumerate(named) if kind_of(name) == kind]
        expected = exact([before[number] for number in mine], [named[number][1].detach() for number in mine])
        assert measured[f"update_ratio/{kind}"] == pytest.approx(expected, rel=1e-5)


def test_a_sample_stands_for_large_ones_of_any_shape() -> None:
    """Two matrices of one kind, the larger with the larger entries, and columns of very different sizes."""
    torch.manual_seed(0)
    columns = torch.linspace(0.1, 3.0, 256)
    weights = [torch.randn(1024, 256) * columns, torch.randn(64, 8, 96) * 0.01]
    named = [
        (f"blocks.{number}.feed_forward.up.weight", nn.Parameter(each.clone())) for number, each in enumerate(weights)
    ]
    change = [torch.randn_like(weights[0]) * columns.flip(0) * 0.01, torch.randn_like(weights[1])]
    expected = exact(weights, [each + more for each, more in zip(weights, change, strict=True)])
    assert measure(named, change)["update_ratio/feed_forward"] == pytest.approx(expected, rel=0.05)


def test_every_column_is_sampled() -> None:
    """A stride that shares a divisor with the row's length would only ever see some of the columns."""
    for rows, columns in ((1000, 128), (1024, 1024), (96, 1008)):
        weight = torch.zeros(rows, columns)
        weight[:, columns // 2] = 1.0
        named = [("blocks.0.mixer.output.weight", nn.Parameter(weight.clone()))]
        assert measure(named, [weight * 0.5])["update_ratio/mixer"] == pytest.approx(0.5, rel=1e-5)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("embedding.weight", "embedding"),
        ("output.weight", "head"),
        ("blocks.3.mixer.output.weight", "mixer"),
        ("blocks.3.mixer.query_key_value.bias", "mixer"),
        ("blocks.3.mixer.query_norm.gain", "norm"),
        ("blocks.3.feed_forward.gate_up.weight", "feed_forward"),
        ("blocks.3.feed_forward.experts.down", "experts"),
        ("blocks.3.feed_forward.shared.down.weight", "feed_forward"),
        ("blocks.3.feed_forward.router.weight", "router"),
        ("projection.weight", "other"),
    ],
)
def test_kinds(name: str, kind: str) -> None:
    assert kind_of(name) == kind


def test_a_step_of_the_trainer_is_measured(folder: StageFolder) -> None:
    """AdamW's first step moves every entry with a gradient by the learning rate (and decays matrices)."""
    model = random_model(config())
    gain = torch.cat([each.detach().clone() for name, each in model.named_parameters() if name.endswith("gain")])
    make_trainer(folder, model=model, steps=3, log_every=2, optimizer={"lr": 0.01}).run()
    rows = folder.metrics.read()
    assert rows[0]["update_ratio/norm"] == pytest.approx(0.01 * len(gain) ** 0.5 / float(gain.norm()), rel=1e-3)
    assert [row["step"] for row in rows if "update_ratio/mixer" in row] == [0, 2]


def test_weights_that_moved_or_do_not_lie_in_order_are_found() -> None:
    """A view of where a parameter was, or a copy of what it was, would measure no update at all."""
    stored = torch.randn(64, 96)
    moving, turned = nn.Parameter(torch.randn(96, 64)), nn.Parameter(stored.T)
    named = [("blocks.0.mixer.output.weight", moving), ("blocks.0.feed_forward.up.weight", turned)]
    ratios = UpdateRatios(named, None)
    for _ in range(2):
        measured: dict[str, Tensor] = {}
        moving.data = torch.randn(96, 64)
        with around(ratios, measured):
            moving.mul_(1.5)
            turned.mul_(0.75)
        assert float(measured["update_ratio/mixer"]) == pytest.approx(0.5, rel=1e-5)
        assert float(measured["update_ratio/feed_forward"]) == pytest.approx(0.25, rel=1e-5)
