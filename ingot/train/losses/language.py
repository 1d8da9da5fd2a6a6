"""The loss terms of a language model: cross-entropy, z-loss, multi-token prediction."""

from __future__ import annotations

from ingot.model.transformer import Transformer
from ingot.train.config import LanguageConfig
from ingot.train.losses.terms import CrossEntropy, LossTerm, MultiTokenPrediction, ZLoss


def language_terms(model: Transformer, config: LanguageConfig) -> list[LossTerm]:
    """The terms of pre-training and fine-tuning; one with coefficient 0 is left out by the trainer."""
    terms: list[LossTerm] = [CrossEntropy(), ZLoss(coefficient=config.z_loss)]
    if model.config.multi_token is not None:
        terms.append(MultiTokenPrediction(coefficient=model.config.multi_token.weight))
    return terms
