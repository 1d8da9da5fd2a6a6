"""No kernel ignores an option that it does not list: as soon as it is set, the kernel is passed over.

Each option class gets a field that is on no list. Predicates of devices are made true, so that only the allow-lists decide.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from types import ModuleType
from typing import Any

import pytest
import torch
from pydantic import Field

from ingot.kernels.allow_list import understands, unknown_fields
from ingot.kernels.attention import attend_latent, attend_paged, attend_plain, write_kv
from ingot.kernels.attention.attention_options import AttentionOptions
from ingot.kernels.layer import qk_norm_rope, rms_norm, swiglu
from ingot.kernels.sparse import sparse_attention
from ingot.model.context import Context
from ingot.model.feed_forward import dense
from ingot.model.feed_forward.dense import FeedForwardConfig
from ingot.model.mixers import attend, attention
from ingot.model.mixers.attend import OPTIONS, choose_backend
from ingot.model.mixers.attention import AttentionConfig
from ingot.model.mixers.mask import Mask
from ingot.model.mixers.mixer import Site
from ingot.model.norm import NormConfig, RmsNorm
from ingot.model.positions.config import RopeConfig
from ingot.workspace.errors import IngotError


@dataclass(frozen=True)
class MoreOptions(AttentionOptions):
    fake: float | None = None


class MoreAttention(AttentionConfig):
    fake: int = Field(0, description="on no list")


class MoreRope(RopeConfig):
    fake: int = Field(0, description="on no list")


class MoreNorm(NormConfig):
    fake: int = Field(0, description="on no list")


class MoreFeedForward(FeedForwardConfig):
    fake: int = Field(0, description="on no list")


HEADS: dict[str, Any] = {"heads": 4, "key_value_heads": 2, "head_width": 8}
SITE = Site(16, 0, 1, NormConfig())


class OnCuda:
    """Stands for a tensor on a GPU, as far as predicates look."""

    is_cuda, device, dtype, shape = True, torch.device("cuda"), torch.bfloat16, (2, 4, 256, 64)


@pytest.fixture(autouse=True)
def triton_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (attend_latent, attend_paged, qk_norm_rope, rms_norm, swiglu, write_kv):
        monkeypatch.setattr(module, "has_triton", lambda: True)


def test_what_understands_means() -> None:
    assert understands(AttentionOptions(0.5, window=3), {"scale", "window"})
    assert not understands(AttentionOptions(0.5, window=3), {"scale", "chunk"})
    assert unknown_fields(AttentionOptions(0.5, softcap=1.0, sinks_H=torch.zeros(2)), {"scale"}) == [
        "softcap",
        "sinks_H",
    ]
    assert understands(FeedForwardConfig(width=8), {"width"})
    assert not understands(FeedForwardConfig(width=8), {"bias"}), "a field without a default is always set"
    assert unknown_fields(FeedForwardConfig(width=8, clamp=2.0), {"width"}) == ["clamp"]


@pytest.mark.parametrize("backend", OPTIONS)
def test_no_backend_of_attention_understands_a_new_option(backend: attend.Backend) -> None:
    assert understands(MoreOptions(0.5), OPTIONS[backend])
    assert not understands(MoreOptions(0.5, fake=1.0), OPTIONS[backend])


@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize("documents", [False, True])
def test_a_new_option_of_attention_goes_to_the_definition(
    device: str, documents: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attend, "varlen_allowed", lambda query, value: True)
    monkeypatch.setattr(attend, "flex_allowed", lambda query, value: True)
    context = Context(torch.arange(8)[None], torch.zeros(1, 8, dtype=torch.long) if documents else None)
    x: Any = OnCuda() if device == "cuda" else torch.zeros(1, 2, 8, 16)
    assert choose_backend(x, x, context, Mask(), MoreOptions(0.5)) != "plain"
    assert choose_backend(x, x, context, Mask(), MoreOptions(0.5, fake=1.0)) == "plain"


def test_what_even_the_definition_does_not_know_is_an_error() -> None:
    x = torch.zeros(1, 2, 8, 16)
    with pytest.raises(IngotError, match="no definition of fake"):
        attend.attend(x, x, x, Context(torch.arange(8)[None]), MoreOptions(0.5, fake=1.0))
    table, positions = torch.zeros(1, 1, dtype=torch.int32), torch.arange(8)[None]
    with pytest.raises(IngotError, match="no definition of fake"):
        attend_paged.attend_paged(x, x, x, table, positions, MoreOptions(0.5, fake=1.0), 8)
    with attend.use_backend("sdpa"), pytest.raises(ValueError, match="sdpa attention has no fake"):
        attend.attend(x, x, x, Context(torch.arange(8)[None]), MoreOptions(0.5, fake=1.0))


def test_kernels_over_pages() -> None:
    x: Any = OnCuda()
    assert attend_paged.kernel_allowed(x, x, x, MoreOptions(0.5, window=3, softcap=1.0))
    assert not attend_paged.kernel_allowed(x, x, x, MoreOptions(0.5, fake=1.0))
    assert attend_latent.kernel_allowed(x, 32, MoreOptions(0.5))
    assert not attend_latent.kernel_allowed(x, 32, MoreOptions(0.5, fake=1.0))
    assert not attend_latent.kernel_allowed(x, 32, MoreOptions(0.5, softcap=1.0)), "it has no softcap"
    assert sparse_attention.kernel_allowed(x, 32, 32, MoreOptions(0.5))
    assert not sparse_attention.kernel_allowed(x, 32, 32, MoreOptions(0.5, fake=1.0))
    assert not sparse_attention.kernel_allowed(x, 32, 32, MoreOptions(0.5, softcap=1.0)), "it has no softcap"
    assert not sparse_attention.kernel_allowed(x, 1024, 64, MoreOptions(0.5)), "latents that do not fit"


@pytest.mark.parametrize("allowed", [qk_norm_rope.config_allowed, write_kv.config_writes_projection])
def test_heads_from_the_projection(allowed: Any) -> None:
    assert allowed(MoreAttention(**HEADS, window=5, softcap=2.0, sinks=True), NormConfig())
    assert not allowed(MoreAttention(**HEADS, fake=1), NormConfig())
    assert not allowed(AttentionConfig(**HEADS, rope=MoreRope(fake=1)), NormConfig())
    assert not allowed(AttentionConfig(**HEADS), MoreNorm(fake=1))


def test_what_lies_between_projection_and_cache() -> None:
    def writes(**options: Any) -> bool:
        return write_kv.config_writes_projection(AttentionConfig.model_validate({**HEADS, **options}), NormConfig())

    assert writes() and writes(rope=None) and writes(query_key_norm="head") and writes(query_key_norm="full")
    assert writes(gate={"place": "output"}) and not writes(gate={"place": "value"})
    assert not writes(query_key_norm="after_rope") and not writes(dual_chunk={"chunk": 8, "window": 4})


def test_a_layer_asks_the_lists(monkeypatch: pytest.MonkeyPatch) -> None:
    """A layer with an unknown option calls neither kernel; the definition makes its heads."""
    known, unknown = (attention.Attention(MoreAttention(**HEADS, fake=fake), SITE) for fake in (0, 1))
    assert known.qk_kernel and known.writes_projection
    assert not unknown.qk_kernel and not unknown.writes_projection
    monkeypatch.setattr(qk_norm_rope, "kernel_allowed", lambda *given: pytest.fail("the kernel was asked"))
    context = Context(torch.arange(3)[None])
    assert unknown(torch.randn(1, 3, 16), context).shape == (1, 3, 16)


def test_the_activation() -> None:
    assert swiglu.is_swiglu(MoreFeedForward(width=8, bias=True, output_multiplier=2.0))
    assert not swiglu.is_swiglu(MoreFeedForward(width=8, fake=1))
    for other in (
        {"clamp": 2.0},
        {"activation": "relu"},
        {"gated": False},
        {"up_offset": 1.0},
        {"gate_multiplier": 2.0},
    ):
        assert not swiglu.is_swiglu(FeedForwardConfig.model_validate({"width": 8, **other}))
    assert not dense.FeedForward(MoreFeedForward(width=8, fake=1), 16).is_swiglu


def test_the_norm() -> None:
    assert RmsNorm(8, MoreNorm(zero_centred=True, cast="after_gain")).kernel
    assert not RmsNorm(8, MoreNorm(fake=1)).kernel


def test_lists_name_real_fields() -> None:
    """A field that was renamed would leave a name behind that protects nothing."""
    named: list[tuple[frozenset[str], type[Any]]] = [
        (qk_norm_rope.ATTENTION_FIELDS, AttentionConfig),
        (write_kv.FIELDS, AttentionConfig),
        (qk_norm_rope.ROPE_FIELDS, RopeConfig),
        (qk_norm_rope.NORM_FIELDS, NormConfig),
        (swiglu.FIELDS, FeedForwardConfig),
    ]
    for names, kind in named:
        assert names <= set(kind.model_fields), kind
    modules: list[ModuleType] = [attend_plain, attend_paged, attend_latent, sparse_attention]
    options = {field.name for field in fields(AttentionOptions)}
    assert all(options >= module.OPTIONS for module in modules)
    assert all(names <= options for names in OPTIONS.values())
