"""The lightning indexer of DeepSeek sparse attention (DeepSeek-V3.2): a cheap guess at which keys a query needs.

    I[t, s] = Σ_j n^-½ w_tj · relu(d^-½ q_tj · k_s)        j over the n indexer heads of width d, in float32

q comes from the attention's query latent, k (one head) is a layer-normed projection of x, w another projection of x; the
first R channels of q and k are rotated like the attention's. Inputs arrive detached: only its own loss (sparse.py) trains it.

relu makes exact zeros: keys that no head scores are tied, and a tie for the last of the kept keys is broken arbitrarily.

Parameters: query [n·d, Q], key [d, D], key_norm (weight and bias [d]), head_weight [n, D].
Shapes: B rows, T queries, S keys, H = n heads, W = d width, Q query latent, D stream.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from pydantic import Field
from torch import Tensor, nn

from ingot.kernels.layer.rotate import rotate
from ingot.model.context import Context
from ingot.model.linear import Linear
from ingot.model.mixers.mask import mean_keys
from ingot.model.positions.config import RopeConfig
from ingot.model.positions.rope import rotation
from ingot.workspace.config import Config


class SparseConfig(Config):
    """DeepSeek sparse attention (DeepSeek-V3.2): a small indexer chooses the keys that each query may see."""

    heads: int = Field(gt=0, description="indexer heads")
    head_width: int = Field(gt=0, description="width of an indexer head; its first rope_width channels are rotated")
    keep: int = Field(gt=0, description="keys kept per query")
    pairing: Literal["halves", "interleaved"] = Field("halves", description="pairing of the indexer's rotation")
    shared: bool = Field(False, description="no indexer of its own: reuse the keys that the last layer with one chose")
    loss: float = Field(
        1.0,
        ge=0,
        description="weight of the indexer's own loss, the only one that reaches it; 0: the indexer does not train",
    )
    stage: Literal["dense_warmup", "sparse"] = Field(
        "sparse",
        description="dense_warmup: attention sees all keys while the indexer learns to predict it; sparse: only the kept ones",
    )

    def describe(self) -> str:
        """In a few words, for `ingot model show`."""
        own = "shared selection" if self.shared else f"indexer {self.heads} × {self.head_width}"
        return f"{own} keeps {self.keep} keys"

    def scoring_flops(self, length: int) -> float:
        """Forward FLOPs per token of the scores, which are made for all keys in sight."""
        return 0.0 if self.shared else 2 * self.heads * self.head_width * mean_keys(length)


class Index(NamedTuple):
    """The inputs of the scores: queries and head weights of the new tokens, keys of all tokens."""

    query_BTHW: Tensor
    weight_BTH: Tensor
    key_BSW: Tensor


class Indexer(nn.Module):
    """Queries, keys and head weights of one layer's indexer."""

    def __init__(
        self, config: SparseConfig, width: int, query_latent: int, rope: RopeConfig | None, rope_width: int
    ) -> None:
        super().__init__()
        self.sparse, self.rope, self.rope_width = config, rope, rope_width
        self.query = Linear(query_latent, self.sparse.heads * self.sparse.head_width, bias=False)
        self.key = Linear(width, self.sparse.head_width, bias=False)
        self.key_norm = nn.LayerNorm(self.sparse.head_width, eps=1e-6)
        self.head_weight = Linear(width, self.sparse.heads, bias=False)

    def forward(self, x_BTD: Tensor, latent_BTQ: Tensor, context: Context) -> Index:
        """The new tokens' part of the index."""
        query_BHTW = self.query(latent_BTQ).unflatten(-1, (self.sparse.heads, -1)).transpose(1, 2)
        key_B1TW = self.key_norm(self.key(x_BTD))[:, None]
        query_BHTW, key_B1TW = self._rotated(query_BHTW, context), self._rotated(key_B1TW, context)
        return Index(query_BHTW.transpose(1, 2), self.head_weight(x_BTD), key_B1TW[:, 0])

    def _rotated(self, x_BHTW: Tensor, context: Context) -> Tensor:
        """The first channels rotated."""
        if self.rope is None:
            return x_BHTW
        cos, sin = rotation(context, self.rope, self.rope_width)
        return rotate(x_BHTW, cos, sin, self.sparse.pairing)
