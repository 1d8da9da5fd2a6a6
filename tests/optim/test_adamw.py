"""Which weights decay, and the update against torch's plain loop and against the formula."""

from __future__ import annotations

import copy

import torch

from ingot.model.initialise import mup_config
from ingot.model.transformer import Transformer
from ingot.optim.adamw import AdamW
from ingot.optim.build import make_optimizer
from ingot.optim.config import AdamWConfig
from tests.model.tiny import attention, config, random_model, random_tokens

ADAMW = AdamWConfig(lr=0.01, betas=(0.8, 0.9), epsilon=1e-6, weight_decay=0.3)


def every_part(tied: bool) -> Transformer:
    shape = config(attention(query_key_norm="head", query_key_value_bias=True), depth=1, tied_embeddings=tied)
    return random_model(shape)


def groups(model: Transformer) -> tuple[set[str], set[str]]:
    """Names of the parameters that decay, and of those that do not."""
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    plain, decayed = sorted(make_optimizer(model, ADAMW).param_groups, key=lambda group: group["weight_decay"])
    assert (decayed["weight_decay"], plain["weight_decay"]) == (0.3, 0.0)
    return {names[id(p)] for p in decayed["params"]}, {names[id(p)] for p in plain["params"]}


MATRICES = {
    "blocks.0.mixer.query_key_value.weight",
    "blocks.0.mixer.output.weight",
    "blocks.0.feed_forward.gate_up.weight",
    "blocks.0.feed_forward.down.weight",
}
OTHERS = {
    "embedding.weight",
    "norm.gain",
    "blocks.0.mixer_norm.gain",
    "blocks.0.feed_forward_norm.gain",
    "blocks.0.mixer.query_norm.gain",
    "blocks.0.mixer.key_norm.gain",
    "blocks.0.mixer.query_key_value.bias",
}


def test_matrices_decay_and_nothing_else() -> None:
    assert groups(every_part(tied=True)) == (MATRICES, OTHERS)
    assert groups(every_part(tied=False)) == (MATRICES | {"output.weight"}, OTHERS)


def test_frozen_parameters_are_left_out() -> None:
    model = every_part(tied=True)
    model.embedding.weight.requires_grad_(False)
    assert groups(model) == (MATRICES, OTHERS - {"embedding.weight"})


def set_gradients(model: Transformer, seed: int) -> None:
    model.zero_grad()
    model(random_tokens(2, 6, seed=seed)).square().mean().backward()


def test_steps_are_those_of_torch_and_of_the_formula() -> None:
    model = every_part(tied=False)
    peer = copy.deepcopy(model)
    exact = {name: parameter.detach().double() for name, parameter in model.named_parameters()}
    first = {name: torch.zeros_like(value) for name, value in exact.items()}
    second = {name: torch.zeros_like(value) for name, value in exact.items()}
    optimizer = make_optimizer(model, ADAMW)
    decayed = MATRICES | {"output.weight"}
    plain_groups = [
        {"params": [p for name, p in peer.named_parameters() if (name in decayed) == decays], "weight_decay": decay}
        for decays, decay in ((True, 0.3), (False, 0.0))
    ]
    plain = torch.optim.AdamW(plain_groups, lr=0.01, betas=(0.8, 0.9), eps=1e-6, foreach=False, fused=False)
    for step in range(1, 4):
        set_gradients(model, step)
        for one, other in zip(model.parameters(), peer.parameters(), strict=True):
            other.grad = None if one.grad is None else one.grad.clone()
        for name, parameter in model.named_parameters():
            assert parameter.grad is not None
            gradient = parameter.grad.double()
            exact[name] *= 1 - 0.01 * (0.3 if name in decayed else 0.0)
            first[name] = 0.8 * first[name] + 0.2 * gradient
            second[name] = 0.9 * second[name] + 0.1 * gradient**2
            mean, square = first[name] / (1 - 0.8**step), second[name] / (1 - 0.9**step)
            exact[name] -= 0.01 * mean / (square.sqrt() + 1e-6)
        optimizer.step()
        plain.step()
    for (name, parameter), other in zip(model.named_parameters(), peer.parameters(), strict=True):
        torch.testing.assert_close(parameter, other, rtol=0, atol=2e-7, msg=name)
        torch.testing.assert_close(parameter.double(), exact[name], rtol=0, atol=5e-7, msg=name)


def test_mup_scales_the_rate_of_the_blocks_matrices() -> None:
    model = Transformer(mup_config(config(width=96, tied_embeddings=False), 24))
    optimizer = make_optimizer(model, ADAMW)
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    rates = {names[id(p)]: group["peak_lr"] for group in optimizer.param_groups for p in group["params"]}
    assert set(rates) == set(names.values())
    assert rates["blocks.0.mixer.query_key_value.weight"] == rates["blocks.1.feed_forward.down.weight"] == 0.0025
    assert rates["embedding.weight"] == rates["output.weight"] == rates["norm.gain"] == 0.01


def test_scaling_and_skipping_are_tensors() -> None:
    """A gradient divided by `grad_scale` is the clipped gradient; with `found_inf` nothing moves, not even the step."""
    model, peer = every_part(tied=True), every_part(tied=True)
    optimizer, plain = make_optimizer(model, ADAMW), make_optimizer(peer, ADAMW)
    assert isinstance(optimizer, AdamW)
    for step in range(1, 4):
        set_gradients(model, step)
        set_gradients(peer, step)
        optimizer.grad_scale, optimizer.found_inf = torch.tensor(4.0), torch.tensor(float(step == 2))
        if step == 2:
            before = [parameter.detach().clone() for parameter in model.parameters()]
            next(model.parameters()).grad.fill_(torch.nan)  # type: ignore[union-attr]
            optimizer.step()
            assert all(torch.equal(*pair) for pair in zip(before, model.parameters(), strict=True))
            continue
        for parameter in peer.parameters():
            assert parameter.grad is not None
            parameter.grad /= 4.0
        optimizer.step()
        plain.step()
    for one, other in zip(model.parameters(), peer.parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-7)
