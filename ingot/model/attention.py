"""Grouped-query softmax attention over packed documents.

    o_i = Σ_j softmax_j( q_i·k_j / sqrt(d) ) v_j      over the keys j that the mask (mask.py) shows to query i

Shapes: B rows, T tokens, D width, H query heads, K key/value heads, W head width. Each key head serves H/K query heads
(Ainslie et al., arXiv 2305.13245).
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from ingot.model import mask
from ingot.model.cache import KeyValueCache
from ingot.model.config import AttentionConfig
from ingot.model.norm import RmsNorm
from ingot.model.rope import rope_angles, rotate


class Context:
    """What all layers of one forward pass share: positions, documents, and things computed from them once."""

    def __init__(
        self,
        positions_BT: Tensor,
        documents_BT: Tensor | None = None,
        slots_B: Tensor | None = None,
        reach: int | None = None,
    ) -> None:
        self.positions_BT, self.documents_BT, self.slots_B = positions_BT, documents_BT, slots_B
        self.spans = None if documents_BT is None else mask.document_spans(documents_BT)
        self.reach = reach
        self._angles: dict[tuple[int, float], tuple[Tensor, Tensor]] = {}

    def angles(self, head_width: int, base: float) -> tuple[Tensor, Tensor]:
        """cos and sin for this pass, shared by all layers with the same width and base."""
        key = (head_width, base)
        if key not in self._angles:
            self._angles[key] = rope_angles(self.positions_BT, head_width, base)
        return self._angles[key]


class Attention(nn.Module):
    """One attention layer. The three input projections are one matrix: [queries | keys | values]."""

    def __init__(self, config: AttentionConfig, width: int, norm_epsilon: float) -> None:
        super().__init__()
        self.config = config
        heads = config.heads + 2 * config.key_value_heads
        self.query_key_value = nn.Linear(width, heads * config.head_width, bias=config.query_key_value_bias)
        self.output = nn.Linear(config.heads * config.head_width, width, bias=False)
        if config.query_key_norm:
            self.query_norm = RmsNorm(config.head_width, norm_epsilon)
            self.key_norm = RmsNorm(config.head_width, norm_epsilon)

    def forward(self, x_BTD: Tensor, context: Context, cache: KeyValueCache | None = None) -> Tensor:
        config = self.config
        rows, length, _ = x_BTD.shape
        projected = self.query_key_value(x_BTD).view(rows, length, -1, config.head_width).transpose(1, 2)
        query, key, value = projected.split((config.heads, config.key_value_heads, config.key_value_heads), dim=1)
        if config.query_key_norm:
            query, key = self.query_norm(query), self.key_norm(key)
        if config.rope is not None:
            cos, sin = context.angles(config.head_width, config.rope.base)
            query, key = rotate(query, cos, sin), rotate(key, cos, sin)
        if cache is not None:
            mixed = self._attend_cached(query, key, value, context, cache)
        elif context.spans is None:
            mixed = self._attend_row(query, key, value)
        else:
            mixed = self._attend_spans(query, key, value, context.spans)
        return self.output(mixed.transpose(1, 2).reshape(rows, length, -1))

    def _attend_row(self, query_BHTW: Tensor, key_BKTW: Tensor, value_BKTW: Tensor) -> Tensor:
        """Causal attention where every row is one document."""
        length, window = query_BHTW.shape[2], self.config.window
        if window is None or length <= window:
            return scaled_dot_product_attention(query_BHTW, key_BKTW, value_BKTW, is_causal=True, enable_gqa=True)
        visible = mask.dense(length, window, None, query_BHTW.device)
        return scaled_dot_product_attention(query_BHTW, key_BKTW, value_BKTW, attn_mask=visible, enable_gqa=True)

    def _attend_spans(self, query_BHTW: Tensor, key_BKTW: Tensor, value_BKTW: Tensor, spans: list[mask.Span]) -> Tensor:
        """Each document by itself, on the flattened batch; padding gets zeros."""
        rows, heads, length, width = query_BHTW.shape
        flat = [
            x.transpose(0, 1).reshape(1, x.shape[1], rows * length, width) for x in (query_BHTW, key_BKTW, value_BKTW)
        ]
        pieces, end = [], 0
        for span in spans:
            if span.start > end:
                pieces.append(query_BHTW.new_zeros(1, heads, span.start - end, width))
            pieces.append(self._attend_row(*(x[:, :, span.start : span.end] for x in flat)))
            end = span.end
        if end < rows * length:
            pieces.append(query_BHTW.new_zeros(1, heads, rows * length - end, width))
        return torch.cat(pieces, dim=2).view(heads, rows, length, width).transpose(0, 1)

    def _attend_cached(
        self, query_BHTW: Tensor, key_BKTW: Tensor, value_BKTW: Tensor, context: Context, cache: KeyValueCache
    ) -> Tensor:
        """Store the new keys and values, then attend to everything in the slot up to each query's position."""
        assert context.slots_B is not None and context.reach is not None
        cache.write(context.slots_B, context.positions_BT, key_BKTW, value_BKTW)
        keys, values = cache.read(context.slots_B, context.reach)
        index = torch.arange(context.reach, device=keys.device)
        position = context.positions_BT[:, None, :, None]
        visible = index <= position
        if self.config.window is not None:
            visible = visible & (position - index < self.config.window)
        return scaled_dot_product_attention(
            query_BHTW, keys.to(query_BHTW.dtype), values.to(query_BHTW.dtype), attn_mask=visible, enable_gqa=True
        )
