"""One attention layer against the classes of transformers, in float32: outputs, and gradients of input and weights."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformers import (
    AfmoeConfig,
    Gemma2Config,
    GptOssConfig,
    Llama4TextConfig,
    LlamaConfig,
    Olmo2Config,
    Phi3Config,
    Qwen3Config,
    Qwen3NextConfig,
)
from transformers.models.afmoe.modeling_afmoe import AfmoeAttention
from transformers.models.gemma2.modeling_gemma2 import Gemma2Attention
from transformers.models.gpt_oss.modeling_gpt_oss import GptOssAttention, GptOssRotaryEmbedding
from transformers.models.llama.modeling_llama import LlamaAttention, LlamaRotaryEmbedding
from transformers.models.llama4.modeling_llama4 import Llama4TextAttention, Llama4TextRotaryEmbedding
from transformers.models.olmo2.modeling_olmo2 import Olmo2Attention
from transformers.models.phi3.modeling_phi3 import Phi3Attention, Phi3RotaryEmbedding
from transformers.models.qwen3.modeling_qwen3 import Qwen3Attention
from transformers.models.qwen3_next.modeling_qwen3_next import Qwen3NextAttention, Qwen3NextRotaryEmbedding

from ingot.model.context import Context
from ingot.model.mixers.attention import Attention, AttentionConfig
from ingot.model.mixers.cache import CacheShape, TokenCache
from ingot.model.mixers.mask import Mask
from ingot.model.mixers.mixer import Site
from ingot.model.norm import NormConfig

ROWS, LENGTH, WIDTH, HEAD = 2, 23, 24, 8
HEADS = {"heads": 6, "key_value_heads": 2, "head_width": HEAD}
PEER: dict[str, Any] = {
    "hidden_size": WIDTH,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "head_dim": HEAD,
    "max_position_embeddings": 64,
    "num_hidden_layers": 2,
    "rms_norm_eps": 1e-5,
    "attn_implementation": "eager",
}


@dataclass
class Family:
    """A layer of transformers, how its positions are made, and the same layer here."""

    peer: Any
    rotary: Any
    ours: dict[str, Any]
    norm: NormConfig = field(default_factory=lambda: NormConfig(epsilon=1e-5))


def default_rope(base: float = 10_000.0, **changes: Any) -> dict[str, Any]:
    return {"rope_parameters": {"rope_type": "default", "rope_theta": base, **changes}}


def llama() -> Family:
    config = LlamaConfig(**PEER, **default_rope(500.0), attention_bias=True)
    ours = {"rope": {"base": 500.0}, "query_key_value_bias": True, "output_bias": True}
    return Family(LlamaAttention(config, 0), LlamaRotaryEmbedding(config), ours)


def qwen3() -> Family:
    config = Qwen3Config(**PEER, **default_rope())
    return Family(Qwen3Attention(config, 0), LlamaRotaryEmbedding(config), {"query_key_norm": "head"})


def olmo2() -> Family:
    config = Olmo2Config(**PEER, **default_rope())
    return Family(Olmo2Attention(config, 0), LlamaRotaryEmbedding(config), {"query_key_norm": "full"})


def gemma2() -> Family:
    config = Gemma2Config(
        **PEER, **default_rope(), sliding_window=7, query_pre_attn_scalar=5, attn_logit_softcapping=3.0
    )
    ours = {"window": 7, "softcap": 3.0, "scale": 5**-0.5}
    return Family(Gemma2Attention(config, 0), LlamaRotaryEmbedding(config), ours)


def gpt_oss() -> Family:
    scaling = {"factor": 4.0, "original_max_position_embeddings": 16, "truncate": False}
    config = GptOssConfig(
        **PEER,
        sliding_window=5,
        layer_types=["sliding_attention", "full_attention"],
        rope_parameters={"rope_type": "yarn", "rope_theta": 150.0, **scaling},
    )
    yarn = {"kind": "yarn", "factor": 4.0, "original_context": 16, "truncate": False}
    ours = {
        "window": 5,
        "sinks": True,
        "query_key_value_bias": True,
        "output_bias": True,
        "rope": {"base": 150.0, "scaling": yarn},
    }
    return Family(GptOssAttention(config, 0), GptOssRotaryEmbedding(config), ours)


def llama4_chunked() -> Family:
    config = Llama4TextConfig(**PEER, **default_rope(), no_rope_layers=[1, 0], use_qk_norm=True)
    ours = {"rope": {"pairing": "interleaved"}, "query_key_norm": "after_rope", "chunk": 6}
    return Family(Llama4TextAttention(config, 0), Llama4TextRotaryEmbedding(config), ours)


def llama4_without_positions() -> Family:
    config = Llama4TextConfig(
        **PEER, **default_rope(), no_rope_layers=[1, 0], use_qk_norm=True, floor_scale=5, attn_scale=0.3
    )
    ours = {"rope": None, "query_key_norm": "after_rope", "temperature": {"slope": 0.3, "floor": 5}}
    return Family(Llama4TextAttention(config, 1), Llama4TextRotaryEmbedding(config), ours)


def afmoe() -> Family:
    config = AfmoeConfig(
        **PEER, **default_rope(), sliding_window=4, layer_types=["sliding_attention", "full_attention"]
    )
    ours = {"query_key_norm": "head", "window": 4, "gate": {}}
    return Family(AfmoeAttention(config, 0), LlamaRotaryEmbedding(config), ours)


def afmoe_global() -> Family:
    family = afmoe()
    ours: dict[str, Any] = {"query_key_norm": "head", "gate": {}, "rope": None}
    return Family(AfmoeAttention(family.peer.config, 1), family.rotary, ours)


def qwen3_next() -> Family:
    config = Qwen3NextConfig(**PEER, **default_rope(partial_rotary_factor=0.25))
    ours = {"query_key_norm": "head", "gate": {}, "rope": {"share": 0.25}}
    norm = NormConfig(epsilon=1e-5, zero_centred=True, cast="after_gain")
    return Family(Qwen3NextAttention(config, 0), Qwen3NextRotaryEmbedding(config), ours, norm)


def phi3() -> Family:
    config = Phi3Config(
        **{**PEER, "num_attention_heads": 6, "hidden_size": 6 * HEAD},
        **default_rope(partial_rotary_factor=0.75),
        pad_token_id=0,
    )
    return Family(Phi3Attention(config, 0), Phi3RotaryEmbedding(config), {"rope": {"share": 0.75}})


FAMILIES: dict[str, Callable[[], Family]] = {
    make.__name__: make
    for make in (
        llama,
        qwen3,
        olmo2,
        gemma2,
        gpt_oss,
        llama4_chunked,
        llama4_without_positions,
        afmoe,
        afmoe_global,
        qwen3_next,
        phi3,
    )
}


def weights_of(peer: nn.Module, heads: int) -> dict[str, Tensor]:
    """The peer's parameters under our names. Where ours is one matrix, theirs are stacked."""
    found = dict(peer.named_parameters())
    result: dict[str, Tensor] = {"output.weight": found["o_proj.weight"]}
    query = found.get("q_proj.weight")
    if query is not None and query.shape[0] == 2 * heads * HEAD:  # Qwen3-Next: a head's query, then its gate
        query, gate = query.unflatten(0, (heads, 2, HEAD)).unbind(1)
        query, result["gate.weight"] = query.flatten(0, 1), gate.flatten(0, 1)
    if query is None:
        result["query_key_value.weight"] = found["qkv_proj.weight"]
    else:
        result["query_key_value.weight"] = torch.cat([query, found["k_proj.weight"], found["v_proj.weight"]])
    if "q_proj.bias" in found:
        result["query_key_value.bias"] = torch.cat([found[f"{part}_proj.bias"] for part in "qkv"])
        result["output.bias"] = found["o_proj.bias"]
    renamed = {
        "gate_proj.weight": "gate.weight",
        "sinks": "sinks",
        "q_norm.weight": "query_norm.gain",
        "k_norm.weight": "key_norm.gain",
    }
    return {**result, **{ours: found[theirs] for theirs, ours in renamed.items() if theirs in found}}


def additive(mask: Tensor) -> Tensor:
    return torch.zeros(mask.shape).masked_fill(~mask, torch.finfo(torch.float32).min)


def close(found: Tensor | None, expected: Tensor | None, name: str) -> None:
    assert found is not None and expected is not None, name
    largest = float(expected.detach().abs().max())
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5 * largest, msg=lambda text: f"{name}: {text}")


@pytest.mark.parametrize("name", list(FAMILIES))
def test_layers_are_those_of_transformers(name: str) -> None:
    torch.manual_seed(0)
    family = FAMILIES[name]()
    for parameter in family.peer.parameters():
        nn.init.normal_(parameter, 0.0, 0.4)
    config = AttentionConfig.model_validate({**HEADS, **family.ours})
    width = family.peer.config.hidden_size
    layer = Attention(config, Site(width, 0, 2, family.norm))
    ours = dict(layer.named_parameters())
    theirs = weights_of(family.peer, config.heads)
    assert ours.keys() == theirs.keys()
    with torch.no_grad():
        for key, parameter in ours.items():
            parameter.copy_(theirs[key])
    x = torch.randn(ROWS, LENGTH, width)
    positions = torch.arange(LENGTH).expand(ROWS, LENGTH)
    context = Context(positions)
    visible = Mask(config.window, config.chunk).dense(context)
    inputs = [x.clone().requires_grad_(), x.clone().requires_grad_()]
    expected, _ = family.peer(inputs[0], family.rotary(x, positions), attention_mask=additive(visible))
    found = layer(inputs[1], context)
    close(found, expected, "output")
    weight = torch.randn_like(expected)
    (expected * weight).sum().backward()
    (found * weight).sum().backward()
    close(inputs[1].grad, inputs[0].grad, "input")
    for parameter in family.peer.parameters():
        parameter.data = parameter.grad  # the gradients, stacked as the weights are
    for key, gradient in weights_of(family.peer, config.heads).items():
        close(ours[key].grad, gradient, key)


OPTIONS: dict[str, dict[str, Any]] = {
    "multi-query": {"key_value_heads": 1},
    "window": {"window": 4},
    "chunk": {"chunk": 5, "query_key_norm": "after_rope", "rope": {"pairing": "interleaved"}},
    "window and chunk": {"window": 3, "chunk": 5, "query_key_norm": "full"},
    "sinks": {"sinks": True, "window": 6},
    "softcap": {"softcap": 2.0, "scale": 0.7},
    "temperature": {"rope": None, "temperature": {"slope": 0.5, "floor": 4}},
    "output gate": {"gate": {}, "query_key_norm": "head"},
    "headwise gate": {"gate": {"form": "headwise", "activation": "silu"}, "output_bias": True},
    "value gate": {"gate": {"place": "value"}, "key_multiplier": 0.6},
    "headwise value gate": {"gate": {"place": "value", "form": "headwise"}, "sinks": True},
    "dual chunk": {"dual_chunk": {"chunk": 6, "window": 3}},
    "all": {"window": 7, "chunk": 9, "sinks": True, "softcap": 3.0, "temperature": {"floor": 3}, "gate": {}},
}


def random_layer(**options: Any) -> Attention:
    torch.manual_seed(3)
    layer = Attention(AttentionConfig.model_validate({**HEADS, **options}), Site(WIDTH, 0, 1, NormConfig()))
    for parameter in layer.parameters():
        nn.init.normal_(parameter, 0.0, 0.4)
    return layer


def whole(layer: Attention, x: Tensor) -> Tensor:
    return layer(x, Context(torch.arange(x.shape[1]).expand(x.shape[:2])))


@pytest.mark.parametrize("name", list(OPTIONS))
@torch.no_grad()
def test_a_cache_continues_the_full_pass(name: str) -> None:
    """Two rows of different lengths, prefilled in pieces with padding, then token by token, in slots full of garbage."""
    layer = random_layer(**OPTIONS[name])
    texts = {2: torch.randn(1, 19, WIDTH), 0: torch.randn(1, 14, WIDTH)}
    expected = {slot: whole(layer, text)[0] for slot, text in texts.items()}
    cache = layer.make_cache(CacheShape(slots=4, length=32), torch.float32, torch.device("cpu"))
    for stream in cache.streams.values():
        stream.fill_(50.0)
    found: dict[int, list[Tensor]] = {slot: [] for slot in texts}
    done = dict.fromkeys(texts, 0)
    for sizes in ({2: 5, 0: 3}, {2: 6, 0: 2}, {0: 4}, *[{2: 1, 0: 1}] * 5, *[{2: 1}] * 3):
        longest = max(sizes.values())
        x = torch.full((len(sizes), longest, WIDTH), 7.0)
        for row, (slot, size) in enumerate(sizes.items()):
            x[row, :size] = texts[slot][0, done[slot] : done[slot] + size]
        positions = torch.tensor([[done[slot] + place for place in range(longest)] for slot in sizes])
        context = Context(
            positions,
            slots_B=torch.tensor(list(sizes)),
            lengths_B=torch.tensor(list(sizes.values())),
            reach=int(positions.max()) + 1,
        )
        output = layer(x, context, cache)
        for row, (slot, size) in enumerate(sizes.items()):
            found[slot].append(output[row, :size])
            done[slot] += size
    for slot, outputs in found.items():
        close(torch.cat(outputs), expected[slot], f"slot {slot}")


@pytest.mark.parametrize("name", list(OPTIONS))
def test_packed_documents_are_documents_alone(name: str) -> None:
    """Outputs and gradients; padding gives the output of a layer that saw nothing."""
    layer = random_layer(**OPTIONS[name])
    lengths = (11, 1, 8)
    texts = [torch.randn(1, length, WIDTH, requires_grad=True) for length in lengths]
    padding = torch.randn(1, 4, WIDTH)
    packed = torch.cat([texts[0], texts[1], padding, texts[2]], dim=1)
    positions = torch.cat([torch.arange(n) for n in (11, 1, 4, 8)])[None]
    documents = torch.tensor([0] * 11 + [1] + [-1] * 4 + [2] * 8)[None]
    together = layer(packed, Context(positions, documents))
    outputs = (together[:, :11], together[:, 11:12], together[:, 16:])
    weights = [torch.randn_like(text) for text in texts]
    variables = [*texts, *layer.parameters()]

    def gradients(parts: Any) -> tuple[Tensor, ...]:
        total = sum((part * weight).sum() for part, weight in zip(parts, weights, strict=True))
        return torch.autograd.grad(total, variables)

    alone = [whole(layer, text) for text in texts]
    for one, other in zip(outputs, alone, strict=True):
        close(one, other, "output")
    for one, other in zip(gradients(outputs), gradients(alone), strict=True):
        close(one, other, "gradient")
    bias = torch.zeros(WIDTH) if layer.output.bias is None else layer.output.bias
    torch.testing.assert_close(together[0, 12:16], bias.expand(4, WIDTH))


def gated_by_hand(layer: Attention, x: Tensor, place: str, form: str, activation: str) -> Tensor:
    """Loops over heads: σ or silu of W_g x on each head's output, or on its value head."""
    config = layer.config
    sizes = [config.heads * HEAD, config.key_value_heads * HEAD, config.key_value_heads * HEAD]
    query, key, value = (x @ layer.query_key_value.weight.T).split(sizes, dim=-1)
    logits = x @ layer.gate.weight.T
    gate = torch.sigmoid(logits) if activation == "sigmoid" else logits * torch.sigmoid(logits)
    size = HEAD if form == "elementwise" else 1
    hidden = torch.ones(x.shape[1], x.shape[1]).triu(1).bool()
    outputs = []
    for head in range(config.heads):
        group = head // (config.heads // config.key_value_heads)
        own = slice(head * HEAD, (head + 1) * HEAD)
        shared = slice(group * HEAD, (group + 1) * HEAD)
        scores = (query[..., own] @ key[..., shared].mT / HEAD**0.5).masked_fill(hidden, -torch.inf)
        taken = value[..., shared]
        if place == "value":
            taken = taken * gate[..., group * size : (group + 1) * size]
        output = scores.softmax(dim=-1) @ taken
        outputs.append(output * gate[..., head * size : (head + 1) * size] if place == "output" else output)
    return torch.cat(outputs, dim=-1) @ layer.output.weight.T


@pytest.mark.parametrize("activation", ["sigmoid", "silu"])
@pytest.mark.parametrize("form", ["elementwise", "headwise"])
@pytest.mark.parametrize("place", ["output", "value"])
def test_gates_by_hand(place: str, form: str, activation: str) -> None:
    layer = random_layer(rope=None, gate={"place": place, "form": form, "activation": activation})
    x = torch.randn(2, 9, WIDTH)
    found, expected = whole(layer, x), gated_by_hand(layer, x, place, form, activation)
    close(found, expected, "output")
    weight = torch.randn_like(x)
    parameters = list(layer.parameters())
    for one, other in zip(
        torch.autograd.grad((found * weight).sum(), parameters),
        torch.autograd.grad((expected * weight).sum(), parameters),
        strict=True,
    ):
        close(one, other, "gradient")


@pytest.mark.filterwarnings("ignore::UserWarning")  # a CPU without bfloat16 products says so
@pytest.mark.parametrize("name", ["output gate", "sinks", "softcap", "window and chunk"])
def test_autocast_trains_in_low_precision(name: str) -> None:
    """Norms may leave queries and keys in float32 while values are bfloat16: outputs and gradients stay near float32's."""
    layer, x = random_layer(**OPTIONS[name]), torch.randn(1, 12, WIDTH)
    weight = torch.randn_like(x)
    expected = whole(layer, x)
    exact = torch.autograd.grad((expected * weight).sum(), list(layer.parameters()))
    with torch.autocast("cpu", torch.bfloat16):
        found = whole(layer, x)
    assert found.dtype == torch.bfloat16
    rounded = torch.autograd.grad((found * weight).sum(), list(layer.parameters()))
    for one, other in zip((found, *rounded), (expected, *exact), strict=True):
        assert float((one - other).detach().norm() / other.detach().norm()) < 0.05


def test_the_key_multiplier_scales_the_keys() -> None:
    layer, x = random_layer(key_multiplier=0.6, softcap=2.0), torch.randn(1, 9, WIDTH)
    plain = random_layer(softcap=2.0)
    with torch.no_grad():
        keys = slice(6 * HEAD, 8 * HEAD)
        plain.query_key_value.weight[keys] *= 0.6
    close(whole(layer, x), whole(plain, x), "output")


def test_the_cache_holds_keys_and_values_of_the_key_heads() -> None:
    cache_shape = CacheShape(slots=3, length=10, page=4)
    cache = random_layer().make_cache(cache_shape, torch.bfloat16, torch.device("cpu"))
    assert isinstance(cache, TokenCache) and not cache.in_pages
    assert {name: tuple(stream.shape) for name, stream in cache.streams.items()} == {
        "keys": (1 + 3 * 3, 2, 4, HEAD),
        "values": (1 + 3 * 3, 2, 4, HEAD),
    }
