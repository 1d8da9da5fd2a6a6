"""Whole models with packed weights: the same function as with ŵ in full precision, less memory, and new weights on the way."""

from __future__ import annotations

import copy
import gc
import weakref

import pytest
import torch
from torch import Tensor, nn

from ingot.inference.checksum import state_checksum, weights_checksum
from ingot.inference.engine import Engine
from ingot.inference.quantised.layers import PackedLinear
from ingot.inference.quantised.pack import Bits, pack_state, quantise_for_sampling
from ingot.inference.sampling import Sampling
from ingot.model.config import BlockConfig, ModelConfig, QuantisationConfig
from ingot.model.feed_forward.dense import FeedForwardConfig
from ingot.model.initialise import initialise
from ingot.model.linear import Linear
from ingot.model.mixers.attention import AttentionConfig
from ingot.model.transformer import Transformer
from ingot.workspace.errors import IngotError
from tests.model.minis import MINIS, covering_fast, few_layers

TOKENS = torch.arange(24).view(2, 12) % 61


def config(*, tied: bool = True, quantisation: QuantisationConfig | None = None) -> ModelConfig:
    """Two layers of width 64, with biases, and a feed-forward of width 160 (groups of 32)."""
    attention = AttentionConfig(heads=4, key_value_heads=2, head_width=16, query_key_value_bias=True)
    block = BlockConfig(mixer=attention, feed_forward=FeedForwardConfig(width=160))
    return ModelConfig(
        vocabulary_size=61,
        width=64,
        blocks={"layer": block},
        layers="layer*2",
        context=64,
        tied_embeddings=tied,
        quantisation=quantisation,
    )


def make(shape: ModelConfig, seed: int = 0) -> Transformer:
    model = Transformer(shape)
    initialise(model, seed)
    for name, parameter in model.named_parameters():
        if name.endswith("bias"):
            nn.init.normal_(parameter, generator=torch.Generator().manual_seed(seed))
    return model.eval()


def written_out(model: Transformer) -> Transformer:
    """The same model with ordinary layers that hold ŵ."""
    plain = copy.deepcopy(model)
    for name, module in list(plain.named_modules()):
        if isinstance(module, PackedLinear) and name != "output":
            outputs, inputs = module.weight.shape
            layer = Linear(inputs, outputs, bias=module.bias is not None)
            layer.weight = nn.Parameter(module.weight)
            layer.register_parameter("bias", module.bias)
            parent, _, last = name.rpartition(".")
            setattr(plain.get_submodule(parent), last, layer)
    if "project" in plain.__dict__:
        table: Tensor = plain.output.weight
        plain.project = lambda states: states @ table.T  # type: ignore[method-assign]
    return plain


@pytest.mark.parametrize("bits", [8, 4])
@pytest.mark.parametrize(("tied", "head"), [(True, False), (True, True), (False, True), (False, False)])
@torch.no_grad()
def test_the_function_is_that_of_the_rounded_weights(bits: Bits, tied: bool, head: bool) -> None:
    model = make(config(tied=tied))
    exact = model(TOKENS)
    report = quantise_for_sampling(model, bits, head=head)
    assert len(report.packed) == 2 * 4 + head
    found = model(TOKENS)
    torch.testing.assert_close(found, written_out(model)(TOKENS), rtol=1e-5, atol=1e-5)
    off = float((found - exact).norm() / exact.norm())
    assert 1e-5 < off < (0.02 if bits == 8 else 0.3), "rounded, but not by much"


def test_memory_falls() -> None:
    model = make(config(tied=False))
    matrices = [weakref.ref(module.weight) for module in model.modules() if isinstance(module, Linear)]
    report = quantise_for_sampling(model, 8, head=True)
    gc.collect()
    assert all(matrix() is None for matrix in matrices)
    weights = 2 * (64 * 128 + 64 * 64 + 64 * 320 + 160 * 64) + 61 * 64
    outputs = 2 * (128 + 64 + 320 + 64) + 61
    assert report.bytes_before - report.bytes_after == 3 * weights - 4 * outputs
    held = sum(value.numel() * value.element_size() for value in model.state_dict().values())
    assert held == report.bytes_after
    assert not any(parameter.requires_grad for parameter in model.parameters())


def test_four_bits_take_an_eighth_and_the_scales() -> None:
    model = make(config())
    layer = model.get_submodule("blocks.0.feed_forward.gate_up")
    assert isinstance(layer, Linear)
    quantise_for_sampling(model, 4)
    layer = model.get_submodule("blocks.0.feed_forward.gate_up")
    assert isinstance(layer, PackedLinear)
    assert {name: tuple(value.shape) for name, value in layer.state_dict().items()} == {
        "integers": (320, 32),
        "scales": (320, 1),
        "minimums": (320, 1),
    }


def test_a_model_in_training_is_refused() -> None:
    model = make(config()).train()
    with pytest.raises(IngotError, match="in training"):
        quantise_for_sampling(model, 8)
    assert not any(isinstance(module, PackedLinear) for module in model.modules())
    quantise_for_sampling(copy.deepcopy(model).eval(), 8)
    model(TOKENS).sum().backward()  # the original trains on


@pytest.mark.parametrize(("bits", "group"), [(3, 128), (4, 48), (4, 16)])
def test_bad_sizes_are_refused(bits: Bits, group: int) -> None:
    with pytest.raises(IngotError, match=r"bits|groups"):
        quantise_for_sampling(make(config()), bits, group)


@pytest.mark.parametrize("bits", [8, 4])
@pytest.mark.parametrize("tied", [True, False])
def test_new_weights_in_full_precision(bits: Bits, tied: bool) -> None:
    """What a sampler holds after an update is what packing the learner gives, to the bit."""
    sampler, learner = make(config(tied=tied), seed=0), make(config(tied=tied), seed=1)
    quantise_for_sampling(sampler, bits, head=True)
    state = pack_state(sampler, learner.state_dict())
    assert weights_checksum(sampler) != state_checksum(state)
    assert state_checksum(pack_state(sampler, state)) == state_checksum(state), "packed already"
    sampler.load_state_dict(state, strict=True)
    quantise_for_sampling(learner, bits, head=True)
    assert weights_checksum(sampler) == weights_checksum(learner)
    assert torch.equal(sampler(TOKENS), learner(TOKENS))


def test_a_state_without_a_weight() -> None:
    model = make(config())
    state = model.state_dict()
    quantise_for_sampling(model, 8)
    del state["blocks.1.mixer.output.weight"]
    with pytest.raises(IngotError, match=r"blocks\.1\.mixer\.output\.weight"):
        pack_state(model, state)


def test_a_plain_model_takes_the_state_as_it_is() -> None:
    model = make(config())
    state = model.state_dict()
    assert pack_state(model, state).keys() == state.keys()


@pytest.mark.parametrize("bits", [8, 4])
@torch.no_grad()
def test_rounding_that_was_trained_with(bits: Bits) -> None:
    """Four bits are exactly those of training; eight bits hold its rounded weights, not the ones beneath."""
    model = make(config(quantisation=QuantisationConfig(bits=4, group=32)))
    expected, beneath = model(TOKENS), copy.deepcopy(model)
    for module in beneath.modules():
        if isinstance(module, Linear):
            module.rounding = None
    quantise_for_sampling(model, bits)
    off = (model(TOKENS) - expected).norm() / expected.norm()
    assert off < (1e-5 if bits == 4 else 0.02)
    assert off < 0.2 * (beneath(TOKENS) - expected).norm() / expected.norm()


@pytest.mark.parametrize("name", covering_fast(sorted(MINIS)))
@torch.no_grad()
def test_every_architecture(name: str) -> None:
    """Whatever its parts: the function is that of the rounded weights, and what is not packed is named."""
    model = make(few_layers(MINIS[name]).model_copy(update={"vocabulary_size": 61}))
    report = quantise_for_sampling(model, 8)
    left = {path for path, module in model.named_modules() if isinstance(module, Linear) and path != "output"}
    assert left <= set(report.kept)
    assert not left & set(report.packed)
    torch.testing.assert_close(model(TOKENS), written_out(model)(TOKENS), rtol=1e-4, atol=1e-4)


def test_sampling_and_an_update() -> None:
    """Greedy text is that of full passes over the same packed model, also after new weights."""
    model, learner = make(config()), make(config(), seed=1)
    quantise_for_sampling(model, 4)
    engine = Engine(model, slots=2, length=48)
    for version in (0, 1):
        if version:
            engine.update(pack_state(model, learner.state_dict()), version)
        [completion] = engine.complete([[5, 9, 2]], [Sampling(max_new_tokens=12, temperature=0.0)])
        tokens = [5, 9, 2]
        with torch.no_grad():
            for _ in range(12):
                tokens.append(int(model(torch.tensor([tokens]))[0, -1].argmax()))
        assert list(completion.tokens) == tokens[3:]
        assert completion.versions == [version] * 12
