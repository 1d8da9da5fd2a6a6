"""Sampling copies in float8: layers against the formula in float64, models against float32, new weights on the way."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn

from ingot.inference.checksum import state_checksum, weights_checksum
from ingot.inference.engine import Engine
from ingot.inference.quantised import pack
from ingot.inference.quantised.layers import Float8Linear
from ingot.inference.quantised.pack import check_device, pack_float8, pack_state, quantise_for_sampling
from ingot.inference.sampling import Sampling
from ingot.model.config import ModelConfig, QuantisationConfig
from ingot.model.feed_forward.experts import Experts
from ingot.model.linear import Linear
from ingot.model.transformer import Transformer
from ingot.train.device import FLOAT8
from ingot.workspace.errors import IngotError
from tests.inference.quantised.cases import normal
from tests.inference.quantised.test_pack import TOKENS, config, make
from tests.model.minis import MINIS, covering_fast, few_layers

PROMPT = [5, 9, 2]


@pytest.fixture
def small_layers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Layers of tiny models are cast too."""
    monkeypatch.setattr(pack, "SMALLEST", 16)


def round_rows(x: Tensor) -> Tensor:
    """s · round(x/s) in float64, with the nearest number of torch's table of the format."""
    table = torch.arange(256, dtype=torch.uint8).view(FLOAT8).double()
    table = table[table.isfinite()].unique()
    scale = x.double().abs().amax(dim=-1, keepdim=True) / 448
    wanted = x.double() / scale
    above = torch.searchsorted(table, wanted).clamp(1, len(table) - 1)
    low, high = table[above - 1], table[above]
    return torch.where(wanted - low < high - wanted, low, high) * scale


@pytest.mark.parametrize("biased", [False, True])
def test_a_layer_is_the_formula(biased: bool) -> None:
    x, weight = normal(3, 7, 96, seed=1), normal(48, 96, seed=2) * 0.05
    bias = normal(48, seed=3) if biased else None
    layer = Float8Linear(weight, bias, pack_float8)
    expected = round_rows(x) @ round_rows(weight).T + (0 if bias is None else bias)
    torch.testing.assert_close(layer(x).double(), expected, rtol=1e-5, atol=1e-5)  # sums and scales in float32
    torch.testing.assert_close(layer.weight.double(), round_rows(weight), rtol=1e-6, atol=0)
    exact = x.double() @ weight.double().T
    error = round_rows(x) @ round_rows(weight).T - exact
    assert 0.01 < float(error.norm() / exact.norm()) < 0.045, "three bits of mantissa in both factors"


def test_an_outlier_stays_in_its_row() -> None:
    """One token and one output are far larger than the rest: the other products lose nothing."""
    x, weight = normal(32, 64, seed=1), normal(48, 64, seed=2)
    x[5] *= 1e6
    weight[7] *= 1e6
    exact = x.double() @ weight.double().T
    error = Float8Linear(weight, None, pack_float8)(x).double() - exact
    quiet = torch.ones(32, 48, dtype=torch.bool)
    quiet[5], quiet[:, 7] = False, False
    assert float(error[quiet].norm() / exact[quiet].norm()) < 0.045


def test_autocast_and_shapes() -> None:
    layer = Float8Linear(normal(48, 64, seed=2), normal(48, seed=3), pack_float8)
    x = normal(2, 5, 64, seed=1)
    with torch.autocast("cpu", torch.bfloat16):
        found = layer(x)
    assert found.dtype == torch.bfloat16
    assert torch.equal(found, layer(x.bfloat16()))
    assert layer(x[:0]).shape == (0, 5, 48)


def test_which_layers() -> None:
    """On the meta device: large ones of the blocks; not the head, the routed experts, or what is narrow or not aligned."""
    mixer = {"heads": 16, "key_value_heads": 2, "head_width": 64}
    moe = {"kind": "moe", "experts": 4, "active": 2, "shared": {"width": 2048}, "expert": {"width": 2048}}
    shape = {
        "vocabulary_size": 50_000,
        "width": 1024,
        "blocks": {
            "dense": {"mixer": mixer, "feed_forward": {"width": 2048}},
            "mixture": {"mixer": mixer, "feed_forward": moe},
            "odd": {"mixer": {**mixer, "heads": 14}, "feed_forward": {"width": 2056}},
        },
        "layers": "dense mixture odd",
        "context": 64,
        "tied_embeddings": False,
    }
    with torch.device("meta"):
        model = Transformer(ModelConfig.model_validate(shape)).eval().bfloat16()
    experts = [name for name, module in model.named_modules() if isinstance(module, Experts)]
    sizes = {name: module.weight.numel() for name, module in model.named_modules() if isinstance(module, Linear)}
    rows = {name: module.out_features for name, module in model.named_modules() if isinstance(module, Linear)}
    report = quantise_for_sampling(model, "float8")
    always = ("mixer.query_key_value", "mixer.output")
    feed_forward = ("feed_forward.gate_up", "feed_forward.down")
    assert {name for name in report.packed if "shared" not in name} == {
        *(f"blocks.{block}.{name}" for block in (0, 1) for name in always),
        *(f"blocks.0.{name}" for name in feed_forward),
        "blocks.2.mixer.query_key_value",
        "blocks.2.feed_forward.gate_up",
    }
    assert sum("shared" in name for name in report.packed) == 2, "shared experts are ordinary layers"
    assert set(experts) <= set(report.kept) and len(experts) == 1
    saved = sum(sizes[name] - 4 * rows[name] for name in report.packed)
    assert report.bytes_before - report.bytes_after == saved, "two bytes a weight become one, and a scale an output"


def test_where_nothing_would_change() -> None:
    model = make(config())
    with pytest.raises(IngotError, match="no linear layer has 1024 inputs and outputs"):
        quantise_for_sampling(model, "float8")
    with pytest.raises(IngotError, match="no linear layer has 1024 inputs and outputs"):
        Engine(model, slots=2, length=48, dtype=FLOAT8)


def test_a_gpu_without_products(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (8, 0))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "NVIDIA A100")
    with pytest.raises(IngotError, match="NVIDIA A100 has no float8 products"):
        check_device(torch.device("cuda"))
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (8, 9))
    check_device(torch.device("cuda"))


@torch.no_grad()
def test_how_far_predictions_move() -> None:
    """Llama's shape at a width of 1024: the log-probabilities of tokens sampled in float32, and the divergence, in nats.

    In RL this is the difference of sampler and learner that importance weights correct.
    """
    shape = {
        "vocabulary_size": 4096,
        "width": 1024,
        "blocks": {
            "layer": {"mixer": {"heads": 16, "key_value_heads": 4, "head_width": 64}, "feed_forward": {"width": 2816}}
        },
        "layers": "layer*4",
        "context": 64,
        "tied_embeddings": False,
    }
    model = make(ModelConfig.model_validate(shape))
    model.output.weight.mul_(3 / model(TOKENS).std())  # the entropy of a trained model, not of a uniform choice
    packed = copy.deepcopy(model)
    report = quantise_for_sampling(packed, "float8")
    assert len(report.packed) == 4 * 4 and report.kept == ()
    generator = torch.Generator().manual_seed(0)
    tokens = torch.randint(0, 4096, (4, 64), generator=generator)
    exact, found = (one(tokens).double().log_softmax(-1).flatten(0, 1) for one in (model, packed))
    sampled = exact.exp().multinomial(1, generator=generator)
    moved = (exact - found).gather(1, sampled).abs().mean()
    divergence = (exact.exp() * (exact - found)).sum(-1).mean()
    assert 1e-3 < float(moved) < 0.35
    assert float(divergence) < 0.1


@pytest.mark.parametrize("name", covering_fast(sorted(MINIS)))
@pytest.mark.usefixtures("small_layers")
@torch.no_grad()
def test_every_architecture(name: str) -> None:
    """What is cast is not far off, and what is not is named."""
    model = make(few_layers(MINIS[name]).model_copy(update={"vocabulary_size": 61}))
    exact = model(TOKENS)
    report = quantise_for_sampling(model, "float8")
    left = {path for path, module in model.named_modules() if isinstance(module, Linear) and path != "output"}
    assert left <= set(report.kept) and not left & set(report.packed)
    off = float((model(TOKENS) - exact).norm() / exact.norm())
    assert 0 < off < 0.3


@pytest.mark.usefixtures("small_layers")
@torch.no_grad()
def test_rounding_that_was_trained_with() -> None:
    """Float8 holds the rounded weights, not the ones beneath."""
    model = make(config(quantisation=QuantisationConfig(bits=4, group=32)))
    layer = model.get_submodule("blocks.0.feed_forward.gate_up")
    assert isinstance(layer, Linear)
    rounded = layer.matrix()
    quantise_for_sampling(model, "float8")
    found = model.get_submodule("blocks.0.feed_forward.gate_up")
    assert isinstance(found, Float8Linear)
    torch.testing.assert_close(found.weight.double(), round_rows(rounded), rtol=1e-6, atol=0)


@pytest.mark.usefixtures("small_layers")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("tied", [True, False])
def test_new_weights_and_what_is_sampled(dtype: torch.dtype, tied: bool) -> None:
    """After an update an engine samples what a freshly packed model samples, and the checksums are the same."""
    sampler, learner = make(config(tied=tied), seed=0).to(dtype), make(config(tied=tied), seed=1)
    quantise_for_sampling(sampler, "float8")
    engine = Engine(sampler, slots=4, length=48)
    before = engine.checksum
    state = pack_state(sampler, learner.state_dict())
    assert state_checksum(pack_state(sampler, state)) == state_checksum(state), "packed already"
    engine.update(state, 1)
    fresh = copy.deepcopy(learner).to(dtype)
    quantise_for_sampling(fresh, "float8")
    assert engine.checksum == weights_checksum(fresh) != before
    samplings = [Sampling(max_new_tokens=12, temperature=1.0, seed=seed) for seed in range(4)]
    found, expected = (one.complete([PROMPT] * 4, samplings) for one in (engine, Engine(fresh, slots=4, length=48)))
    assert [each.tokens for each in found] == [each.tokens for each in expected]
    assert [each.logprobs for each in found] == [each.logprobs for each in expected]
    assert found[0].versions == [1] * 12


@pytest.mark.usefixtures("small_layers")
def test_greedy_text_is_that_of_full_passes() -> None:
    """A row's scale is its own: a token's product does not depend on what else is in the batch."""
    model = make(config())
    quantise_for_sampling(model, "float8")
    [completion] = Engine(model, slots=2, length=48).complete([PROMPT], [Sampling(max_new_tokens=12, temperature=0.0)])
    tokens = list(PROMPT)
    with torch.no_grad():
        for _ in range(12):
            tokens.append(int(model(torch.tensor([tokens]))[0, -1].argmax()))
    assert list(completion.tokens) == tokens[3:]


@pytest.mark.usefixtures("small_layers")
def test_the_engine_makes_the_copy() -> None:
    """`dtype` float8: the learner stays in float32, and every update casts its weights anew."""
    learner = make(config())
    engine = Engine(learner, slots=2, length=48, dtype=FLOAT8)
    assert all(parameter.dtype == torch.float32 for parameter in learner.parameters())
    assert engine.model.embedding.weight.dtype == torch.bfloat16
    assert sum(isinstance(module, Float8Linear) for module in engine.model.modules()) == 2 * 4
    with torch.no_grad():
        for parameter in learner.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    engine.update(None, 1)
    by_hand = copy.deepcopy(learner).bfloat16()
    quantise_for_sampling(by_hand, "float8")
    assert engine.checksum == weights_checksum(by_hand)
    [found] = engine.complete([PROMPT], [Sampling(max_new_tokens=8, temperature=1.0, seed=3)])
    [expected] = Engine(by_hand, slots=2, length=48).complete([PROMPT], [Sampling(max_new_tokens=8, seed=3)])
    assert found.tokens == expected.tokens


@pytest.mark.usefixtures("small_layers")
def test_the_state_says_what_it_holds() -> None:
    model = make(config())
    state = model.state_dict()
    quantise_for_sampling(model, "float8")
    held = {name: tensor for name, tensor in model.state_dict().items() if name.startswith("blocks.0.feed_forward.")}
    assert {
        name.rpartition("feed_forward.")[2]: (tuple(tensor.shape), tensor.dtype) for name, tensor in held.items()
    } == {
        "gate_up.values": ((320, 64), FLOAT8),
        "gate_up.scales": ((320, 1), torch.float32),
        "down.values": ((64, 160), FLOAT8),
        "down.scales": ((64, 1), torch.float32),
    }
    del state["blocks.1.mixer.output.weight"]
    with pytest.raises(IngotError, match=r"blocks\.1\.mixer\.output\.weight"):
        pack_state(model, state)
    eight = make(config())
    quantise_for_sampling(eight, 8)
    with pytest.raises(IngotError, match="the new weights have no"):
        pack_state(model, eight.state_dict())
    assert not any(isinstance(module, nn.Linear) for block in model.blocks for module in block.modules())
