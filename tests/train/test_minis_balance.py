"""Every balancer on real text: a small mixture of experts that collapses when it is left alone stays balanced with each."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ingot.model.config import ModelConfig
from tests.train.corpus import Corpus, mean_of_last, shakespeare, train, write_corpus

VOCABULARY, EXPERTS, ACTIVE = 512, 16, 2
WORST = EXPERTS / ACTIVE - 1  # the MaxVio of a router that sends every token to the same experts
OPTIONS = {"steps": 120, "sequence_length": 64, "batch_tokens": 512, "micro_batch_tokens": 256}
WATCHED = 20  # steps at the end that are averaged

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


def auxiliary(scope: str) -> dict[str, Any]:
    return {"kind": "loss", "coefficient": 0.02, "scope": scope}


# the score of the router, the balancer, and its bar on MaxVio: measured 0.9, 0.8, 1.4, 1.0, 0.5 and 1.6
BALANCERS: dict[str, tuple[str, dict[str, Any], float]] = {
    "sequence": ("softmax", auxiliary("sequence"), 1.8),
    "micro_batch": ("softmax", auxiliary("micro_batch"), 1.8),
    "global": ("softmax", auxiliary("global"), 2.4),
    "bias": ("sigmoid", {"kind": "bias", "rate": 0.01}, 2.0),
    "smebu": ("sigmoid", {"kind": "smebu", "rate": 0.02}, 1.2),
    "quantile": ("sigmoid", {"kind": "quantile", "rate": 0.2}, 2.6),
}


@pytest.fixture(scope="module")
def corpus(shared_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    return write_corpus(shakespeare(shared_data), VOCABULARY, tmp_path_factory.mktemp("corpus"))


def routed(score: str, *balancers: dict[str, Any]) -> ModelConfig:
    moe = {
        "kind": "moe",
        "experts": EXPERTS,
        "active": ACTIVE,
        "expert": {"width": 32},
        "router": {"score": score, "selection_bias": score == "sigmoid", "renormalise": True},
        "balancers": balancers,
    }
    mixer = {"heads": 4, "key_value_heads": 2, "head_width": 16}
    blocks = {"layer": {"mixer": mixer, "feed_forward": moe}}
    return ModelConfig.model_validate({"width": 64, "blocks": blocks, "layers": "layer*2", "initial": {"std": 0.06}})


def end_of(rows: list[dict[str, Any]]) -> tuple[float, float, float]:
    """Cross-entropy, and MaxVio and dead experts of the worst layer."""
    names = ("cross_entropy", "router/max_violation_worst", "router/dead_experts_worst")
    loss, violation, dead = (mean_of_last(WATCHED, rows, name) for name in names)
    return loss, violation, dead


@pytest.fixture(scope="module")
def alone(corpus: Corpus, tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[float, float, float]]:
    """How the model ends without a balancer, by score."""
    folder = tmp_path_factory.mktemp("alone")
    return {score: end_of(train(routed(score), corpus, folder / score, OPTIONS)) for score in ("softmax", "sigmoid")}


@pytest.mark.parametrize("name", BALANCERS)
def test_a_balancer_keeps_the_experts_busy_and_costs_no_loss(
    name: str, corpus: Corpus, alone: dict[str, tuple[float, float, float]], tmp_path: Path
) -> None:
    score, balancer, bar = BALANCERS[name]
    loss_alone, violation_alone, dead_alone = alone[score]
    assert violation_alone > 0.7 * WORST and dead_alone > 1  # there is something to do
    loss, violation, dead = end_of(train(routed(score, balancer), corpus, tmp_path, OPTIONS))
    assert violation < bar
    assert dead < 0.5
    assert loss < loss_alone + 0.02
