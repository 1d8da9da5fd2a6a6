"""Multi-token prediction: small modules that predict tokens further ahead (DeepSeek-V3, arXiv 2412.19437, section 2.2).

    h⁰_t = the model's state at t, after its last norm
    hᵏ_t = norm_k( Block_k( W_k [ norm(Emb(token_{t+k})) ; norm(hᵏ⁻¹_t) ] ) )          k = 1 … steps
    p(token_{t+k+1}) = softmax( head( hᵏ_t ) )

Embedding and head are the model's own. With `shared` one module serves all steps (GLM-5, arXiv 2602.15763). The embedding
comes first in the concatenation. Position t of step k is computed only where token t + k is in the same document; other
positions come out as padding, so that nothing of the next document is seen.

Shapes: B rows, T tokens, D width. hᵏ is indexed like the model's states: entry t belongs to token t.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from ingot.model.block import Block
from ingot.model.config import ModelConfig
from ingot.model.context import Context
from ingot.model.context_parallel import ContextParallel
from ingot.model.document_spans import PADDING
from ingot.model.linear import Linear
from ingot.model.mixers.cache import Cache, CacheShape
from ingot.model.mixers.mixer import Site
from ingot.model.norm import RmsNorm
from ingot.model.record import Record


class MultiTokenModule(nn.Module):
    """One step further: reads the state of the step before and the embedding of the token that has become known."""

    def __init__(self, config: ModelConfig, step: int) -> None:
        super().__init__()
        assert config.multi_token is not None
        self.embedding_norm = RmsNorm(config.width, config.norm)
        self.state_norm = RmsNorm(config.width, config.norm)
        self.input = Linear(2 * config.width, config.width, bias=False)
        site = Site(config.width, config.depth + step, config.depth, config.norm)
        self.block = Block(config.blocks[config.multi_token.block], site)
        self.norm = RmsNorm(config.width, config.norm)

    def forward(self, state_BTD: Tensor, embedding_BTD: Tensor, context: Context, cache: Cache | None = None) -> Tensor:
        joined = torch.cat((self.embedding_norm(embedding_BTD), self.state_norm(state_BTD)), dim=-1)
        out_BTD = self.block(self.input(joined), context, cache)
        self.block.report(context)
        return self.norm(out_BTD)


class MultiToken(nn.Module):
    """The modules of all steps."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        assert config.multi_token is not None
        self.config = config.multi_token
        count = 1 if self.config.shared else self.config.steps
        self.parts = nn.ModuleList(MultiTokenModule(config, step) for step in range(count))

    def forward(
        self,
        states_BTD: Tensor,
        tokens_BT: Tensor,
        positions_BT: Tensor,
        documents_BT: Tensor | None,
        embed: Callable[[Tensor], Tensor],
        record: Record | None = None,
        context_parallel: ContextParallel | None = None,
    ) -> list[tuple[Tensor, Tensor]]:
        """For each step k: states [B, T, D] ready for the head, and where they are valid [B, T].

        The state at t of step k predicts token t + k + 1; it is valid where token t + k is in t's document.
        With `context_parallel`, tokens, positions and documents are whole rows, all else is of this rank's tokens.
        """
        results = []
        documents = torch.zeros_like(tokens_BT) if documents_BT is None else documents_BT
        state = states_BTD
        for step in range(1, self.config.steps + 1):
            part = self.parts[0 if self.config.shared else step - 1]
            known = torch.roll(tokens_BT, -step, dims=1)
            same = torch.roll(documents, -step, dims=1) == documents
            same[:, -step:] = False
            valid = same & (documents != PADDING)
            rows = Context(positions_BT + step, torch.where(valid, documents, PADDING), record=record)
            context = rows.part(context_parallel)
            state = part(state, embed(context.own(known)), context)
            results.append((state, context.own(valid)))
        return results

    def make_cache(self, cache_shape: CacheShape, dtype: torch.dtype, device: torch.device) -> Cache | None:
        """An empty cache for `step`; None if the block has no mixer."""
        mixer = self._first.block.mixer
        return None if mixer is None else mixer.make_cache(cache_shape, dtype, device)

    def step(
        self,
        states_BTD: Tensor,
        following_BT: Tensor,
        embed: Callable[[Tensor], Tensor],
        context: Context,
        cache: Cache | None,
    ) -> Tensor:
        """The first module's states [B, T, D] in a continuation (context.py); `following` are the tokens after the states'.

        Entry t lies at t's own position, where `forward` counts from the following token's: a distance between two entries,
        which is all that attention sees, is the same.
        """
        states: Tensor = self._first(states_BTD, embed(following_BT), context, cache)
        return states

    @property
    def _first(self) -> MultiTokenModule:
        part = self.parts[0]
        assert isinstance(part, MultiTokenModule)
        return part
