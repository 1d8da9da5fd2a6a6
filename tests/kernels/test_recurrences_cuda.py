"""The linear recurrences by kernels on a CUDA device, in bfloat16, against the definition in float64.

python -m pytest tests/kernels/test_recurrences_cuda.py -c /dev/null --rootdir=. --noconftest
"""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor

from ingot.kernels.launch import has_fla
from ingot.kernels.linear.chunks import cut_documents
from ingot.model.context import Context
from ingot.model.mixers.cache import CacheShape
from ingot.model.mixers.gated_delta import GatedDeltaConfig
from ingot.model.mixers.kda import KdaConfig
from ingot.model.mixers.lightning import LightningConfig
from ingot.model.mixers.mamba2 import Mamba2Config
from ingot.model.mixers.mixer import Mixer, Site
from ingot.model.norm import NormConfig
from tests.kernels.recurrence_cases import DOCUMENTS, KINDS, by_operator, distances, make_recurrence

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")

BOUND, DECAY_BOUND = 1e-2, 2e-2  # bfloat16 has 8 bits: 0.4 % a rounding; a decay's gradient is a difference of sums
SITE = Site(width=256, layer=1, depth=3, norm=NormConfig())
MIXERS: dict[str, Any] = {
    "gated_delta": GatedDeltaConfig(kind="gated_delta", key_heads=2, value_heads=4, key_width=64, value_width=128),
    "kda": KdaConfig(kind="kda", heads=2, head_width=64),
    "lightning": LightningConfig(kind="lightning", heads=4, head_width=64),
    "mamba2": Mamba2Config(kind="mamba2", heads=4, head_width=64, state=128, groups=2),
}


def operator(kind: str) -> Any:
    if kind == "decayed":
        from ingot.kernels.linear.decayed_attention_kernel import forward

        return forward
    if not has_fla():
        pytest.skip("flash-linear-attention is not installed")
    from ingot.kernels.linear.delta_rule_kernel import channel_forward, head_forward

    return head_forward if kind == "head" else channel_forward


def distance(found: Tensor, exact: Tensor) -> float:
    return float((found.detach().double() - exact.detach().double()).norm() / exact.detach().double().norm())


def near(found: dict[str, float]) -> None:
    for name, error in found.items():
        assert error < (DECAY_BOUND if name == "decays" else BOUND), found


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("lengths", "groups", "heads", "key_width", "value_width"),
    [
        (DOCUMENTS, 4, 4, 128, 128),
        (DOCUMENTS, 2, 4, 64, 128),
        ((1, 1, 1, 1), 1, 2, 128, 64),
        ((1000,), 1, 4, 128, 64),
        ((63, 65, 7), 2, 2, 96, 48),
        ((130, 70), 1, 1, 256, 64),
        ((130, 70), 1, 1, 64, 256),
        ((8192, 2000), 1, 2, 128, 128),  # rounding of states that 128 chunks hand on
    ],
    ids=["documents", "groups", "single tokens", "long", "odd widths", "wide", "wide values", "very long"],
)
def test_values_and_gradients(
    kind: str, lengths: tuple[int, ...], groups: int, heads: int, key_width: int, value_width: int
) -> None:
    groups = heads if kind == "channel" else groups
    made = {"dtype": torch.bfloat16, "device": "cuda"}
    case = make_recurrence(kind, lengths, groups, heads, key_width, value_width, **made)  # type: ignore[arg-type]
    near(distances(by_operator(case, operator(kind)), case.exact()))


@pytest.mark.parametrize("kind", KINDS)
def test_more_sequences_and_heads_than_an_axis_of_a_grid_has(kind: str) -> None:
    """600 documents and 128 heads are 76,800 pairs, as a batch of RL gives Nemotron-H; CUDA's other axes end at 65,535."""
    groups = 128 if kind == "channel" else 2
    case = make_recurrence(kind, (1, 2) * 300, groups, 128, 64, 64, dtype=torch.bfloat16, device="cuda")
    near(distances(by_operator(case, operator(kind)), case.exact()))


@pytest.mark.parametrize("kind", KINDS)
def test_memory_is_linear_in_the_length(kind: str) -> None:
    taken = []
    for length in (8192, 32_768):
        case = make_recurrence(kind, (length,), 4, 4, 128, 128, dtype=torch.bfloat16, device="cuda")
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        by_operator(case, operator(kind))
        taken.append(torch.cuda.max_memory_allocated() - before)
    assert taken[1] < 4.2 * taken[0], taken


@pytest.mark.parametrize("kind", KINDS)
def test_strong_decays(kind: str) -> None:
    case = make_recurrence(kind, (200,), 2, 2, 128, 128, dtype=torch.bfloat16, device="cuda", strength=20.0)
    found = by_operator(case, operator(kind))
    assert all(bool(x.isfinite().all()) for x in found)
    near({name: error for name, error in distances(found, case.exact()).items() if name not in ("decays", "first")})


@pytest.mark.parametrize("kind", KINDS)
def test_packed_documents_are_bit_by_bit_what_they_are_alone(kind: str) -> None:
    run = operator(kind)
    case = make_recurrence(kind, DOCUMENTS, 2, 2, 128, 128, dtype=torch.bfloat16, device="cuda")
    assert case.first is not None
    together = by_operator(case, run)
    begin = 0
    for number, length in enumerate(DOCUMENTS):
        if length:
            own = [x.detach()[begin : begin + length].clone().requires_grad_() for x in case.inputs]
            first = case.first.detach()[number : number + 1]
            first = torch.cat((first, torch.zeros_like(first))).requires_grad_()
            made = cut_documents(torch.tensor([0, length], device="cuda"), length)
            out, last, *_ = run(*own, first, made.starts, made.chunks, made.offsets, True)
            given = (case.gradient[begin : begin + length], torch.zeros_like(last))
            given[1][0] = case.last_gradient[number]
            alone = [out, last[:1], *torch.autograd.grad((out, last), own, given)]
            place = slice(begin, begin + length)
            pairs = [(together[0][place], alone[0]), (together[1][number : number + 1], alone[1])]
            pairs += [(x[place], y) for x, y in zip(together[2:-1], alone[2:], strict=True)]
            for one, two in pairs:
                assert torch.equal(one, two), (number, length)
        begin += length


@pytest.mark.parametrize("kind", KINDS)
@torch.no_grad()
def test_states_are_handed_on_in_the_middle_of_a_chunk(kind: str) -> None:
    run = operator(kind)
    case = make_recurrence(kind, (200,), 2, 2, 128, 128, dtype=torch.bfloat16, device="cuda")
    with torch.enable_grad():
        exact = case.exact()
    state, outs = case.first, []
    for begin, end in ((0, 37), (37, 38), (38, 170), (170, 200)):
        made = cut_documents(torch.tensor([0, end - begin], device="cuda"), end - begin)
        pieces = [x[begin:end] for x in case.inputs]
        out, state, *_ = run(*pieces, state, made.starts, made.chunks, made.offsets, True)
        outs.append(out)
        state = torch.cat((state[:1], torch.zeros_like(state[1:])))  # the sequence without tokens has no state
    assert state is not None
    near({"out": distance(torch.cat(outs), exact[0]), "last": distance(state[:1], exact[1][:1])})


def build(name: str) -> Mixer:
    if name in ("gated_delta", "kda") and not has_fla():
        pytest.skip("flash-linear-attention is not installed")
    mixer: Mixer = MIXERS[name].build(SITE)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for key, parameter in sorted(mixer.named_parameters()):
            drawn = torch.empty(parameter.shape).normal_(0.0, 0.06 if parameter.dim() > 1 else 0.3, generator=generator)
            parameter.copy_(drawn + 1.0 if key.endswith("gain") else drawn)
    return mixer.cuda()


def packed() -> tuple[Tensor, Tensor]:
    """Two rows of 300 tokens: documents of 64, 1, 135 and 100 tokens, and one of 260 with padding after it."""
    documents = torch.full((2, 300), -1)
    documents[0] = torch.repeat_interleave(torch.arange(4), torch.tensor([64, 1, 135, 100]))
    documents[1, :260] = 9
    return torch.arange(300).expand(2, 300).cuda(), documents.cuda()


@pytest.mark.parametrize("name", MIXERS)
@pytest.mark.parametrize("way", ["eager", "compiled", "recomputed"])
def test_a_mixer_in_bfloat16_is_near_the_definition_in_float64(name: str, way: str) -> None:
    """Outputs and gradients of the input and all parameters: the error is that of bfloat16 elsewhere in the mixer, too."""
    from torch.utils.checkpoint import checkpoint

    mixer = build(name)
    positions, documents = packed()
    x = torch.randn(2, 300, 256, generator=torch.Generator().manual_seed(2)).cuda()
    weight = torch.randn(2, 300, 256, generator=torch.Generator().manual_seed(3)).cuda()

    def run(module: Mixer, dtype: torch.dtype, call: Any) -> list[Tensor]:
        context = Context(positions, documents)
        module.prepare(context)
        given = x.to(dtype).requires_grad_()
        with torch.autocast("cuda", torch.bfloat16, enabled=dtype == torch.bfloat16):
            out = call(given, context)
        gradients = torch.autograd.grad(out, [given, *module.parameters()], weight.to(out.dtype))
        return [out, *gradients]

    call: Any = mixer
    if way == "compiled":
        torch._dynamo.reset()
        call = torch.compile(mixer, dynamic=False, fullgraph=True)
    elif way == "recomputed":
        call = lambda y, context: checkpoint(mixer, y, context, use_reentrant=False)  # noqa: E731
    found = run(mixer, torch.bfloat16, call)
    double = copy.deepcopy(mixer).double()
    errors = [distance(one, two) for one, two in zip(found, run(double, torch.float64, double), strict=True)]
    assert max(errors) < 0.04, errors


@pytest.mark.parametrize("name", MIXERS)
@torch.no_grad()
def test_prefill_in_pieces_and_decoding_in_a_captured_graph(name: str) -> None:
    """Rows of different lengths, states handed on in the middle of chunks, then tokens from one graph: as one pass."""
    mixer = build(name).bfloat16()
    length, decoded, slots = 150, 20, torch.tensor([2, 0], device="cuda")
    x = torch.randn(2, length, 256, generator=torch.Generator().manual_seed(2)).cuda().bfloat16()
    whole = mixer(x, Context(torch.arange(length, device="cuda").expand(2, length)))
    cache = mixer.make_cache(CacheShape(slots=3, length=length), torch.bfloat16, torch.device("cuda"))
    done = torch.zeros(2, dtype=torch.long, device="cuda")
    for counts in ((90, 41), (length - decoded - 90, length - decoded - 41)):
        width = max(counts)
        piece, lengths = (
            torch.zeros(2, width, 256, device="cuda", dtype=torch.bfloat16),
            torch.tensor(counts, device="cuda"),
        )
        for row, count in enumerate(counts):
            piece[row, :count] = x[row, int(done[row]) : int(done[row]) + count]
        positions = done[:, None] + torch.arange(width, device="cuda")
        out = mixer(piece, Context(positions, slots_B=slots, lengths_B=lengths, reach=length), cache)
        for row, count in enumerate(counts):
            begin = int(done[row])
            near_rows(out[row, :count], whole[row, begin : begin + count])
        done += lengths

    token, position = x[:, :1].clone(), done[:, None].clone()

    def step() -> Tensor:
        return mixer(token, Context(position, slots_B=slots, reach=length), cache)

    kept = [tensor.clone() for tensor in cache.tensors()]
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        step()
        step()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = step()
    for tensor, before in zip(cache.tensors(), kept, strict=True):
        tensor.copy_(before)
    for number in range(decoded):
        token.copy_(x[:, length - decoded + number, None])
        position.fill_(length - decoded + number)
        graph.replay()
        near_rows(out[:, 0], whole[:, length - decoded + number])


def near_rows(found: Tensor, expected: Tensor) -> None:
    error = distance(found, expected)
    assert error < 0.03, error
