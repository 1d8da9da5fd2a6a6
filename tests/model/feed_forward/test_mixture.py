"""Whole mixtures against transformers: values, the gradient of the input and of every parameter."""

from __future__ import annotations

import pytest
import torch

from ingot.model.context import Context
from ingot.model.feed_forward.mixture import MixtureOfExperts, MoeConfig
from ingot.model.mixers.mixer import Site
from ingot.model.norm import NormConfig
from ingot.model.record import Record
from tests.model.feed_forward.peers import EXPERTS, PEERS, WIDTH, Peer


def random_input(*shape: int, seed: int = 1) -> torch.Tensor:
    return torch.randn(*shape, WIDTH, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("backend", ["grouped", "loop"])
@pytest.mark.parametrize("peer", PEERS.values(), ids=PEERS.keys())
def test_values_and_gradients_equal_transformers(peer: Peer, backend: str) -> None:
    block = peer.block()
    ours = peer.ours(block)
    ours.experts.backend = backend  # type: ignore[assignment]
    x = random_input(2, 9)
    mine_x, their_x = x.clone().requires_grad_(), x.clone().requires_grad_()
    mine, theirs = ours(mine_x), block(their_x)
    theirs = (theirs[0] if isinstance(theirs, tuple) else theirs).view_as(x)
    torch.testing.assert_close(mine, theirs, rtol=1e-5, atol=1e-5)
    direction = random_input(2, 9, seed=2)
    (mine * direction).sum().backward()
    (theirs * direction).sum().backward()
    assert mine_x.grad is not None and their_x.grad is not None
    torch.testing.assert_close(mine_x.grad, their_x.grad, rtol=1e-4, atol=2e-5)
    expected = peer.convert({name: p.grad for name, p in block.named_parameters() if p.grad is not None})
    assert expected.keys() == dict(ours.named_parameters()).keys()
    for name, parameter in ours.named_parameters():
        assert parameter.grad is not None
        torch.testing.assert_close(parameter.grad, expected[name], rtol=1e-4, atol=2e-5)


def reported(mixture: MixtureOfExperts, x: torch.Tensor, context: Context) -> tuple[torch.Tensor, Record]:
    record = Record()
    context.record = record
    out = mixture(x, context)
    mixture.report(context)
    return out, record


BALANCED = {
    "kind": "moe",
    "experts": EXPERTS,
    "active": 3,
    "expert": {"width": 8},
    "router": {"score": "sigmoid", "selection_bias": True},
    "balancers": [
        {"kind": "loss", "coefficient": 0.1, "scope": "sequence"},
        {"kind": "z_loss", "coefficient": 0.01},
        {"kind": "quantile"},
    ],
}


def balanced(scope: str = "sequence") -> MixtureOfExperts:
    torch.manual_seed(0)
    config = {**BALANCED, "balancers": [{**BALANCED["balancers"][0], "scope": scope}, *BALANCED["balancers"][1:]]}  # type: ignore[index]
    return MixtureOfExperts(MoeConfig.model_validate(config), Site(WIDTH, 4, 6, NormConfig())).double()


@pytest.mark.parametrize("scope", ["sequence", "micro_batch", "global"])
def test_padding_counts_nowhere(scope: str) -> None:
    """The same documents with and without padding around them: the same loads, losses and entropies."""
    mixture = balanced(scope)
    x = random_input(2, 7).double()
    documents = torch.tensor([[0, 0, 0, 1, 1, -1, -1], [0, 0, 0, 0, 1, 1, 1]])
    positions = torch.tensor([[0, 1, 2, 0, 1, 0, 0], [0, 1, 2, 3, 0, 1, 2]])
    _, padded = reported(mixture, x, Context(positions, documents))
    real = documents != -1
    row = torch.where(documents == -1, -1, documents + 2 * torch.arange(2)[:, None])[real][None]
    _, alone = reported(mixture, x[real][None], Context(positions[real][None], row))
    mine, other = padded.loads[4], alone.loads[4]
    assert torch.equal(mine.choices_E, other.choices_E)
    assert int(mine.tokens) == 12 and int(mine.choices_E.sum()) == 36
    torch.testing.assert_close(mine.entropy, other.entropy, rtol=1e-12, atol=0)
    assert mine.histogram_EH is not None and other.histogram_EH is not None
    assert torch.equal(mine.histogram_EH, other.histogram_EH)
    assert padded.losses.keys() == alone.losses.keys() == {"router/balance_loss", "router/z_loss"}
    for name, loss in padded.losses.items():
        torch.testing.assert_close(loss, alone.losses[name], rtol=1e-12, atol=0)


def test_lengths_of_a_continuation_are_padding_too() -> None:
    mixture = balanced()
    x, positions = random_input(2, 5).double(), torch.arange(5).expand(2, 5)
    _, cut = reported(mixture, x, Context(positions, lengths_B=torch.tensor([5, 2])))
    _, first = reported(mixture, x[:1], Context(positions[:1]))
    _, second = reported(mixture, x[1:, :2], Context(positions[1:, :2]))
    assert torch.equal(cut.loads[4].choices_E, first.loads[4].choices_E + second.loads[4].choices_E)
    for name, loss in cut.losses.items():
        torch.testing.assert_close(loss, first.losses[name] + second.losses[name], rtol=1e-12, atol=0)


def test_a_record_changes_no_value() -> None:
    mixture = balanced()
    x, positions = random_input(2, 5).double(), torch.arange(5).expand(2, 5)
    assert torch.equal(reported(mixture, x, Context(positions))[0], mixture(x, Context(positions)))


def test_balancing_state_stays_in_float32_and_is_saved() -> None:
    """A bfloat16 copy of the model chooses with the very bias that was trained."""
    config = MoeConfig.model_validate({**BALANCED, "balancers": [{"kind": "smebu"}]})
    mixture = MixtureOfExperts(config, Site(WIDTH, 0, 2, NormConfig()))
    names = {"router.selection_bias", "balancers.0.momentum"}
    assert names == dict(mixture.named_buffers()).keys() <= mixture.state_dict().keys()
    with torch.no_grad():
        for buffer in mixture.buffers():
            buffer.uniform_()
    before = {name: buffer.clone() for name, buffer in mixture.named_buffers()}
    for dtype in (torch.bfloat16, torch.float64):
        mixture.to(dtype)
        assert mixture.router.weight.dtype == dtype
        assert all(torch.equal(buffer, before[name]) for name, buffer in mixture.named_buffers())
    assert all(buffer.is_meta for buffer in mixture.to("meta").buffers())
    assert all(buffer.device.type == "cpu" for buffer in mixture.to_empty(device="cpu").buffers())
