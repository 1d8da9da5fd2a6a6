"""Supervised fine-tuning: cross-entropy on the assistant's tokens.

    loss = −Σ_t w_t log p_t / Σ_t w_t,   w_t = 1 on what the assistant writes, 0 on what it is given

with the further terms that the stage's options ask for, as in pre-training (train/losses/terms.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ingot.post.algorithm import SftAlgorithm

if TYPE_CHECKING:
    from ingot.model.transformer import Transformer
    from ingot.train.losses.terms import LossTerm


class CrossEntropy(SftAlgorithm):
    """Cross-entropy on what the assistant writes."""

    def terms(self, model: Transformer, config: Any) -> list[LossTerm]:
        from ingot.train.losses.terms import language_terms

        return language_terms(model, config)
