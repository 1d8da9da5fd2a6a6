"""The loss fused with its gradient, against logits and log_softmax in float64, and against the loss of transformers."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import transformers
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from ingot.train.losses import fused_head
from ingot.train.losses.fused_head import linear_cross_entropy, linear_logprobs

TOKENS, WIDTH, VOCABULARY = 10, 6, 23
EXACT = 1e-12


def case(seed: int = 0) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """States, head, targets, a and b; a third of the tokens counts in neither sum, and signs are mixed."""
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    targets_N = torch.randint(VOCABULARY, (TOKENS,), generator=generator)
    a_N, b_N = normal(TOKENS), normal(TOKENS)
    a_N[::3] = b_N[::3] = 0
    return normal(TOKENS, WIDTH), normal(VOCABULARY, WIDTH), targets_N, a_N, b_N


def plain(
    states_ND: Tensor,
    weight_VD: Tensor,
    targets_N: Tensor,
    a_N: Tensor,
    b_N: Tensor | None,
    scale: float,
    softcap: float | None,
) -> tuple[Tensor, Tensor, Tensor]:
    """The definition, with all logits at once."""
    logits_NV = scale * (states_ND @ weight_VD.T)
    if softcap is not None:
        logits_NV = softcap * torch.tanh(logits_NV / softcap)
    logprobs_N = logits_NV.log_softmax(-1)[torch.arange(len(targets_N)), targets_N]
    normalisers_N = logits_NV.logsumexp(-1)
    loss = (a_N * logprobs_N).sum()
    return loss if b_N is None else loss + (b_N * normalisers_N**2).sum(), logprobs_N, normalisers_N


def close(ours: Tensor, exact: Tensor) -> None:
    torch.testing.assert_close(ours, exact, rtol=0, atol=EXACT * max(1.0, float(exact.detach().abs().max())))


def in_chunks(tokens: int, monkeypatch: pytest.MonkeyPatch, vocabulary: int = VOCABULARY) -> None:
    monkeypatch.setattr(fused_head, "CHUNK_LOGITS_CPU", tokens * vocabulary)


@pytest.mark.parametrize("tokens", [1, 3, 1000], ids=["token by token", "chunks of 3", "one chunk"])
@pytest.mark.parametrize(("scale", "softcap"), [(1.0, None), (0.25, None), (1.0, 3.0), (1.5, 2.0)])
@pytest.mark.parametrize("with_z", [False, True], ids=["", "z"])
@pytest.mark.parametrize("multiple", [1, 8], ids=["", "rows of zeros"])
def test_values_and_gradients_are_those_of_all_logits(
    multiple: int, tokens: int, scale: float, softcap: float | None, with_z: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The loss is a part of something larger, so the gradient that comes from above is not 1."""
    in_chunks(tokens, monkeypatch)
    monkeypatch.setattr(fused_head, "_row_multiple", lambda states: multiple)
    states, weight, targets, a, b = case()
    found: list[Any] = []
    expected: list[Any] = []
    for function, list_of in ((linear_cross_entropy, found), (plain, expected)):
        leaves = states.clone().requires_grad_(), weight.clone().requires_grad_()
        values = function(*leaves, targets, a, b if with_z else None, scale, softcap)
        (values[0] * -1.7).backward()
        list_of += [each.detach() for each in values] + [leaf.grad for leaf in leaves]
    for one, other in zip(found, expected, strict=True):
        close(one, other)


@pytest.mark.parametrize("wanted", ["states", "weight", "neither"])
def test_only_the_gradients_that_are_wanted(wanted: str, monkeypatch: pytest.MonkeyPatch) -> None:
    in_chunks(4, monkeypatch)
    states, weight, targets, a, b = case(1)
    found: list[Any] = []
    expected: list[Any] = []
    for function, list_of in ((linear_cross_entropy, found), (plain, expected)):
        leaves = states.clone().requires_grad_(wanted == "states"), weight.clone().requires_grad_(wanted == "weight")
        loss = function(*leaves, targets, a, b, 1.0, None)[0]
        assert loss.requires_grad == (wanted != "neither")
        if wanted != "neither":
            loss.backward()
        list_of += [loss.detach(), *(leaf.grad for leaf in leaves)]
    for one, other in zip(found, expected, strict=True):
        assert (one is None) == (other is None)
        if one is not None and other is not None:
            close(one, other)


def test_one_matrix_as_embedding_and_head(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both gradients of a tied matrix arrive."""
    in_chunks(3, monkeypatch)
    _, weight, targets, a, b = case(2)
    tokens, mix = torch.arange(TOKENS) * 2, torch.randn(WIDTH, WIDTH, dtype=torch.float64)
    gradients: list[Tensor] = []
    for function in (linear_cross_entropy, plain):
        tied = weight.clone().requires_grad_()
        function(torch.tanh(tied[tokens] @ mix), tied, targets, a, b, 1.0, 5.0)[0].backward()
        assert tied.grad is not None
        gradients.append(tied.grad)
    close(gradients[0], gradients[1])


@pytest.mark.parametrize("wanted", ["both", "states", "weight"])
@pytest.mark.parametrize("tokens", [1, 3, 1000], ids=["token by token", "chunks of 3", "one chunk"])
@pytest.mark.parametrize(("scale", "softcap"), [(1.0, None), (0.25, None), (1.5, 2.0)])
def test_log_probabilities_for_any_loss(
    tokens: int, scale: float, softcap: float | None, wanted: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A loss whose factors depend on the log-probabilities."""
    in_chunks(tokens, monkeypatch)
    states, weight, targets, a, _ = case(3)
    found: list[Any] = []
    expected: list[Any] = []
    for fused, list_of in ((True, found), (False, expected)):
        leaves = states.clone().requires_grad_(wanted != "weight"), weight.clone().requires_grad_(wanted != "states")
        if fused:
            logprobs = linear_logprobs(*leaves, targets, scale, softcap)
        else:
            logprobs = plain(*leaves, targets, a, None, scale, softcap)[1]
        ((logprobs * 0.3).exp() * a).sum().backward()
        list_of += [logprobs.detach(), *(leaf.grad for leaf in leaves)]
    for one, other in zip(found, expected, strict=True):
        assert (one is None) == (other is None)
        if one is not None:
            close(one, other)


def test_log_probabilities_in_bfloat16_are_those_of_rounded_logits(monkeypatch: pytest.MonkeyPatch) -> None:
    """As autocast computes them: products in bfloat16, all else in float32; the head's gradient is added up in float32."""
    in_chunks(3, monkeypatch)
    states, weight, targets, a, _ = (each.float() if each.is_floating_point() else each for each in case(4))
    leaves = states.bfloat16().requires_grad_(), weight.requires_grad_()
    logprobs = linear_logprobs(*leaves, targets)
    logits = (leaves[0].detach() @ weight.detach().bfloat16().T).float()
    expected = logits.log_softmax(-1)[torch.arange(TOKENS), targets]
    torch.testing.assert_close(logprobs.detach(), expected, rtol=1e-6, atol=1e-6)
    (logprobs * a).sum().backward()
    rounded = ((torch.nn.functional.one_hot(targets, VOCABULARY) - logits.softmax(-1)) * a[:, None]).bfloat16().float()
    assert leaves[1].grad is not None and leaves[1].grad.dtype == torch.float32
    torch.testing.assert_close(leaves[1].grad, rounded.T @ leaves[0].detach().float(), rtol=1e-2, atol=2e-2)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("softcap", [None, 20.0])
def test_log_probabilities_by_the_kernels(softcap: float | None) -> None:
    """Many chunks of a vocabulary that no power of two divides, in bfloat16, against float64."""
    generator = torch.Generator().manual_seed(5)
    states, weight = (torch.randn(rows, 64, generator=generator) for rows in (5000, 49_158))
    targets, a = torch.randint(49_158, (5000,), generator=generator), torch.randn(5000, generator=generator)
    leaves = states.cuda().bfloat16().requires_grad_(), weight.cuda().requires_grad_()
    logprobs = linear_logprobs(*leaves, targets.cuda(), 0.5, softcap)
    ((logprobs * 0.1).exp() * a.cuda()).sum().backward(retain_graph=True)
    summed, alone = torch.autograd.grad(logprobs.sum(), leaves[0], retain_graph=True)[0], torch.ones(5000).cuda()
    assert torch.equal(summed, torch.autograd.grad(logprobs, leaves[0], alone)[0]), "a gradient without strides"
    exact = leaves[0].detach().double().requires_grad_(), leaves[1].detach().bfloat16().double().requires_grad_()
    expected = plain(*exact, targets.cuda(), a.cuda().double(), None, 0.5, softcap)[1]
    ((expected * 0.1).exp() * a.cuda()).sum().backward()
    assert float((logprobs.double() - expected).detach().abs().max()) < 0.1  # logits are rounded to three digits
    for leaf, other in zip(leaves, exact, strict=True):
        assert leaf.grad is not None and other.grad is not None
        assert float((leaf.grad.double() - other.grad).norm() / other.grad.norm()) < 1e-2


def test_log_probabilities_carry_no_gradient() -> None:
    states, weight, targets, a, b = case()
    _, logprobs, normalisers = linear_cross_entropy(states.requires_grad_(), weight, targets, a, b)
    assert not logprobs.requires_grad and not normalisers.requires_grad


def test_no_tokens_at_all() -> None:
    states, weight, targets, a, b = case()
    leaves = states[:0].requires_grad_(), weight.requires_grad_()
    loss, logprobs, _ = linear_cross_entropy(*leaves, targets[:0], a[:0], b[:0])
    loss.backward()
    assert float(loss.detach()) == 0 and logprobs.shape == (0,)
    assert leaves[1].grad is not None and not leaves[1].grad.any()


@pytest.mark.parametrize("seed", [0, 1])
def test_float32_is_as_good_as_torch_in_float32(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Large logits: nothing overflows, and errors are not larger than those of torch's own cross-entropy."""
    in_chunks(3, monkeypatch)
    states, weight, targets, a, b = case(seed)
    states = states * 60
    exact = torch.autograd.grad(plain(states.requires_grad_(), weight, targets, a, b, 1.0, None)[0], states)[0]
    single = [each.detach().float() for each in (states, weight, a, b)]
    errors = []
    for function in (linear_cross_entropy, plain):
        leaf = single[0].clone().requires_grad_()
        function(leaf, single[1], targets, single[2], single[3], 1.0, None)[0].backward()
        assert leaf.grad is not None
        errors.append(float((leaf.grad.double() - exact).abs().max() / exact.abs().max()))
    assert errors[0] < 2 * errors[1] + 1e-7


class Largest(TorchDispatchMode):
    """The number of values in the largest tensor that is made inside."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.values = 0

    def __torch_dispatch__(self, operator: Any, types: Any, arguments: Any = (), options: Any = None) -> Any:
        made = operator(*arguments, **(options or {}))
        for each in made if isinstance(made, tuple | list) else [made]:
            if isinstance(each, Tensor):
                self.values = max(self.values, each.numel())
        return made


def test_memory_does_not_grow_with_tokens_times_vocabulary(monkeypatch: pytest.MonkeyPatch) -> None:
    vocabulary, chunk = 500, 8
    in_chunks(chunk, monkeypatch, vocabulary)
    largest: dict[str, list[int]] = {"fused": [], "plain": []}
    for tokens in (100, 400):
        weight = torch.randn(vocabulary, 4, requires_grad=True)
        states, targets = torch.randn(tokens, 4, requires_grad=True), torch.randint(vocabulary, (tokens,))
        a = torch.full((tokens,), -1.0)
        for name, function in (("fused", linear_cross_entropy), ("plain", plain)):
            with Largest() as seen:
                function(states, weight, targets, a, a, 1.0, 30.0)[0].backward()
            largest[name].append(seen.values)
    assert largest["fused"] == [chunk * vocabulary] * 2
    assert largest["plain"] == [100 * vocabulary, 400 * vocabulary], "the measurement sees what it should see"


@pytest.mark.parametrize("tied", [False, True])
def test_the_loss_of_transformers(tied: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A small Llama with labels: its own loss (in float32, whatever the model is in), and the gradients of all parameters."""
    in_chunks(7, monkeypatch)
    torch.manual_seed(0)
    shape = transformers.LlamaConfig(
        vocab_size=VOCABULARY, hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=2
    )
    shape.tie_word_embeddings = tied
    peer = transformers.LlamaForCausalLM(shape).double()
    ids = torch.randint(VOCABULARY, (3, 11))
    labels = ids.masked_fill(torch.rand(ids.shape) < 0.3, -100)
    expected = peer(ids, labels=labels).loss
    expected.backward()
    gradients = {name: each.grad.clone() for name, each in peer.named_parameters() if each.grad is not None}
    peer.zero_grad()
    states = peer.model(ids).last_hidden_state[:, :-1].flatten(0, 1)
    targets = labels[:, 1:].flatten()
    counted = (targets != -100).double()
    loss, _, _ = linear_cross_entropy(states, peer.lm_head.weight, targets.clamp(min=0), -counted / counted.sum())
    loss.backward()
    assert float(loss.detach()) == pytest.approx(float(expected.detach()), rel=2e-7)
    assert gradients.keys() == {name for name, each in peer.named_parameters() if each.grad is not None}
    for name, each in peer.named_parameters():
        assert each.grad is not None
        torch.testing.assert_close(each.grad, gradients[name], rtol=0, atol=1e-6 * float(gradients[name].abs().max()))


@pytest.mark.parametrize("wrong", [-100, -1, VOCABULARY, 2_000_000_000])
def test_a_target_outside_of_the_vocabulary_is_named(wrong: int) -> None:
    states, weight, targets, a, _ = (each.float() if each.is_floating_point() else each for each in case())
    targets[-1] = wrong
    with pytest.raises((IndexError, RuntimeError), match=str(wrong)):
        linear_cross_entropy(states, weight, targets, a)


@pytest.mark.parametrize("wrong", [float("nan"), float("inf")])
def test_what_is_no_number_stays_none(wrong: float) -> None:
    """The guards of a run look for it."""
    states, weight, targets, a, b = (each.float() if each.is_floating_point() else each for each in case())
    states[4, 2] = wrong
    _, logprobs, normalisers = linear_cross_entropy(states.requires_grad_(), weight, targets, a, b)
    assert logprobs.isnan().nonzero().tolist() == [[4]] and normalisers.isnan().nonzero().tolist() == [[4]]
