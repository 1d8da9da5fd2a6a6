"""Every mini on a GPU: the same numbers as in float64 on the CPU, forms equal to each other. Needs torch and pytest only.

A mini holds every part of its family, so this runs every mixer, mask, router and position scheme that the presets use.
"""

from __future__ import annotations

import copy
import json

import pytest
import torch
from torch import Tensor

from ingot.checkpoints.families.table import architecture
from ingot.model.config import ModelConfig
from ingot.model.feed_forward.dense import FeedForwardConfig
from ingot.model.feed_forward.experts import Experts
from ingot.model.initialise import initialise
from ingot.model.mixers.attention import AttentionConfig
from ingot.model.mixers.cache import CacheShape
from ingot.model.mixers.mla import MlaConfig
from ingot.model.positions.scaling import LongRopeScaling
from ingot.model.presets.preset import preset, presets
from ingot.model.transformer import Transformer

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")

VOCABULARY, LENGTH = 128, 200
MINIS = list({json.dumps(architecture(each.model)): each.name for each in presets() if each.mini}.values())


def model_of(name: str) -> Transformer:
    values = preset(name).model_dump() | {"vocabulary_size": VOCABULARY}
    for block in values["blocks"].values():
        if block["mixer"] and block["mixer"].get("sparse"):
            block["mixer"]["sparse"]["heads"] = 32  # with few heads many scores are zero, and ties are broken at random
    model = Transformer(ModelConfig.model_validate(values))
    initialise(model, 0)
    with torch.no_grad():
        for each in model.parameters():
            each.add_(0.02 * torch.randn(each.shape, generator=torch.Generator().manual_seed(each.numel())))
    return model


def packed() -> tuple[Tensor, Tensor, Tensor]:
    """Two rows of documents of uneven length, with padding at the end of the second."""
    tokens = torch.randint(0, VOCABULARY, (2, LENGTH), generator=torch.Generator().manual_seed(1))
    sizes = [[70, 1, 100, 29], [150, 40, 10]]
    documents = torch.stack([torch.cat([torch.full((n,), i) for i, n in enumerate(row)]) for row in sizes])
    positions = torch.stack([torch.cat([torch.arange(n) for n in row]) for row in sizes])
    documents[1, 190:] = -1
    return tokens, positions, documents


def chooses_keys(config: ModelConfig) -> bool:
    """Whether some layer has sparse attention."""
    mixers = (block.mixer for block in config.blocks.values())
    return any(isinstance(mixer, MlaConfig) and mixer.sparse is not None for mixer in mixers)


def shortest_switch(config: ModelConfig) -> int:
    """The length above which LongRoPE takes its other list, by design also for what was cached before."""
    mixers = (block.mixer for block in config.blocks.values())
    ropes = (mixer.rope for mixer in mixers if isinstance(mixer, AttentionConfig) and mixer.rope is not None)
    scalings = (rope.scaling for rope in ropes)
    return min((one.original_context for one in scalings if isinstance(one, LongRopeScaling)), default=LENGTH)


def relative(ours: Tensor, exact: Tensor) -> float:
    return float((ours.detach().double().cpu() - exact.detach()).abs().max() / exact.detach().abs().max())


@pytest.mark.parametrize("name", MINIS)
def test_values_and_gradients_are_those_of_float64_on_the_cpu(name: str) -> None:
    model = model_of(name)
    exact, tokens = copy.deepcopy(model).double(), packed()
    real = tokens[2] != -1
    direction = torch.randn(*tokens[0].shape, VOCABULARY, generator=torch.Generator().manual_seed(2)) * real[..., None]
    expected = exact(*tokens)
    (expected * direction).sum().backward()
    # which keys a query keeps is decided by scores that may differ by less than float32 resolves
    model = model.double().cuda() if chooses_keys(model.config) else model.cuda()
    ours = model(*(each.cuda() for each in tokens))
    assert relative(ours[real.cuda()], expected[real]) < 1e-4
    (ours * direction.cuda()).sum().backward()
    largest = max(float(each.grad.abs().max()) for each in exact.parameters() if each.grad is not None)
    for (label, mine), theirs in zip(model.named_parameters(), exact.parameters(), strict=True):
        if theirs.grad is not None and mine.grad is not None:
            scale = max(float(theirs.grad.abs().max()), 5e-3 * largest)
            difference = float((mine.grad.double().cpu() - theirs.grad).abs().max()) / scale
            assert difference < 2e-3, f"{label}: {difference:.1e}"


@pytest.mark.parametrize("name", MINIS)
@torch.no_grad()
def test_decoding_with_a_cache_equals_the_full_pass(name: str) -> None:
    model = model_of(name).cuda()
    length = min(96, shortest_switch(model.config))
    tokens = packed()[0].cuda()[:, :length]
    full = model(tokens)
    caches, slots = model.make_caches(CacheShape(slots=3, length=100)), torch.tensor([2, 0], device="cuda")
    first, second = length // 2, length - 20
    pieces = [(0, first), (first, second)] + [(t, t + 1) for t in range(second, length)]
    for start, end in pieces:
        positions = torch.arange(start, end, device="cuda").expand(2, -1)
        states = model.hidden(tokens[:, start:end], positions, caches=caches, slots=slots, reach=end)
        got = model.head(states)
        assert relative(got, full[:, start:end].double().cpu()) < 1e-4, (start, end)


@pytest.mark.parametrize("name", MINIS)
def test_bfloat16_under_autocast_trains(name: str) -> None:
    """A pass as the trainer runs it: finite, and near the float32 loss."""
    model = model_of(name).cuda()
    tokens, positions, documents = (each.cuda() for each in packed())
    losses = []
    for dtype in (torch.float32, torch.bfloat16):
        model.zero_grad()
        with torch.autocast("cuda", dtype, enabled=dtype != torch.float32):
            logits = model(tokens, positions, documents)
            loss = torch.nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten())
        loss.backward()
        losses.append(float(loss.detach()))
        assert all(bool(torch.isfinite(each.grad).all()) for each in model.parameters() if each.grad is not None)
    assert abs(losses[1] - losses[0]) < 0.02 * losses[0], losses


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.bfloat16, 2e-2)])
@pytest.mark.parametrize("gated", [True, False])
def test_grouped_experts_equal_the_loop(dtype: torch.dtype, tolerance: float, gated: bool) -> None:
    torch.manual_seed(0)
    shape = FeedForwardConfig(width=128, gated=gated, activation="silu" if gated else "relu_squared")
    experts = Experts(shape, 16, 256)
    with torch.no_grad():
        for each in experts.parameters():
            each.normal_(0, 0.05)
    experts = experts.cuda().to(dtype)
    x = torch.randn(777, 256, device="cuda", dtype=dtype, requires_grad=True)
    indices = torch.rand(777, 16, device="cuda").topk(4).indices
    weights = torch.rand(777, 4, device="cuda", dtype=dtype)
    results = []
    for backend in ("loop", "grouped"):
        experts.backend = backend
        out = experts(x, indices, weights)
        inputs = [x, *experts.parameters()]
        results.append([out.detach(), *torch.autograd.grad(out.float().square().sum(), inputs)])
    for loop, grouped in zip(*results, strict=True):
        assert float((loop - grouped).float().abs().max() / loop.float().abs().max()) < tolerance
