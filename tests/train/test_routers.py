"""Models with routers in the one training loop: their losses, their balancing state, and what is logged about them."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from ingot.model.config import ModelConfig
from ingot.model.feed_forward.mixture import MixtureOfExperts
from ingot.model.record import Record
from ingot.model.transformer import Transformer
from ingot.tokens.batch import Batch
from ingot.train.losses.score import score
from ingot.train.losses.terms import CrossEntropy
from ingot.workspace.errors import Interrupted
from ingot.workspace.stage import StageFolder
from tests.making.stages import Listener, stage_folder
from tests.model.tiny import VOCABULARY, attention, random_model
from tests.slow import first_fast
from tests.train.test_invariance import CUTS, by_itself, cross_entropy, relative
from tests.train.test_resume import stopping
from tests.train.toy import (
    FixedSource,
    StepSource,
    loss_and_gradients,
    make_trainer,
    records,
    same_weights,
)

EXPERTS, ACTIVE, COEFFICIENT = 6, 2, 0.3
SEQUENCE = {"kind": "loss", "coefficient": COEFFICIENT, "scope": "sequence"}
Z_LOSS = {"kind": "z_loss", "coefficient": 0.02}
MOVERS: dict[str, dict[str, Any]] = {
    "bias": {"kind": "bias", "rate": 0.01},
    "smebu": {"kind": "smebu", "rate": 0.02},
    "quantile": {"kind": "quantile", "rate": 0.2},
}


def routed_model(*balancers: dict[str, Any], seed: int = 0) -> Transformer:
    """A dense layer between two mixtures."""
    moe = {
        "kind": "moe",
        "experts": EXPERTS,
        "active": ACTIVE,
        "expert": {"width": 16},
        "shared": {"width": 12},
        "router": {"score": "sigmoid", "selection_bias": True, "renormalise": True},
        "balancers": balancers,
    }
    shape = {
        "vocabulary_size": VOCABULARY,
        "width": 24,
        "blocks": {
            "moe": {"mixer": attention(), "feed_forward": moe},
            "dense": {"mixer": attention(), "feed_forward": {"width": 40}},
        },
        "layers": "moe dense moe",
        "context": 64,
    }
    return random_model(ModelConfig.model_validate(shape), seed)


def mixtures(model: Transformer) -> list[MixtureOfExperts]:
    return [module for module in model.modules() if isinstance(module, MixtureOfExperts)]


def loads_of(model: Transformer, batches: list[Batch]) -> dict[int, list[int]]:
    """Choices per expert by layer, counted from the routers' own decisions on every real token."""
    counts = {mixture.layer: [0] * EXPERTS for mixture in mixtures(model)}
    for batch in batches:
        real = (batch.documents != -1).flatten()
        hooks = []
        for mixture in mixtures(model):

            def count(_: Any, __: Any, routing: Any, layer: int = mixture.layer, real: Tensor = real) -> None:
                for expert in routing.indices_NK[real].flatten().tolist():
                    counts[layer][expert] += 1

            hooks.append(mixture.router.register_forward_hook(count))
        with torch.no_grad():
            score(model, batch)
        for hook in hooks:
            hook.remove()
    return counts


def reported(model: Transformer, batch: Batch) -> dict[str, Tensor]:
    record = Record()
    model.hidden(batch.tokens, batch.positions, batch.documents, record=record)
    return record.losses


def test_every_cut_gives_the_losses_of_documents_apart(tmp_path: Path) -> None:
    """Cross-entropy plus sequence-wise balance and z-loss over the step's tokens, whatever the packing and micro-batches."""
    model = routed_model(SEQUENCE, Z_LOSS).double()
    plain, gradients = by_itself(model, cross_entropy)
    apart = CUTS["a micro-batch for each pair"]
    tokens = sum(batch.token_count for batch in apart)
    extra = {"router/balance_loss": torch.zeros(()), "router/z_loss": torch.zeros(())}
    for batch in apart:
        for row in range(len(batch.tokens)):
            for document in batch.documents[row].unique().tolist():
                own = batch.documents[row] == document
                if document == -1:
                    continue
                alone = batch.tokens[row][own][None], batch.positions[row][own][None]
                record = Record()
                model.hidden(*alone, record=record)
                extra = {name: extra[name] + loss / tokens for name, loss in record.losses.items()}
    names, parameters = zip(*model.named_parameters(), strict=True)
    more = torch.autograd.grad(torch.stack(list(extra.values())).sum(), parameters, materialize_grads=True)
    expected = {name: gradients[name] + part for name, part in zip(names, more, strict=True)}
    assert max(float(part.abs().max()) for part in more) > 0.01
    for name, batches in CUTS.items():
        if "without anything scored" in name:
            continue  # it has more tokens than the others
        metrics, found = loss_and_gradients(model, [CrossEntropy()], batches, stage_folder(tmp_path / name))
        assert metrics["loss"] == pytest.approx(plain + float(sum(extra.values()).detach()), rel=1e-12), name  # type: ignore[union-attr]
        for loss_name, value in extra.items():
            assert metrics[loss_name] == pytest.approx(value.item(), rel=1e-12), name
        assert relative(found, expected) < 1e-12, name


@pytest.mark.parametrize("mover", MOVERS.values(), ids=MOVERS.keys())
def test_balancing_state_does_not_depend_on_the_cut(mover: dict[str, Any], tmp_path: Path) -> None:
    model = routed_model(mover).double()
    states = []
    for name in ("short rows", "two micro-batches", "a micro-batch for each pair"):
        source = FixedSource(CUTS[name])
        trainer = make_trainer(stage_folder(tmp_path / name), model=copy.deepcopy(model), source=source, steps=1)
        trainer.run()
        states.append({key: value.clone() for key, value in trainer.model.named_buffers()})
    assert any(value.abs().max() > 1e-4 for value in states[0].values())
    for state in states[1:]:
        assert same_weights(state, states[0])


def test_global_balance_counts_the_step_so_far(tmp_path: Path) -> None:
    """The second micro-batch sees the counts of both: the loss is that of one pass only where f is the same."""
    model = routed_model({"kind": "loss", "coefficient": COEFFICIENT, "scope": "global"}).double()
    batches = CUTS["two micro-batches"]
    metrics, _ = loss_and_gradients(model, [CrossEntropy()], batches, stage_folder(tmp_path))
    first, second = Record(), Record()
    model.hidden(batches[0].tokens, batches[0].positions, batches[0].documents, record=first)
    second.before = first.loads
    model.hidden(batches[1].tokens, batches[1].positions, batches[1].documents, record=second)
    alone = reported(model, batches[1])["router/balance_loss"]
    tokens = sum(batch.token_count for batch in batches)
    parts = [record.losses["router/balance_loss"].item() for record in (first, second)]
    assert abs(parts[1] / alone.item() - 1) > 1e-3
    assert metrics["router/balance_loss"] == pytest.approx(sum(parts) / tokens, rel=1e-12)


def test_the_bias_moves_by_the_loads_of_the_step(folder: StageFolder) -> None:
    """b += rate·sign(mean − load), with the loads of the weights that the step began with."""
    trainer = make_trainer(folder, model=routed_model(MOVERS["bias"]), steps=1)
    before = copy.deepcopy(trainer.model)
    last = trainer.run()
    counts = loads_of(before, list(StepSource().batches(0)[0]))
    violations = []
    for mixture in mixtures(trainer.model):
        load = counts[mixture.layer]
        mean = sum(load) / EXPERTS
        expected = [0.01 * ((mean > n) - (mean < n)) for n in load]
        assert mixture.router.selection_bias is not None
        assert mixture.router.selection_bias.tolist() == pytest.approx(expected, abs=1e-9)
        violations.append(max(load) / mean - 1)
    assert last["router/max_violation"] == pytest.approx(sum(violations) / 2, rel=1e-5)
    assert last["router/max_violation_worst"] == pytest.approx(max(violations), rel=1e-5)
    dead = [sum(n == 0 for n in load) for load in counts.values()]
    assert last["router/dead_experts"] == sum(dead) / 2 and last["router/dead_experts_worst"] == max(dead)
    assert 0 < last["router/entropy_worst"] <= last["router/entropy"] < 1.8  # ln 6 = 1.79


@pytest.mark.parametrize("mover", first_fast(list(MOVERS.values())), ids=MOVERS.keys())
def test_interrupted_and_resumed_is_bit_for_bit_the_uninterrupted_run(mover: dict[str, Any], tmp_path: Path) -> None:
    """Weights, momentum, biases and metrics; each part of the run begins with other weights, so that all must be restored."""
    whole, cut = stage_folder(tmp_path / "whole"), stage_folder(tmp_path / "cut")
    trainer = make_trainer(whole, model=routed_model(mover, SEQUENCE))
    trainer.run()
    assert all(value.abs().max() > 1e-3 for value in trainer.model.buffers())
    for seed, at in enumerate((2, 7)):
        halting = stage_folder(cut.path)
        with pytest.raises(Interrupted):
            make_trainer(halting, model=routed_model(mover, SEQUENCE, seed=seed), source=stopping(halting, at)).run()
    resumed = make_trainer(cut, model=routed_model(mover, SEQUENCE, seed=2))
    resumed.run()
    assert same_weights(resumed.model.state_dict(), trainer.model.state_dict())
    assert records(cut) == records(whole)


def test_validation_changes_nothing(tmp_path: Path) -> None:
    """Scoring between the steps leaves loads, biases and numbers alone."""
    other = StepSource().batches(99)[0]
    plain = make_trainer(stage_folder(tmp_path / "plain"), model=routed_model(MOVERS["smebu"], SEQUENCE), steps=6)
    watched = make_trainer(
        stage_folder(tmp_path / "watched"),
        model=routed_model(MOVERS["smebu"], SEQUENCE),
        steps=6,
        after_step=lambda *_: {"seen": sum(float(score(watched.model, b).logprobs.sum().detach()) for b in other)},
    )
    plain.run()
    watched.run()
    assert same_weights(plain.model.state_dict(), watched.model.state_dict())
    rows = [{name: value for name, value in row.items() if name != "seen"} for row in records(watched.folder)]
    assert rows == records(plain.folder)


def test_reported_losses_are_announced(folder: StageFolder, listener: Listener) -> None:
    make_trainer(folder, model=routed_model(SEQUENCE, Z_LOSS), steps=1).run()
    assert "loss = cross_entropy × 1, router/balance_loss × 0.3, router/z_loss × 0.02; from" in listener.lines[0]


def test_a_dense_model_has_nothing_of_it(folder: StageFolder) -> None:
    last = make_trainer(folder, steps=1).run()
    assert not [name for name in last if name.startswith("router/")]
    ulp = torch.finfo(torch.float32).eps  # Σ a log p and (Σ w log p) / d round differently
    assert last["loss"] == pytest.approx(last["cross_entropy"], rel=ulp)
