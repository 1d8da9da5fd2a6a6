"""Twenty steps of the trainer against twenty steps of a plain loop around transformers' Llama: the same losses."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import transformers

from ingot.checkpoints.convert import export_model
from ingot.tokens.batch import Batch
from ingot.train.batches import split_rows
from ingot.train.layouts.steps import fresh
from ingot.train.source import Source
from ingot.workspace.stage import StageFolder
from tests.slow import first_fast
from tests.train.parallel.models import DENSE, VOCABULARY, shape
from tests.train.toy import make_trainer, records

STEPS, ROWS, LENGTH = 20, 6, 24
PEAK, WARMUP, DECAY, BETAS, LAMBDA, CLIP = 0.01, 4, 8, (0.9, 0.95), 0.1, 1.0


def ids(step: int) -> torch.Tensor:
    """Sequences that can be learnt: every token is the one before plus a step's own stride."""
    generator = torch.Generator().manual_seed(step)
    first = torch.randint(VOCABULARY, (ROWS, 1), generator=generator)
    return (first + torch.arange(LENGTH + 1) * 5) % VOCABULARY


class Rows(Source):
    """The same rows for the trainer, in micro-batches of two."""

    def batches(self, step: int, rank: int = 0, world: int = 1) -> tuple[list[Batch], dict[str, float]]:
        rows = ids(step)
        positions = torch.arange(LENGTH).expand(ROWS, -1)
        weight = torch.ones(ROWS, LENGTH)
        return split_rows(
            Batch(rows[:, :-1], rows[:, 1:], positions, torch.zeros_like(positions), {"weight": weight}), 2
        ), {}


def rate(step: int) -> float:
    """Warmup, stable, linear decay, written out; neither the first nor the last step has rate zero."""
    return PEAK * min((step + 1) / (WARMUP + 1), (STEPS - step) / (DECAY + 1), 1.0)


def peer_losses(folder: Path) -> list[float]:
    """The loop that everybody writes: AdamW without decay of embeddings and gains, clipping, a schedule."""
    model = transformers.LlamaForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager")
    decayed = [each for name, each in model.named_parameters() if each.dim() == 2 and "embed_tokens" not in name]
    others = [each for name, each in model.named_parameters() if each.dim() < 2 or "embed_tokens" in name]
    groups = [{"params": decayed, "weight_decay": LAMBDA}, {"params": others, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=PEAK, betas=BETAS, eps=1e-8)
    losses = []
    for step in range(STEPS):
        for group in optimizer.param_groups:
            group["lr"] = rate(step)
        rows = ids(step)
        logits = model(rows[:, :-1]).logits
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), rows[:, 1:].flatten())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(float(loss.detach()))
    return losses


@pytest.mark.parametrize("tied", first_fast([True, False]))
def test_the_loss_curve_is_that_of_transformers(tied: bool, folder: StageFolder, tmp_path: Path) -> None:
    model = fresh(shape(DENSE, layers=2, tied_embeddings=tied))
    export_model(model, tmp_path / "peer")
    expected = peer_losses(tmp_path / "peer")
    make_trainer(
        folder,
        model=model,
        source=Rows(),
        steps=STEPS,
        checkpoints={"every": 1000},
        optimizer={"lr": PEAK, "betas": BETAS, "weight_decay": LAMBDA, "clip": CLIP, "epsilon": 1e-8},
        schedule={"kind": "wsd", "warmup": WARMUP, "decay": DECAY},
    ).run()
    found = records(folder)
    assert [row["learning_rate"] for row in found] == pytest.approx([rate(step) for step in range(STEPS)])
    assert any(row["gradient_norm"] > CLIP for row in found), "clipping is part of the comparison"
    assert expected[-1] < 0.7 * expected[0], "something is learnt"
    losses = [row["loss"] for row in found]
    assert losses == pytest.approx(expected, rel=2e-6)  # seen: 1.2e-7
