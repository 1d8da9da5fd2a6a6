"""Initial weights: the distributions, the rules per part, and muP's promise that activations do not grow with width."""

from __future__ import annotations

import statistics
from itertools import pairwise
from typing import Any

import pytest
import torch
from torch.nn.functional import cross_entropy

from ingot.model.config import ModelConfig
from ingot.model.initialise import initialise, learning_rate_share, mup_config
from ingot.model.transformer import Transformer
from tests.model.tiny import config, random_tokens


def started(seed: int = 0, **changes: Any) -> Transformer:
    model = Transformer(config(**{"width": 256, "depth": 2, **changes}))
    initialise(model, seed)
    return model


def test_truncated_weights_follow_the_truncated_normal() -> None:
    values = started(initial={"distribution": "truncated", "std": 0.05}).embedding.weight.detach().flatten()
    assert float(values.abs().max()) <= 0.15 + 1e-6
    law = statistics.NormalDist(0, 0.05)
    low = law.cdf(-0.15)
    share = torch.arange(1, len(values) + 1) / len(values)
    cut = torch.tensor([(law.cdf(value) - low) / (1 - 2 * low) for value in values.sort().values.tolist()])
    assert float((cut - share).abs().max()) < 1.95 / len(values) ** 0.5  # Kolmogorov-Smirnov at p = 0.001


@pytest.mark.parametrize(("scale", "expected"), [(1.0, 1 / 16), (0.5, 1 / 32)])
def test_the_std_can_follow_the_width(scale: float, expected: float) -> None:
    model = started(initial={"std": None, "scale": scale, "depth_scaled": False})
    weight = model.get_parameter("blocks.0.mixer.query_key_value.weight")
    assert float(weight.detach().std()) == pytest.approx(expected, rel=0.05)


def test_xavier() -> None:
    model = started(initial={"distribution": "xavier", "depth_scaled": False})
    weight = model.get_parameter("blocks.0.feed_forward.gate_up.weight")
    rows, columns = weight.shape
    assert float(weight.detach().std()) == pytest.approx((2 / (rows + columns)) ** 0.5, rel=0.05)


def test_gains_start_so_that_norms_do_nothing() -> None:
    zero = started(norm={"zero_centred": True})
    plain = started()
    for name, parameter in zero.named_parameters():
        if name.endswith("gain"):
            assert bool((parameter == 0).all()), name
            assert bool((plain.get_parameter(name) == 1).all()), name


def test_post_norms_can_start_at_one_over_the_root_of_depth() -> None:
    base = config(depth=4).model_dump()
    base["blocks"]["layer0"]["residual"] = "sandwich"
    model = Transformer(ModelConfig.model_validate(base | {"initial": {"depth_scaled_post_norm": True}}))
    initialise(model, 0)
    gains = {name: float(value.detach()[0]) for name, value in model.named_parameters() if name.endswith("gain")}
    assert gains["blocks.1.mixer_post_norm.gain"] == gains["blocks.3.feed_forward_post_norm.gain"] == 0.5
    assert gains["blocks.1.mixer_norm.gain"] == gains["norm.gain"] == 1.0


def logit_change(width: int, mup: bool, steps: int = 4) -> float:
    """The mean size of the change of the logits after a few steps of Adam (the coordinate check of arXiv 2203.03466, D.1)."""
    base = {"width": width, "depth": 2, "initial": {"std": 0.125, "depth_scaled": False}}
    mixer = {"heads": width // 8, "key_value_heads": width // 8, "head_width": 8}
    shape = config(**base).model_dump()
    shape["blocks"]["layer0"] |= {"mixer": mixer, "feed_forward": {"width": 2 * width}}
    shape["tied_embeddings"] = False
    model_config = ModelConfig.model_validate(shape)
    model_config = mup_config(model_config, 64) if mup else model_config
    torch.manual_seed(0)
    model = Transformer(model_config)
    initialise(model, 1)
    groups = [
        {"params": [parameter], "lr": 1e-2 * learning_rate_share(name, parameter, model_config)}
        for name, parameter in model.named_parameters()
    ]
    optimizer = torch.optim.Adam(groups)
    tokens = random_tokens(8, 17)
    with torch.no_grad():
        before = model(tokens[:, :-1])
    for _ in range(steps):
        optimizer.zero_grad()
        cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten()).backward()
        optimizer.step()
    with torch.no_grad():
        return float((model(tokens[:, :-1]) - before).abs().mean())


def test_with_mup_updates_do_not_grow_with_width() -> None:
    """They shrink towards a limit (the part that comes from the initial head vanishes); without muP they grow."""
    widths = (32, 64, 128, 256)
    mup, plain = ([logit_change(width, mup) for width in widths] for mup in (True, False))
    assert all(wide <= narrow for narrow, wide in pairwise(mup)), mup
    assert mup[-1] > 0.3 * mup[0], mup
    assert plain[-1] > 3 * plain[0], plain


def test_learning_rates_by_part() -> None:
    shape = mup_config(config(width=96, tied_embeddings=False), 24)
    model = Transformer(shape)
    shares = {name: learning_rate_share(name, p, shape) for name, p in model.named_parameters()}
    assert shares["blocks.0.mixer.query_key_value.weight"] == shares["blocks.1.feed_forward.down.weight"] == 0.25
    assert shares["embedding.weight"] == shares["output.weight"] == shares["norm.gain"] == 1.0
    assert shape.logit_scale == 0.25
