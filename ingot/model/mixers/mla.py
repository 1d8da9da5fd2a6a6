"""Multi-head latent attention (DeepSeek-V2, arXiv 2405.04434): a small latent holds the keys and values of a token.

    entry of token s    e_s = [c_s | r_s]         c_s = norm(W_c x_s) the latent,  r_s = rotated(W_r x_s)
    query of head h     q   = [q_c | rotated(q_r)]  from x, or from a normed latent of x
    key and value       k_s = [U_h c_s | r_s]      v_s = V_h c_s          (r_s is one key for all heads)
    output              Σ_h O_h Σ_s softmax_s(scale · q·k_s) v_s

Only e_s is cached: L + R numbers per token instead of H·(C + R + V). Two forms compute the same:

* expanded: make k and v of every head, then ordinary attention. Training, and long stretches of new tokens;
* absorbed: q_c·(U c) = (Uᵀ q_c)·c, so queries move into the latent, all heads read the entries themselves as keys and the
  latents as values, and V follows after the softmax. Decoding: nothing is made per head and cached token.

Per head, T queries on S entries cost S·L·(C + V) + T·S·(C + R + V) multiplications expanded and
T·L·(C + V) + T·S·(2L + R) absorbed; a cached pass takes the cheaper one (DeepSeek-V3 with a long past: absorbed up to 170
new tokens). With `sparse` each query sees only the keys that an indexer chose (sparse.py); on a GPU always in absorbed form, as
all heads of a query read the same entries.

Parameters, H heads: query [H·(C + R), D], or query_down [Q, D], query_norm [Q], query_up [H·(C + R), Q]; key_value_down
[L + R, D] with rows [latent | shared key]; key_value_norm [L]; key_value_up [H·(C + V), L] with rows [U_h | V_h] head by
head; output [D, H·V]. Biases, where there are any: query_down, key_value_down, output.

Shapes: B rows, T new tokens, S tokens to look at, D width, H heads, W = C + R query width (content, rotated), V value width,
L latent, E = L + R entry, Q query latent.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Literal

import torch
from pydantic import Field, model_validator
from torch import Tensor

from ingot.kernels.allow_list import understands
from ingot.kernels.attention import attend_latent
from ingot.kernels.attention.attend_paged import attend_past, visible_past
from ingot.kernels.attention.attention_options import AttentionOptions
from ingot.kernels.layer.rotate import rotate
from ingot.kernels.sparse import select_keys, sparse_attention
from ingot.kernels.sparse.index_divergence import mean_probabilities
from ingot.model.context import Context
from ingot.model.document_spans import PADDING
from ingot.model.linear import Linear
from ingot.model.matrices import Rows, in_order, in_turn
from ingot.model.mixers.attend import attend, largest_scores, report_peaks
from ingot.model.mixers.cache import Cache, CacheShape, TokenCache
from ingot.model.mixers.indexer import Index, Indexer, SparseConfig
from ingot.model.mixers.mask import mean_keys
from ingot.model.mixers.mixer import MixerConfig, Site, SoftmaxMixer
from ingot.model.mixers.sparse import (
    attend_masked,
    chosen_index_divergence,
    dense_index_divergence,
    select,
    sight,
)
from ingot.model.norm import RmsNorm
from ingot.model.positions.config import RopeConfig
from ingot.model.positions.rope import rotation
from ingot.model.positions.scaling import YarnScaling
from ingot.model.record import Reporter
from ingot.model.sharding import Sharding
from ingot.workspace.errors import RecipeError


class MlaConfig(MixerConfig):
    """Multi-head latent attention (DeepSeek-V2, arXiv 2405.04434)."""

    kind: Literal["mla"] = Field("mla", description="which mixer this is")
    heads: int = Field(gt=0, description="heads")
    query_latent: int | None = Field(None, gt=0, description="width of the query latent; null: one full projection")
    key_value_latent: int = Field(gt=0, description="width of the latent that keys and values are made of")
    content_width: int = Field(gt=0, description="channels of a query or key that are not rotated")
    rope_width: int = Field(gt=0, description="channels that are rotated; one key of this width serves all heads")
    value_width: int = Field(gt=0, description="width of a head's value")
    rope: RopeConfig | None = Field(
        RopeConfig(pairing="interleaved"), description="rotation of the rope_width channels; null for none"
    )
    latent_epsilon: float = Field(1e-6, gt=0, description="ε of the norms on the latents")
    bias: bool = Field(False, description="biases on the projections down to the latents and on the output")
    sparse: SparseConfig | None = Field(None, description="DSA: attention to selected keys only")

    @model_validator(mode="after")
    def _fits(self) -> MlaConfig:
        if self.rope is not None and self.rope_width % 2:
            raise ValueError(f"rope_width ({self.rope_width}) must be even")
        if self.sparse is not None and self.sparse.head_width < self.rope_width:
            raise ValueError(f"the indexer's head_width must be at least rope_width ({self.rope_width})")
        if self.sparse is not None and self.query_latent is None:
            raise ValueError("the indexer reads the query latent: set query_latent")
        return self

    def build(self, site: Site) -> Mla:
        return Mla(self, site)

    def describe(self) -> str:
        query = "" if self.query_latent is None else f"query latent {self.query_latent}, "
        heads = f"{self.heads} heads × ({self.content_width} + {self.rope_width}, value {self.value_width})"
        rope = self.rope.describe() if self.rope else "NoPE"
        words = ["latent attention", heads, f"{query}key-value latent {self.key_value_latent}", rope]
        return ", ".join(words + ([self.sparse.describe()] if self.sparse else []))

    def mixing_flops(self, length: int) -> float:
        channels = self.heads * (self.content_width + self.rope_width + self.value_width)
        kept = self.sparse.keep if self.sparse is not None and self.sparse.stage == "sparse" else None
        flops = 2 * channels * mean_keys(length, kept)
        return flops + (self.sparse.scoring_flops(length) if self.sparse else 0)

    @property
    def input_width(self) -> int:
        return self.heads * (2 * (self.content_width + self.rope_width) + self.value_width)

    @property
    def output_width(self) -> int:
        return self.heads * self.value_width

    @property
    def key_value_width(self) -> int:
        return self.key_value_latent + self.rope_width

    @property
    def divided(self) -> Mapping[str, int]:
        return {"heads": self.heads}

    @property
    def needs_layer_before(self) -> bool:
        return self.sparse is not None and self.sparse.shared

    @property
    def clippable(self) -> bool:
        return True

    @property
    def untrained(self) -> str:
        idle = self.sparse is not None and not self.sparse.shared and not self.sparse.loss
        return "the indexer of sparse attention does not train: mixer.sparse.loss is 0" if idle else ""


def softmax_scale(config: MlaConfig) -> float:
    """(C + R)^-½ · m²; m = 0.1·mscale_all_dim·ln(factor) + 1 under a YaRN scaling that has mscale_all_dim, else 1."""
    scaling = None if config.rope is None else config.rope.scaling
    temperature = 1.0
    if isinstance(scaling, YarnScaling) and scaling.mscale_all_dim and scaling.factor > 1:
        temperature = 0.1 * scaling.mscale_all_dim * math.log(scaling.factor) + 1
    return (config.content_width + config.rope_width) ** -0.5 * temperature**2


class Mla(SoftmaxMixer, Reporter):
    """One layer of multi-head latent attention, dense or sparse."""

    # applied to what all heads read; where heads are divided over ranks, it sums the gradients of all ranks
    to_heads: Callable[[Tensor], Tensor] = staticmethod(lambda x: x)
    # applied to a mean over this rank's heads: where heads are divided, the mean over those of all ranks, without gradient
    all_heads: Callable[[Tensor], Tensor] = staticmethod(lambda x: x)

    def __init__(self, config: MlaConfig, site: Site) -> None:
        super().__init__()
        self.config, self.site, self.layer, self.scale = config, site, site.layer, softmax_scale(config)
        self.options = AttentionOptions(self.scale)
        self.absorbs = understands(self.options, attend_latent.OPTIONS)
        query_rows = config.heads * (config.content_width + config.rope_width)
        if config.query_latent is None:
            self.query = Linear(site.width, query_rows, bias=False)
        else:
            self.query_down = Linear(site.width, config.query_latent, bias=config.bias)
            self.query_norm = RmsNorm(config.query_latent, site.norm, epsilon=config.latent_epsilon)
            self.query_up = Linear(config.query_latent, query_rows, bias=False)
        self.key_value_down = Linear(site.width, config.key_value_latent + config.rope_width, bias=config.bias)
        self.key_value_norm = RmsNorm(config.key_value_latent, site.norm, epsilon=config.latent_epsilon)
        self.key_value_up = Linear(
            config.key_value_latent, config.heads * (config.content_width + config.value_width), bias=False
        )
        self.output = Linear(config.heads * config.value_width, site.width, bias=config.bias)
        query_name = "query.weight" if config.query_latent is None else "query_up.weight"
        self.matrices = {
            query_name: in_order((config.heads, config.content_width + config.rope_width)),
            "key_value_down.weight": in_order((1, config.key_value_latent), (1, config.rope_width)),
            "key_value_up.weight": in_turn(config.heads, config.content_width, config.value_width),
        }
        self.capturable = attend_latent.kernel_exists(config.key_value_latent, config.rope_width) and (
            config.sparse is None or select_keys.kernel_exists(config.sparse.head_width, config.sparse.keep)
        )
        self.indexer = None
        if config.sparse is not None and not config.sparse.shared:
            assert config.query_latent is not None, "MlaConfig demands it"
            self.indexer = Indexer(config.sparse, site.width, config.query_latent, config.rope, config.rope_width)
            if config.sparse.loss:
                self.reported_losses = {"index_divergence": config.sparse.loss}

    def prepare(self, context: Context) -> None:
        if self.config.rope is not None:
            rotation(context, self.config.rope, self.config.rope_width)
        if self.config.sparse is not None:
            sight(context)

    def make_cache(self, cache_shape: CacheShape, dtype: torch.dtype, device: torch.device) -> TokenCache:
        streams = {"entry": (1, self.config.key_value_latent + self.config.rope_width)}
        if self.config.sparse is not None and not self.config.sparse.shared:
            streams["index"] = (1, self.config.sparse.head_width)
        return TokenCache(streams, cache_shape, dtype, device)

    def logit_factors(self, factor_H: Tensor) -> Sequence[tuple[Linear, Sequence[tuple[Rows, Tensor]]]]:
        config, half_H = self.config, factor_H.sqrt()
        content, rotated = in_turn(config.heads, config.content_width, config.rope_width)
        key, _ = in_turn(config.heads, config.content_width, config.value_width)
        query = self.query if config.query_latent is None else self.query_up
        # the rotated key is shared by all heads: there the query takes the whole factor
        return [(query, [(content, half_H), (rotated, factor_H)]), (self.key_value_up, [(key, half_H)])]

    def sharding(self) -> Sharding:
        query = "query" if self.config.query_latent is None else "query_up"
        return Sharding((query, "key_value_up"), ("output",), ("heads",), enter="heads")

    def forward(self, x_BTD: Tensor, context: Context, cache: Cache | None = None) -> Tensor:
        query_BHTW, latent_BTQ = self._queries(x_BTD, context)
        entry_BTE = self.to_heads(self._entries(x_BTD, context))
        index = self._index(x_BTD, latent_BTQ, context)
        if cache is not None:
            return self._output(self._continue(query_BHTW, entry_BTE, index, context, cache))
        keys = context.whole.positions_BT.shape[1]
        if not self._chooses(keys):
            mixed_BHTV = self.attend_expanded(query_BHTW, context.keys(entry_BTE, 1), context)
            if index is not None and self._indexer_learns(context):
                self._add_divergence(index, query_BHTW, context.gather(entry_BTE, 1), context)
            return self._output(mixed_BHTV)
        entry_BSE = context.gather(entry_BTE, 1)
        selected_BTK = self._selection(index, context)
        mixed_BHTV, target_BTK = self.attend_selected(query_BHTW, entry_BSE, selected_BTK, context)
        if index is not None and target_BTK is not None:
            total = chosen_index_divergence(index, selected_BTK, self.all_heads(target_BTK), context)
            self._add_loss(total, context)
        return self._output(mixed_BHTV)

    def _continue(
        self, query_BHTW: Tensor, entry_BTE: Tensor, index: Index | None, context: Context, cache: Cache
    ) -> Tensor:
        """Attention of new tokens to the cache, into which they are written first."""
        assert isinstance(cache, TokenCache) and context.reach is not None
        cache.write(context, entry=entry_BTE[:, None])
        if index is not None:
            cache.write(context, index=index.key_BSW[:, None])
        if self._chooses(context.reach):
            return self._attend_chosen_pages(query_BHTW, index, cache, context)
        if self._absorbed_is_cheaper(query_BHTW.shape[2], context.reach):
            return self._attend_pages(query_BHTW, cache, context)
        return self.attend_expanded(query_BHTW, self._read(cache, "entry", context, entry_BTE), context)

    def _output(self, mixed_BHTV: Tensor) -> Tensor:
        out: Tensor = self.output(mixed_BHTV.transpose(1, 2).flatten(2))
        return out

    # ---- projections

    def _queries(self, x_BTD: Tensor, context: Context) -> tuple[Tensor, Tensor | None]:
        """All heads' queries, the last R channels rotated; and the latent they came from."""
        config, latent = self.config, None
        if config.query_latent is None:
            flat = self.query(self.to_heads(x_BTD))
        else:
            latent = self.query_norm(self.query_down(x_BTD))
            flat = self.query_up(self.to_heads(latent))
        query = flat.unflatten(-1, (config.heads, -1)).transpose(1, 2)
        return self._rotated(query, context, config.content_width), latent

    def _entries(self, x_BTD: Tensor, context: Context) -> Tensor:
        """[latent | rotated shared key] of every new token."""
        widths = (self.config.key_value_latent, self.config.rope_width)
        latent, key = self.key_value_down(x_BTD).split(widths, dim=-1)
        return torch.cat((self.key_value_norm(latent), self._rotated(key[:, None], context)[:, 0]), dim=-1)

    def _rotated(self, x_BHTW: Tensor, context: Context, begin: int = 0) -> Tensor:
        """R channels from `begin` on are rotated."""
        rope = self.config.rope
        if rope is None:
            return x_BHTW
        cos, sin = rotation(context, rope, self.config.rope_width)
        return rotate(x_BHTW, cos, sin, rope.pairing, begin)

    def _read(self, cache: TokenCache, name: str, context: Context, like: Tensor) -> Tensor:
        """A copy of all that the slots hold, [B, S, …]."""
        return cache.read(name, context)[:, 0].to(like.dtype)

    # ---- attention: queries [B, H, T, W] on entries [B, S, E] -> [B, H, T, V]

    def attend_expanded(self, query_BHTW: Tensor, entry_BSE: Tensor, context: Context) -> Tensor:
        """Keys and values of all heads are made first."""
        key, value = self._expand(entry_BSE)
        if context.slots_B is None:
            layer = self.layer if context.wants_logits else None
            return attend(query_BHTW, key, value, context, self.options, layer=layer)
        positions_S = torch.arange(key.shape[2], device=key.device)
        seen = visible_past(context.positions_BT, positions_S[None], self.options)
        return attend_past(query_BHTW, key, value, seen, self.options)

    def _attend_pages(self, query_BHTW: Tensor, cache: TokenCache, context: Context) -> Tensor:
        """Absorbed: entries are the keys and latents the values of all heads, so the heads are just more queries."""
        assert context.reach is not None
        mixed_BTHL = attend_latent.attend_latent(
            self._absorb(query_BHTW),
            cache.streams["entry"],
            cache.table(context),
            context.positions_BT,
            self.options,
            latent_width=self.config.key_value_latent,
            reach=context.reach,
        )
        return self._values(mixed_BTHL)

    def _attend_chosen_pages(
        self, query_BHTW: Tensor, index: Index | None, cache: TokenCache, context: Context
    ) -> Tensor:
        """Attention of few new tokens reads the chosen entries where they lie; that of many, copies of all."""
        assert context.reach is not None and self.config.sparse is not None
        if index is not None and select_keys.reads_pages(index.query_BTHW, self.config.sparse.keep):
            context.selected = select_keys.select_keys_pages(
                index.query_BTHW,
                index.weight_BTH,
                cache.streams["index"],
                cache.table(context),
                context.positions_BT,
                keep=self.config.sparse.keep,
                reach=context.reach,
            )
        elif index is not None:
            index = index._replace(key_BSW=self._read(cache, "index", context, index.key_BSW))
            context.selected = select(index, self.config.sparse.keep, context)
        selected_BTK = self._selection(None, context)
        query_BTHE = self._absorb(query_BHTW)
        latent_width = self.config.key_value_latent
        if self._has_kernel(query_BTHE):
            mixed_BTHL = sparse_attention.sparse_attention_pages(
                query_BTHE,
                cache.streams["entry"],
                cache.table(context),
                selected_BTK,
                self.options,
                latent_width=latent_width,
                reach=context.reach,
            )
            return self._values(mixed_BTHL)
        entry_BSE = self._read(cache, "entry", context, query_BHTW)
        return self.attend_selected(query_BHTW, entry_BSE, selected_BTK, context)[0]

    def _absorbed_is_cheaper(self, queries: int, entries: int) -> bool:
        config = self.config
        up = config.key_value_latent * (config.content_width + config.value_width)
        wider = 2 * config.key_value_latent - config.content_width - config.value_width
        return self.absorbs and queries * (up + entries * wider) < entries * up

    def _expand(self, entry_BSE: Tensor) -> tuple[Tensor, Tensor]:
        """Keys [B, H, S, W] and values [B, H, S, V] of all heads."""
        config = self.config
        latent, rotated = entry_BSE.split((config.key_value_latent, config.rope_width), dim=-1)
        key_value = self.key_value_up(latent).unflatten(-1, (config.heads, -1)).transpose(1, 2)
        content, value = key_value.split((config.content_width, config.value_width), dim=-1)
        shared = rotated[:, None].expand(-1, config.heads, -1, -1).to(content.dtype)
        return torch.cat((content, shared), dim=-1), value

    def _up(self) -> tuple[Tensor, Tensor]:
        """U [H, C, L] and V [H, V, L]."""
        key, value = (
            self.key_value_up.matrix()
            .unflatten(0, (self.config.heads, -1))
            .split((self.config.content_width, self.config.value_width), dim=1)
        )
        return key, value

    def _absorb(self, query_BHTW: Tensor) -> Tensor:
        """Queries [B, T, H, E] that are compared with entries."""
        content, rotated = query_BHTW.transpose(1, 2).split((self.config.content_width, self.config.rope_width), dim=-1)
        return torch.cat((torch.einsum("bthc,hcl->bthl", content, self._up()[0].to(content.dtype)), rotated), dim=-1)

    def _values(self, latent_BTHL: Tensor) -> Tensor:
        """Every head's mixed latent to its value [B, H, T, V]."""
        return torch.einsum("bthl,hvl->bhtv", latent_BTHL, self._up()[1].to(latent_BTHL.dtype))

    # ---- sparse attention

    def _chooses(self, keys: int) -> bool:
        """Whether queries that see up to this many keys attend to chosen ones only."""
        sparse = self.config.sparse
        return sparse is not None and sparse.stage == "sparse" and keys > sparse.keep

    def attend_selected(
        self, query_BHTW: Tensor, entry_BSE: Tensor, selected_BTK: Tensor, context: Context
    ) -> tuple[Tensor, Tensor | None]:
        """Attention to the chosen entries only; padding gives zeros, as everywhere.

        Where the indexer learns, also the probabilities of the chosen keys [B, T, K], averaged over the heads. The largest
        logits are reported over all keys in sight, which bounds those over the chosen ones.
        """
        if context.wants_logits:
            with torch.no_grad():
                key, _ = self._expand(entry_BSE)
                report_peaks(self.layer, largest_scores(query_BHTW, key, context, self.options), context)
        latent_width, sums = self.config.key_value_latent, None
        if self._has_kernel(query_BHTW) or self._absorbed_is_cheaper(query_BHTW.shape[2], entry_BSE.shape[1]):
            query_BTHE = self._absorb(query_BHTW)
            mixed_BTHL, sums = sparse_attention.sparse_attention(
                query_BTHE, entry_BSE, selected_BTK, self.options, latent_width=latent_width
            )
            mixed = self._values(mixed_BTHL)
        else:
            mixed = attend_masked(query_BHTW, *self._expand(entry_BSE), selected_BTK, context, self.scale)
        if context.documents_BT is not None:
            mixed = mixed.masked_fill((context.documents_BT == PADDING)[:, None, :, None], 0)
        if not self._indexer_learns(context):
            return mixed, None
        with torch.no_grad():
            given = (self._absorb(query_BHTW), entry_BSE, selected_BTK, sums)
            return mixed, mean_probabilities(*given, latent_width=latent_width, scale=self.scale)

    def _has_kernel(self, query: Tensor) -> bool:
        return sparse_attention.kernel_allowed(
            query, self.config.key_value_latent, self.config.rope_width, self.options
        )

    def _index(self, x_BTD: Tensor, latent_BTQ: Tensor | None, context: Context) -> Index | None:
        """The indexer's view of the new tokens. Its inputs are detached: it is trained by its own loss only."""
        if self.indexer is None:
            return None
        assert latent_BTQ is not None, "MlaConfig demands a query latent"
        with torch.set_grad_enabled(torch.is_grad_enabled() and self._indexer_learns(context)):
            index: Index = self.indexer(x_BTD.detach(), latent_BTQ.detach(), context)
            return index._replace(key_BSW=context.gather(index.key_BSW, 1))

    def _selection(self, index: Index | None, context: Context) -> Tensor:
        assert self.config.sparse is not None
        if index is not None:
            context.selected = select(index, self.config.sparse.keep, context)
        if context.selected is None:
            raise RecipeError(
                "the layer shares the keys that an earlier layer chose, but none did",
                place=f"layer {self.site.layer}: mixer.sparse.shared",
                fix="put a block whose sparse attention has shared: false before it",
            )
        return context.selected

    def _indexer_learns(self, context: Context) -> bool:
        sparse, indexer = self.config.sparse, self.indexer
        if context.record is None or sparse is None or indexer is None or sparse.loss == 0:
            return False
        return any(parameter.requires_grad for parameter in indexer.parameters())

    def _add_divergence(self, index: Index, query_BHTW: Tensor, entry_BSE: Tensor, context: Context) -> None:
        """The indexer's loss over all keys in sight."""
        with torch.no_grad():
            key_BHSW, _ = self._expand(entry_BSE)
        given = (index, query_BHTW, key_BHSW, context, self.scale, self.all_heads)
        self._add_loss(dense_index_divergence(*given), context)

    def _add_loss(self, total: Tensor, context: Context) -> None:
        assert context.record is not None and self.config.sparse is not None
        context.record.add_loss("index_divergence", self.config.sparse.loss * total)
