"""QK-clip against logits computed by hand: a clipped head has the threshold, all others what they had."""

from __future__ import annotations

import copy
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.distributed.fsdp import fully_shard

from ingot.model.config import ModelConfig
from ingot.model.mixers.attend import Backend, use_backend
from ingot.model.mixers.attention import Attention
from ingot.model.mixers.mla import Mla
from ingot.model.record import Record
from ingot.model.transformer import Transformer
from ingot.optim.qk_clip import clip_query_key
from tests.model.tiny import VOCABULARY, attention, config, random_model, random_tokens
from tests.train.parallel.models import MLA, shape
from tests.train.parallel.ranks import run_ranks

LENGTH = 150  # two blocks of the attention in blocks
POSITIONS = torch.cat([torch.arange(100), torch.arange(35), torch.zeros(15)]).long().expand(2, LENGTH)
DOCUMENTS = torch.tensor([0] * 100 + [1] * 35 + [-1] * 15).expand(2, LENGTH)

DIRECT: dict[str, Any] = copy.deepcopy(MLA)
DIRECT["mixer"]["query_latent"] = None
SHAPES: dict[str, ModelConfig] = {
    "grouped, with biases": config(attention(query_key_value_bias=True)),
    "multi-head": config(attention(key_value_heads=4, rope=None)),
    "multi-query, window": config(attention(key_value_heads=1, window=9)),
    "latent": shape(MLA, layers=2, vocabulary_size=VOCABULARY),
    "latent, direct queries": shape(DIRECT, layers=2, vocabulary_size=VOCABULARY),
}


def run(model: Transformer, want: bool = True) -> tuple[Tensor, Record]:
    record = Record(want_logits=want)
    states = model.hidden(random_tokens(2, LENGTH), POSITIONS, DOCUMENTS, record=record)
    return states, record


def logits_by_hand(module: Attention | Mla, x_BTD: Tensor) -> Tensor:
    """The largest visible logit of every head [H]: queries and keys as the layer makes them, then all pairs."""
    from ingot.model.context import Context

    context = Context(POSITIONS, DOCUMENTS)
    if isinstance(module, Mla):
        query, _ = module._queries(x_BTD, context)
        key, _ = module._expand(module._entries(x_BTD, context))
        window = None
    else:
        query, key, _ = module._heads(module._projection(x_BTD), context)
        key, window = key.repeat_interleave(query.shape[1] // key.shape[1], dim=1), module.config.window
    logits = torch.einsum("bhtw,bhsw->bhts", query, key) * module.scale
    index = torch.arange(LENGTH)
    seen = (index[:, None] >= index) & (DOCUMENTS[0][:, None] == DOCUMENTS[0]) & (DOCUMENTS[0] >= 0)
    if window is not None:
        seen &= index[:, None] - index < window
    return logits.masked_fill(~seen, -math.inf).amax(dim=(0, 2, 3))


def inputs(model: Transformer) -> dict[int, Tensor]:
    """What the mixer of each layer reads."""
    found: dict[int, Tensor] = {}
    handles = [
        mixer.register_forward_pre_hook(lambda module, given: found.update({module.layer: given[0].detach()}))
        for mixer in mixers(model)
    ]
    run(model, want=False)
    for handle in handles:
        handle.remove()
    return found


def mixers(model: Transformer) -> list[Attention | Mla]:
    return [block.mixer for block in model.blocks]  # type: ignore[misc]


@pytest.mark.parametrize("name", SHAPES)
def test_recorded_logits_are_those_by_hand_and_clipping_brings_them_to_the_threshold(name: str) -> None:
    model = random_model(SHAPES[name]).double()
    read = inputs(model)
    before = {layer: logits_by_hand(mixer, read[layer]) for layer, mixer in enumerate(mixers(model))}
    plain, _ = run(model, want=False)
    states, record = run(model)
    assert torch.equal(states, plain)
    assert record.max_logits.keys() == before.keys()
    for layer, maxima in before.items():
        torch.testing.assert_close(record.max_logits[layer], maxima, rtol=1e-9, atol=1e-9)
    everything = torch.cat(list(before.values()))
    threshold = float(everything.sort().values[-3:-1].mean())  # between the second and the third largest
    metrics = clip_query_key(model, record.max_logits, threshold)
    assert float(metrics["largest_logit"]) == pytest.approx(float(everything.max()))
    assert float(metrics["clipped_heads"]) == pytest.approx(float((everything > threshold).float().mean()))
    assert 0 < float(metrics["clipped_heads"]) < 1
    for layer, mixer in enumerate(mixers(model)):  # the same inputs, the new weights
        expected = torch.where(before[layer] > threshold, threshold, before[layer])
        torch.testing.assert_close(logits_by_hand(mixer, read[layer]), expected, rtol=1e-9, atol=1e-9)


def test_every_logit_of_a_clipped_head_shrinks_alike_and_values_stay() -> None:
    model = random_model(SHAPES["latent"]).double()
    mixer = mixers(model)[0]
    assert isinstance(mixer, Mla)
    values = mixer._up()[1].clone()
    keys = mixer._up()[0].clone()
    clip_query_key(model, {0: torch.tensor([50.0, 400.0, 99.0, 100.0])}, 100.0)
    assert torch.equal(mixer._up()[1], values)
    factors = torch.tensor([1.0, 0.5, 1.0, 1.0], dtype=torch.float64)
    torch.testing.assert_close(mixer._up()[0], keys * factors[:, None, None])


@pytest.mark.parametrize("backend", ["sdpa", "blocks", "plain", "flex"])
def test_every_backend_reports_the_same(backend: Backend) -> None:
    model = random_model(config(attention(), attention(window=7)))
    with use_backend("plain"), torch.no_grad():
        _, expected = run(model)
    with use_backend(backend), torch.no_grad():
        _, found = run(model)
    for layer, maxima in expected.max_logits.items():
        torch.testing.assert_close(found.max_logits[layer], maxima, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("backend", ["blocks", "plain", "flex"])
def test_logits_count_before_the_softcap(backend: Backend) -> None:
    capped = random_model(config(attention(softcap=2.0), depth=1))
    free = random_model(config(attention(), depth=1))
    with torch.no_grad():
        _, expected = run(free)
        with use_backend(backend):
            _, found = run(capped)
    assert float(expected.max_logits[0].max()) > 2.5
    torch.testing.assert_close(found.max_logits[0], expected.max_logits[0], rtol=1e-6, atol=1e-6)


def test_gradients_do_not_change_when_logits_are_recorded() -> None:
    found = []
    for want in (False, True):
        model = random_model(config(attention(softcap=3.0), attention()))
        run(model, want)[0].square().mean().backward()
        found.append([parameter.grad for parameter in model.parameters()])
    for one, other in zip(*found, strict=True):
        assert (one is None and other is None) or torch.equal(one, other)


def test_norms_and_broken_steps_leave_the_weights_alone() -> None:
    for shape_, logits in (
        (config(attention(query_key_norm="head")), torch.full((4,), 500.0)),
        (config(attention()), torch.tensor([math.inf, math.nan, -math.inf, 1.0])),
    ):
        model = random_model(shape_)
        before = {name: value.clone() for name, value in model.state_dict().items()}
        assert float(clip_query_key(model, {0: logits}, 100.0)["clipped_heads"]) == 0
        assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert clip_query_key(model, {}, 100.0) == {}


def test_only_heads_that_were_clipped_are_counted() -> None:
    """Of four layers with four heads each, the second has norms; the last is a multi-token module, on another stage here."""
    blocks = {"plain": attention(), "normed": attention(query_key_norm="head")}
    parts = {name: {"mixer": mixer, "feed_forward": {"width": 48}} for name, mixer in blocks.items()}
    further = {"steps": 1, "block": "normed"}
    whole = {"vocabulary_size": VOCABULARY, "width": 32, "blocks": parts, "layers": "plain normed plain"}
    model = random_model(ModelConfig.model_validate({**whole, "multi_token": further}))
    model.multi_token = None
    logits = {layer: torch.tensor([500.0, 50.0, 99.0, 100.0]) for layer in range(4)}
    logits[2] = torch.tensor([math.inf, 101.0, 102.0, -math.inf])
    metrics = clip_query_key(model, logits, 100.0)
    assert float(metrics["clipped_heads"]) == 3 / 16  # one of the first layer, two of the third
    assert float(metrics["largest_logit"]) == math.inf


def test_maxima_merge_over_passes_and_ranks() -> None:
    first, second = Record(max_logits={0: torch.tensor([1.0, 5.0])}), Record()
    second.add_max_logits(0, torch.tensor([3.0, 2.0]))
    second.add_max_logits(4, torch.tensor([7.0]))
    first.add_all_max_logits(second)
    assert {layer: value.tolist() for layer, value in first.max_logits.items()} == {0: [3.0, 5.0], 4: [7.0]}
    other_rank = torch.tensor([4.0, 4.0, 4.0])
    first.max_over_ranks(lambda maxima: torch.maximum(maxima, other_rank))
    assert {layer: value.tolist() for layer, value in first.max_logits.items()} == {0: [4.0, 5.0], 4: [7.0]}


def clip_sharded(name: str, sizes: tuple[int, int], logits: list[float]) -> dict[str, Tensor]:
    """Tensor parallelism and FSDP on top of it; each rank is told the logits of its own heads."""
    from ingot.model.order import orders, whole
    from ingot.train.parallel.config import MeshConfig
    from ingot.train.parallel.layout import make_layout
    from ingot.train.parallel.tensor import apply_tensor_parallel

    shards, tensors = sizes
    layout = make_layout(MeshConfig(shard=shards, tensor=tensors), torch.device("cpu"))
    assert layout is not None
    model = random_model(SHAPES[name].model_copy(update={"vocabulary_size": 62}))  # a number that ranks can divide
    apply_tensor_parallel(model, layout)
    for block in model.blocks:
        fully_shard(block, mesh=layout.mesh["shard"])
    heads = len(logits) // tensors
    own = torch.tensor(logits)[layout.rank("tensor") * heads :][:heads]
    clip_query_key(model, {0: own}, 100.0)
    order = orders(model)
    return {key: whole(value.detach(), order.get(key)) for key, value in model.named_parameters()}


@pytest.mark.parametrize(("name", "sizes"), [("grouped, with biases", (2, 2)), ("latent", (2, 2))])
def test_sharded_weights_are_clipped_where_they_are(name: str, sizes: tuple[int, int], tmp_path: Path) -> None:
    logits = [400.0, 50.0, 200.0, 101.0]
    model = random_model(SHAPES[name].model_copy(update={"vocabulary_size": 62}))
    clip_query_key(model, {0: torch.tensor(logits)}, 100.0)
    for found in run_ranks(4, clip_sharded, tmp_path / "store", name, sizes, logits):
        for key, value in model.named_parameters():
            torch.testing.assert_close(torch.as_tensor(found[key]), value.detach(), rtol=0, atol=1e-7)
