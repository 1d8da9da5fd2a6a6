"""Two processes with half of the tokens each balance as one process with all of them."""

from __future__ import annotations

import multiprocessing
from pathlib import Path

import pytest
import torch
from torch import Tensor, distributed

from ingot.model.config import NormConfig
from ingot.model.context import Context
from ingot.model.feed_forward.config import MoeConfig
from ingot.model.feed_forward.mixture import MixtureOfExperts, update_biases
from ingot.model.mixers.mixer import Site
from ingot.model.record import Record

RANKS, WIDTH = 2, 8


def balance(x: Tensor) -> dict[str, Tensor]:
    """The global balance loss of these tokens, the step's loads, and the bias after the step."""
    torch.manual_seed(0)
    config = {
        "kind": "moe",
        "experts": 6,
        "active": 2,
        "expert": {"width": 4},
        "router": {"score": "sigmoid", "selection_bias": True},
        "balancers": [{"kind": "loss", "coefficient": 1.0, "scope": "global"}, {"kind": "quantile"}],
    }
    mixture, record = MixtureOfExperts(MoeConfig.model_validate(config), Site(WIDTH, 0, 1, NormConfig())), Record()
    mixture.double()(x, Context(torch.arange(x.shape[1]).expand(x.shape[:2]), record=record))
    record.sum_over_ranks()
    update_biases(mixture, record.loads)
    bias = mixture.router.selection_bias
    assert bias is not None
    load = record.loads[0]
    loss = record.losses["router/balance_loss"].detach()
    return {"loss": loss, "choices": load.choices_E, "tokens": load.tokens, "entropy": load.entropy, "bias": bias}


def tokens() -> Tensor:
    return torch.randn(4, 10, WIDTH, generator=torch.Generator().manual_seed(1)).double()


def run_rank(rank: int, folder: Path) -> None:
    distributed.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=RANKS)
    torch.save(balance(tokens()[2 * rank : 2 * rank + 2]), folder / f"{rank}.pt")
    distributed.destroy_process_group()


@pytest.mark.filterwarnings(
    "ignore:.*fork.*:DeprecationWarning"
)  # the children do nothing but this; a spawn takes long
def test_ranks_balance_together(tmp_path: Path) -> None:
    fork = multiprocessing.get_context("fork")
    processes = [fork.Process(target=run_rank, args=(rank, tmp_path)) for rank in range(RANKS)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
        assert process.exitcode == 0
    whole = balance(tokens())
    parts = [torch.load(tmp_path / f"{rank}.pt") for rank in range(RANKS)]
    assert float(whole["bias"].abs().max()) > 1e-3
    for part in parts:
        for name in ("choices", "tokens", "bias"):
            assert torch.equal(part[name], whole[name]), name
        torch.testing.assert_close(part["entropy"], whole["entropy"])
    torch.testing.assert_close(parts[0]["loss"] + parts[1]["loss"], whole["loss"])
