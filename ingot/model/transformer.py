"""The decoder: embedding, a stack of blocks, a norm, a head. The parts are in the files beside this one.

Shapes: B rows, T tokens, D width, V vocabulary. A row may hold several packed documents: `documents_BT` numbers them
(−1 is padding) and `positions_BT` restarts at each; without them a row is one document.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from ingot.model.attention import Attention, Context
from ingot.model.cache import KeyValueCache
from ingot.model.config import BlockConfig, ModelConfig
from ingot.model.feed_forward import FeedForward
from ingot.model.norm import RmsNorm
from ingot.workspace.errors import ArtifactError

if TYPE_CHECKING:
    from ingot.tokens.tokenizer import Tokenizer


class Block(nn.Module):
    """x + attention(norm(x)), then x + feed_forward(norm(x))."""

    def __init__(self, config: BlockConfig, width: int, norm_epsilon: float) -> None:
        super().__init__()
        self.attention_norm = RmsNorm(width, norm_epsilon)
        self.attention = Attention(config.attention, width, norm_epsilon)
        self.feed_forward_norm = RmsNorm(width, norm_epsilon)
        self.feed_forward = FeedForward(config.feed_forward, width)

    def forward(self, x_BTD: Tensor, context: Context, cache: KeyValueCache | None = None) -> Tensor:
        x_BTD = x_BTD + self.attention(self.attention_norm(x_BTD), context, cache)
        return x_BTD + self.feed_forward(self.feed_forward_norm(x_BTD))


class Transformer(nn.Module):
    """A language model; `tokenizer` is attached when the model was loaded from a checkpoint."""

    tokenizer: Tokenizer | None = None

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        if config.vocabulary_size is None:
            raise ArtifactError("the model's vocabulary_size is not set", fix="set it, or give a tokenizer")
        self.config = config
        self.embedding = nn.Embedding(config.vocabulary_size, config.width)
        self.blocks = nn.ModuleList(
            Block(config.block(layer), config.width, config.norm_epsilon) for layer in range(config.depth)
        )
        self.norm = RmsNorm(config.width, config.norm_epsilon)
        if not config.tied_embeddings:
            self.output = nn.Linear(config.width, config.vocabulary_size, bias=False)

    @property
    def head_weight_VD(self) -> Tensor:
        """The matrix from states to logits."""
        return self.embedding.weight if self.config.tied_embeddings else self.output.weight

    def forward(
        self, tokens_BT: Tensor, positions_BT: Tensor | None = None, documents_BT: Tensor | None = None
    ) -> Tensor:
        """Logits [B, T, V] in float32: at position t, the prediction of token t + 1."""
        return self.head(self.hidden(tokens_BT, positions_BT, documents_BT))

    def hidden(
        self,
        tokens_BT: Tensor,
        positions_BT: Tensor | None = None,
        documents_BT: Tensor | None = None,
        *,
        caches: Sequence[KeyValueCache] | None = None,
        slots: Tensor | None = None,
        reach: int | None = None,
    ) -> Tensor:
        """States [B, T, D] after the last norm. With caches, `slots` [B] says which slot each row continues.

        `reach` (one more than the largest position) bounds the keys that are read; giving it saves asking the device.
        """
        if positions_BT is None:
            positions_BT = torch.arange(tokens_BT.shape[1], device=tokens_BT.device).expand_as(tokens_BT)
        if caches is not None and reach is None:
            reach = int(positions_BT.max()) + 1
        context = Context(positions_BT, documents_BT, slots, reach)
        x_BTD = self.embedding(tokens_BT)
        for layer, block in enumerate(self.blocks):
            x_BTD = block(x_BTD, context, caches[layer] if caches is not None else None)
        return self.norm(x_BTD)

    def head(self, states_BTD: Tensor) -> Tensor:
        """Logits in float32 (float64 of a float64 model) from states after the last norm."""
        logits = states_BTD @ self.head_weight_VD.to(states_BTD.dtype).T
        return logits.to(torch.promote_types(logits.dtype, torch.float32))

    def make_caches(self, slots: int, length: int) -> list[KeyValueCache]:
        """An empty cache per layer for `slots` sequences of at most `length` tokens."""
        weight = self.embedding.weight
        attentions = [self.config.block(layer).attention for layer in range(self.config.depth)]
        return [
            KeyValueCache(slots, a.key_value_heads, length, a.head_width, weight.dtype, weight.device)
            for a in attentions
        ]


def initialise(model: Transformer, seed: int) -> None:
    """Normal weights, gains one, biases zero; a pure function of the seed (the global generator is not touched).

    Output projections (those that write to the residual stream) get std / sqrt(2·depth), so that the stream's variance
    does not grow with depth at the start (Radford et al., GPT-2).
    """
    config = model.config
    generator = torch.Generator().manual_seed(seed)
    for name, parameter in sorted(model.named_parameters()):
        if parameter.dim() < 2:
            nn.init.constant_(parameter, 1.0 if name.endswith("gain") else 0.0)
            continue
        std = config.initial_std
        if config.depth_scaled_init and name.endswith(("attention.output.weight", "down.weight")):
            std /= (2 * config.depth) ** 0.5
        with torch.no_grad():
            parameter.copy_(torch.empty(parameter.shape).normal_(0.0, std, generator=generator))
