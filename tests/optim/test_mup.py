"""muP by its coordinate check: activations keep their size over widths, and do not without it (arXiv 2203.03466, D.1)."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy

from ingot.model.config import ModelConfig
from ingot.model.initialise import initialise, learning_rate_share, mup_config
from ingot.model.transformer import Transformer
from ingot.optim.build import make_optimizer
from ingot.optim.config import AdamWConfig, MuonConfig
from ingot.train.coordinate_check import LOGITS, Coordinate, coordinate_check, slopes
from tests.slow import first_fast

BASE = 64
ADAMW = AdamWConfig(lr=1e-2, weight_decay=0.0)


def mup(width: int) -> ModelConfig:
    """A model whose heads keep their width while their number grows; muP relative to width 64."""
    mixer = {"heads": width // 16, "key_value_heads": width // 16, "head_width": 16}
    shape = ModelConfig.model_validate(
        {
            "vocabulary_size": 64,
            "width": width,
            "blocks": {"layer": {"mixer": mixer, "feed_forward": {"width": 2 * width}}},
            "layers": "layer*2",
            "tied_embeddings": False,
            "initial": {"std": BASE**-0.5, "depth_scaled": False},
        }
    )
    return mup_config(shape, BASE)


def standard(width: int) -> ModelConfig:
    """The same at width 64; otherwise std 1/√width, which keeps activations equal at the start, and one learning rate."""
    shape = mup(width).model_dump()
    shape |= {"logit_scale": 1.0, "initial": {"std": None, "depth_scaled": False}}
    return ModelConfig.model_validate(shape)


def body(found: dict[str, float]) -> dict[str, float]:
    return {part: slope for part, slope in found.items() if part.startswith("blocks")}


def test_activations_keep_their_size_with_mup_and_grow_without() -> None:
    widths = (64, 128, 256, 512)
    flat = coordinate_check(mup, widths, steps=3, optimizer=ADAMW, rows=4)
    for step in range(4):
        found = slopes(flat, step)
        assert max(abs(slope) for slope in body(found).values()) < 0.1, found
        assert abs(found["embedding"]) < 0.03, found
        assert -0.6 < found[LOGITS] < 0, "they begin as noise of size width^-½, and the noise averages out"
    growing = coordinate_check(standard, widths, steps=3, optimizer=ADAMW, rows=4)
    before, after = slopes(growing, 0), slopes(growing, 3)
    assert max(abs(slope) for slope in body(before).values()) < 0.05, "the initialisation alone looks fine"
    assert min(body(after).values()) > 0.3, after
    assert after["blocks.0"] > 0.6 and after["blocks.1"] > 0.5 and after[LOGITS] > 0.2, after


@pytest.mark.parametrize(("scale", "lr"), first_fast([("rms", 1e-2), ("spectral", 5e-2)]))
def test_mup_with_muon(scale: str, lr: float) -> None:
    options = {"kind": "muon", "lr": lr, "rest_lr": 1e-2, "weight_decay": 0.0, "scale": scale}
    found = coordinate_check(mup, (64, 128, 256), steps=2, optimizer=MuonConfig.model_validate(options), seeds=2)
    assert max(abs(slope) for slope in body(slopes(found, 2)).values()) < 0.12, slopes(found, 2)


def test_the_check_trains_with_the_rates_of_mup() -> None:
    """Sizes after two steps against a loop of its own with torch's AdamW and one group per parameter."""
    config = mup(128)
    found = coordinate_check(lambda _: config, [128], steps=2, optimizer=ADAMW, rows=4, length=8)
    model = Transformer(config)
    initialise(model, 0)
    groups = [
        {"params": [parameter], "lr": 1e-2 * learning_rate_share(name, parameter, config)}
        for name, parameter in model.named_parameters()
    ]
    assert {group["lr"] for group in groups} == {1e-2, 5e-3}
    optimizer = torch.optim.AdamW(groups, betas=ADAMW.betas, eps=ADAMW.epsilon, weight_decay=0.0)
    tokens = torch.randint(64, (4, 9), generator=torch.Generator().manual_seed(0))
    expected = []
    for _ in range(3):
        logits, embedded = model(tokens[:, :-1]), model.embed(tokens[:, :-1])
        expected.append((float(embedded.detach().abs().mean()), float(logits.detach().abs().mean())))
        optimizer.zero_grad()
        cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten()).backward()
        optimizer.step()
    sizes = {(one.step, one.part): one.size for one in found}
    measured = [(sizes[step, "embedding"], sizes[step, LOGITS]) for step in range(3)]
    assert np.allclose(measured, expected, rtol=1e-4)


def test_taps_of_a_convolution_are_no_matrix() -> None:
    """A channel adds up four of them at every width: they learn as at the base width."""
    mixer = {"kind": "mamba2", "heads": 16, "head_width": 16, "state": 16}
    shape = mup(256).model_dump() | {"blocks": {"layer": {"mixer": mixer, "feed_forward": {"width": 512}}}}
    model = Transformer(ModelConfig.model_validate(shape))
    optimizer = make_optimizer(model, ADAMW)
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    rates = {names[id(each)]: group["peak_lr"] for group in optimizer.param_groups for each in group["params"]}
    assert rates["blocks.0.mixer.convolution.weight"] == rates["blocks.0.mixer_norm.gain"] == 1e-2
    assert rates["blocks.0.mixer.input.weight"] == 1e-2 / 4


def test_slopes_against_numpy() -> None:
    rng = np.random.default_rng(0)
    widths, sizes = np.array([32, 64, 256, 512]), rng.uniform(0.5, 2, 4)
    points = [Coordinate(int(width), 1, "x", float(size)) for width, size in zip(widths, sizes, strict=True)]
    expected = np.polyfit(np.log(widths), np.log(sizes), 1)[0]
    assert slopes(points, 1)["x"] == pytest.approx(expected, rel=1e-9)
