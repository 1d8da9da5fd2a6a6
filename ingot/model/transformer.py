"""The decoder: embedding, a stack of blocks, a norm, a head. Its parts are the other files of this folder.

Shapes: B rows, T tokens, D width, V vocabulary. A row may hold several packed documents: `documents_BT` numbers them
(−1 is padding) and `positions_BT` restarts at each; without them a row is one document.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, cast

import torch
from torch import Tensor, nn

from ingot.model.block import Block
from ingot.model.config import ModelConfig
from ingot.model.context import Context
from ingot.model.context_parallel import ContextParallel
from ingot.model.linear import Embedding, Linear
from ingot.model.lora_config import LoraConfig
from ingot.model.mixers.cache import Cache, CacheShape
from ingot.model.mixers.mixer import Site
from ingot.model.multi_token import MultiToken
from ingot.model.norm import RmsNorm
from ingot.model.quantise import quantise_weights
from ingot.model.record import Record
from ingot.workspace.errors import ArtifactError

if TYPE_CHECKING:
    from ingot.tokens.batch import BatchMetadata
    from ingot.tokens.tokenizer import Tokenizer


REWARD_HEAD = "reward"
"""The further head that makes a model a reward model."""
VALUE_HEAD = "value"
"""The further head that is PPO's critic."""


class Transformer(nn.Module):
    """A language model; `tokenizer` is attached when the model was loaded from a checkpoint."""

    tokenizer: Tokenizer | None = None
    lora: LoraConfig | None = None  # of a model with adapters (lora.py),
    lora_base: Path | None = None  # and the checkpoint that they adapt
    # names in the state of the whole model that only other ranks of a pipeline hold
    elsewhere: frozenset[str] = frozenset()

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        if config.vocabulary_size is None:
            raise ArtifactError("the model's vocabulary_size is not set", fix="set it, or give a tokenizer")
        self.config = config
        self.embedding = Embedding(config.vocabulary_size, config.width)
        sites = [Site(config.width, layer, config.depth, config.norm) for layer in range(config.depth)]
        self.blocks = nn.ModuleList(Block(config.block(site.layer), site) for site in sites)
        self.norm = RmsNorm(config.width, config.norm)
        if not config.tied_embeddings:
            self.output = Linear(config.width, config.vocabulary_size, bias=False)
        self.multi_token = MultiToken(config) if config.multi_token is not None else None
        self.heads = nn.ModuleDict({name: Linear(config.width, 1, bias=False) for name in config.heads})
        if config.quantisation is not None:
            quantise_weights(self.blocks, config.quantisation)

    @property
    def head_part(self) -> Embedding | Linear:
        """The module that holds the matrix from states to logits."""
        return self.embedding if self.config.tied_embeddings else self.output

    @property
    def head_weight_VD(self) -> Tensor:
        """The matrix from states to logits."""
        return self.head_part.weight

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
        caches: Sequence[Cache | None] | None = None,
        slots: Tensor | None = None,
        pages: Tensor | None = None,
        lengths: Tensor | None = None,
        reach: int | None = None,
        record: Record | None = None,
        metadata: BatchMetadata | None = None,
        context_parallel: ContextParallel | None = None,
    ) -> Tensor:
        """States [B, T, D] after the last norm. With caches, `slots` [B] says which slot each row continues.

        `pages` [B, R] are the rows' pages where these are handed out (mixers/cache.py).
        `lengths` [B] is the number of real tokens of each row, if some are padded at the end. `reach` (one more than the
        largest position) bounds the keys that are read; without it the device is asked. A `record` collects the
        parts' losses and the routers' loads. `metadata` says where documents begin; without it the device is asked.
        With `context_parallel` the inputs are whole rows, and the states those of this rank's tokens.
        """
        if positions_BT is None:
            positions_BT = torch.arange(tokens_BT.shape[1], device=tokens_BT.device).expand_as(tokens_BT)
        if caches is not None and reach is None:
            reach = int(positions_BT.max()) + 1
        context = Context(positions_BT, documents_BT, slots, lengths, reach, record, metadata, pages).part(
            context_parallel
        )
        return self.run_blocks(self.embed(context.own(tokens_BT)), context, self.blocks, caches, self.norm)

    @staticmethod
    def run_blocks(
        x_BTD: Tensor,
        context: Context,
        blocks: Iterable[nn.Module],
        caches: Sequence[Cache | None] | None = None,
        norm: RmsNorm | None = None,
    ) -> Tensor:
        """The residual stream after these blocks, and after the last norm if it is given."""
        chosen = [cast(Block, block) for block in blocks]
        for block in chosen:
            if caches is None and block.mixer is not None:
                block.mixer.prepare(context)
        for block, cache in zip(chosen, caches or [None] * len(chosen), strict=True):
            # training may have compiled its blocks; sampling is held by captured graphs, and its shapes change
            run = block if caches is None else block.forward
            x_BTD = run(x_BTD, context, cache)
            block.report(context)
        context.reported = True
        return x_BTD if norm is None else norm(x_BTD)

    def embed(self, tokens_BT: Tensor) -> Tensor:
        """The tokens' embeddings, scaled."""
        x_BTD = self.embedding(tokens_BT)
        device = x_BTD.device.type
        if torch.is_autocast_enabled(device):  # the residual stream is in the dtype of the products: half the memory
            x_BTD = x_BTD.to(torch.get_autocast_dtype(device))
        scale = self.config.embedding_scale
        if scale == 1.0:
            return x_BTD
        return x_BTD * (torch.tensor(scale, dtype=x_BTD.dtype) if self.config.embedding_scale_rounded else scale)

    def project(self, states: Tensor) -> Tensor:
        """The products of states with the head; a head that is divided over ranks replaces this."""
        return Linear.multiply(states, self.head_weight_VD.to(states.dtype), None)

    def head(self, states_BTD: Tensor) -> Tensor:
        """Logits in float32 (float64 of a float64 model) from states after the last norm."""
        logits = self.project(states_BTD)
        logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
        if self.config.logit_scale != 1.0:
            logits = logits * self.config.logit_scale
        cap = self.config.logit_softcap
        return logits if cap is None else cap * torch.tanh(logits / cap)

    def read_head(self, name: str, states: Tensor) -> Tensor:
        """What a further head (`config.heads`) gives for each of these states after the last norm, in float32.

        A reward read from a state in bfloat16 would be rounded to three digits.
        """
        exact = torch.promote_types(states.dtype, torch.float32)
        weight_D = cast(Linear, self.heads[name]).weight[0]
        return (states.to(exact) * weight_D.to(exact)).sum(dim=-1)

    def make_caches(self, cache_shape: CacheShape) -> list[Cache | None]:
        """An empty cache per layer; None for a layer without a mixer."""
        weight, caches = self.embedding.weight, list[Cache | None]()
        for block in self.blocks:
            assert isinstance(block, Block)
            mixer = block.mixer
            caches.append(None if mixer is None else mixer.make_cache(cache_shape, weight.dtype, weight.device))
        return caches
