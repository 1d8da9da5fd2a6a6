"""Two processes with half of the tokens each balance as one process with all of them."""

from __future__ import annotations

from pathlib import Path

import numpy
import torch
from torch import Tensor, distributed

from ingot.model.context import Context
from ingot.model.feed_forward.mixture import MixtureOfExperts, MoeConfig, update_biases
from ingot.model.mixers.mixer import Site
from ingot.model.norm import NormConfig
from ingot.model.record import Record
from tests.train.parallel.ranks import run_ranks

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
    mixture, record = (
        MixtureOfExperts(MoeConfig.model_validate(config), Site(WIDTH, 0, 1, NormConfig())),
        Record(sum_ranks=sum_ranks),
    )
    context = Context(torch.arange(x.shape[1]).expand(x.shape[:2]), record=record)
    mixture.double()(x, context)
    mixture.report(context)
    record.sum_over_ranks()
    update_biases(mixture, record.loads)
    bias = mixture.router.selection_bias
    assert bias is not None
    load = record.loads[0]
    loss = record.losses["router/balance_loss"].detach()
    return {"loss": loss, "choices": load.choices_E, "tokens": load.tokens, "entropy": load.entropy, "bias": bias}


def sum_ranks(tensor: Tensor) -> Tensor:
    if distributed.is_initialized():
        distributed.all_reduce(tensor)
    return tensor


def tokens() -> Tensor:
    return torch.randn(4, 10, WIDTH, generator=torch.Generator().manual_seed(1)).double()


def balance_share() -> dict[str, Tensor]:
    rank = distributed.get_rank()
    return balance(tokens()[2 * rank : 2 * rank + 2])


def test_ranks_balance_together(tmp_path: Path) -> None:
    parts = run_ranks(RANKS, balance_share, tmp_path / "store")
    whole = balance(tokens())
    parts = [{name: torch.from_numpy(numpy.asarray(value)) for name, value in part.items()} for part in parts]
    assert float(whole["bias"].abs().max()) > 1e-3
    for part in parts:
        for name in ("choices", "tokens", "bias"):
            assert torch.equal(part[name], whole[name]), name
        torch.testing.assert_close(part["entropy"], whole["entropy"])
    torch.testing.assert_close(parts[0]["loss"] + parts[1]["loss"], whole["loss"])
