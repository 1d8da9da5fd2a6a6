"""Counts against the built module, against gradients, against torch's FLOP counter and against counting keys one by one."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.flop_counter import FlopCounterMode

from ingot.model.config import ModelConfig
from ingot.model.count import count, mixing_flops
from ingot.model.feed_forward.experts import Experts
from ingot.model.mixers.cache import Cache, CacheShape, JointCache, StateCache, TokenCache
from ingot.model.mixers.mask import mean_keys
from ingot.model.presets.preset import Preset, preset, presets
from ingot.model.transformer import Transformer

VOCABULARY = 320
MINIS = [one for one in presets() if one.mini]
MIXTURES = ["qwen3-30b-a3b-mini", "deepseek-v3-mini", "gpt-oss-20b-mini", "llama4-maverick-mini"]


def with_vocabulary(config: ModelConfig) -> ModelConfig:
    return config.model_copy(update={"vocabulary_size": VOCABULARY})


@pytest.mark.parametrize("one", MINIS, ids=lambda one: one.name)
def test_parameters_are_those_of_the_built_model(one: Preset) -> None:
    config = with_vocabulary(one.model)
    with torch.device("meta"):
        model = Transformer(config)
    counted = count(config)
    assert counted.counted(("body", "embedding", "head", "multi_token")) == sum(p.numel() for p in model.parameters())
    assert counted.body.total == sum(p.numel() for part in (model.blocks, model.norm) for p in part.parameters())


@pytest.mark.parametrize("name", MIXTURES)
def test_active_parameters_are_those_with_a_gradient_from_one_token(name: str) -> None:
    torch.manual_seed(0)
    config = with_vocabulary(preset(name)).model_copy(update={"multi_token": None})
    model = Transformer(config)
    model(torch.tensor([[7]])).square().sum().backward()
    touched = sum(p.numel() for p in model.parameters())
    for module in model.modules():
        if isinstance(module, Experts):
            for parameter in module.parameters():
                assert parameter.grad is not None
                unused = parameter.grad.flatten(1).abs().amax(1) == 0
                touched -= int(unused.sum()) * parameter[0].numel()
    assert count(config).active == touched


def test_shares_add_up_as_a_report_counts() -> None:
    counted = count(preset("deepseek-v3"))
    body, embedding = counted.body.total, 129280 * 7168
    assert counted.counted(("body",)) == body
    assert counted.counted(("body", "head")) == body + embedding
    assert counted.total == body + 2 * embedding
    tied = count(preset("gemma3-1b"))
    assert tied.total == tied.counted(("body", "head")) == tied.counted(("body", "embedding"))


@pytest.mark.parametrize("one", MINIS, ids=lambda one: one.name)
def test_cache_bytes_are_those_of_the_caches(one: Preset) -> None:
    config = with_vocabulary(one.model)
    model = Transformer(config).to(torch.bfloat16)
    caches = model.make_caches(CacheShape(slots=1, length=10, page=1))
    held = sum(_held(cache) for cache in caches if cache is not None)
    assert count(config).cache_bytes(10) == held  # ten tokens fill no window


def _held(cache: Cache) -> int:
    if isinstance(cache, JointCache):
        return sum(_held(part) for part in cache.parts.values())
    assert isinstance(cache, TokenCache | StateCache)
    if isinstance(cache, TokenCache):  # its first page is for padding
        return sum(stream[1:].numel() * stream.element_size() for stream in cache.streams.values())
    return sum(tensor.numel() * tensor.element_size() for tensor in cache.states.values())


def test_cache_stops_growing_where_windows_are_full() -> None:
    counted = count(preset("gemma2-2b"))  # half of 26 layers with a window of 4096; 2·4·256 values of 2 bytes each
    layer = 2 * 4 * 256 * 2
    assert counted.cache_bytes_per_token == 26 * layer
    assert counted.cache_bytes(8192) == 13 * layer * 8192 + 13 * layer * 4096
    assert count(preset("deepseek-v3")).cache_bytes_per_token == 61 * (512 + 64) * 2
    assert count(preset("deepseek-v3.2")).cache_bytes_per_token == 61 * (512 + 64 + 128) * 2
    assert count(preset("nemotron-h-8b")).cache_bytes_per_token == 4 * 2 * 8 * 128 * 2


@pytest.mark.parametrize("name", ["qwen3-8b-mini", "gemma2-2b-mini", "olmo2-7b-mini"])
def test_flops_of_matrices_against_the_counter_of_torch(name: str) -> None:
    length, config = 24, with_vocabulary(preset(name))
    model = Transformer(config)
    with FlopCounterMode(display=False) as counter:
        model(torch.randint(VOCABULARY, (1, length))).sum().backward()
    products = counter.get_flop_counts()["Global"][torch.ops.aten.mm] / length
    mixing = 3 * sum(mixing_flops(config.block(layer).mixer, length) for layer in range(config.depth))
    assert count(config).training_flops_per_token(length) == products + mixing


def test_flops_of_scores_against_the_counter_of_torch() -> None:
    """With a softcap scores are batched products, which torch counts for all pairs of positions: twice those in sight."""
    length, config = 24, with_vocabulary(preset("gemma2-2b-mini"))  # below the window
    model = Transformer(config)
    with FlopCounterMode(display=False) as counter:
        model(torch.randint(VOCABULARY, (1, length)))
    scores = counter.get_flop_counts()["Global"][torch.ops.aten.bmm] / length
    assert scores == 2 * sum(mixing_flops(config.block(layer).mixer, length) for layer in range(config.depth))


def test_flops_of_linear_mixers_do_not_grow_with_the_length() -> None:
    config = preset("nemotron-h-8b")
    one, other = (count(config).training_flops_per_token(length) for length in (1000, 3000))
    assert other - one == 4 * 12 * 32 * 128 * 1000  # the four attention layers only
    recurrent = 24 * 12 * 128 * 64 * 128  # two products with each state, forward and twice that backward
    attention = 4 * 12 * 32 * 128 * 500
    assert one == 6 * count(config).body.matrices + 6 * 131072 * 4096 + recurrent + attention


def test_sparse_attention_scores_all_keys_and_reads_few() -> None:
    length = 100_000
    dense, sparse = (count(preset(name)).training_flops_per_token(length) for name in ("deepseek-v3", "deepseek-v3.2"))
    layers = 61 + 1  # with the multi-token module
    reading = 6 * 128 * (128 + 64 + 128)
    scoring = 6 * 64 * 128 * length / 2
    kept = 2048 - 2048**2 / (2 * length)
    indexers = (
        6 * sum(size.matrices for name, size in count(preset("deepseek-v3.2")).parts.items() if name == "indexer") / 61
    )
    assert sparse - dense == pytest.approx(layers * (indexers + scoring + reading * (kept - length / 2)), rel=1e-9)


@given(st.integers(1, 60), st.none() | st.integers(1, 70), st.none() | st.integers(1, 70))
def test_mean_keys_against_counting(length: int, window: int | None, chunk: int | None) -> None:
    seen = sum(
        1
        for query in range(length)
        for key in range(query + 1)
        if (window is None or query - key < window) and (chunk is None or query // chunk == key // chunk)
    )
    difference = seen / length - mean_keys(length, window, chunk)
    assert -1e-12 <= difference <= 0.5 + 1e-12  # ours counts the query's own key as half; the rest is rounding


def test_mixture_numbers() -> None:
    mixture = count(preset("kimi-k2")).mixtures["moe"]
    assert (mixture.sparsity, mixture.activation_ratio, mixture.granularity) == (48, 8 / 384, 7)
    assert count(preset("gpt-oss-120b")).mixtures["full"].granularity == 2
    assert count(preset("qwen3-next-80b-a3b")).mixtures["full"].granularity == 8


@pytest.mark.parametrize("tied", [True, False])
def test_further_heads_are_counted(tied: bool) -> None:
    changes = {"tied_embeddings": tied, "heads": ("reward", "value")}
    config = with_vocabulary(MINIS[0].model).model_copy(update=changes)
    with torch.device("meta"):
        built = sum(parameter.numel() for parameter in Transformer(config).parameters())
    assert count(config).counted(("body", "embedding", "head", "multi_token")) == built
