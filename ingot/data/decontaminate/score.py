"""decon's score of a match, and how much of it is needed.

    Q, A, P     shares of question, answer and passage that were found, weighed by rarity; each in [0, 1]
    score       0.7 Q + 0.2 A + 0.1 P      an eval with answer and passage
                0.75 Q + 0.25 A            with an answer
                0.85 Q + 0.15 P            with a passage
                Q                          otherwise

A question of N < 20 different n-grams keeps only c = 0.5 + 0.5 N / 20 of its weight; the rest goes to the answer (or
passage; half and half where there are both). With both, an answer of n < 4 tokens keeps 0.5 + 0.5 n / 4 of its weight,
and the rest goes to the passage.

    required    1 for evals of at most `perfect_until` tokens, `threshold` from `threshold_from` on, linear between
    adjusted    score · threshold / required, or 1 if the score is 1.       A document goes if adjusted >= threshold

Before that the question alone must reach (threshold - 0.3) / 0.7, likewise raised to 1 for short questions.

Source: the code of allenai/decon (its text has the sign of the length rule reversed). decon computes in 32 bits, this in
64; "is 1" means within `PERFECT`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ingot.data.decontaminate.config import ANSWER_WEIGHT, PASSAGE_WEIGHT, QUESTION_WEIGHT

if TYPE_CHECKING:
    from ingot.data.steps.decontaminate import DecontaminateStep

Numbers = NDArray[np.float64]

PERFECT = 1e-6
INFORMATIVE_NGRAMS = 20
INFORMATIVE_ANSWER = 4


def combined(
    question: Numbers,
    answer: Numbers,
    passage: Numbers,
    ngrams: NDArray[np.int64],
    answer_tokens: NDArray[np.int64],
) -> Numbers:
    """The score of each match; `answer` and `passage` are nan where the eval has none.

    `ngrams`: different n-grams of the question, `answer_tokens`: different tokens of the answer.
    """
    has_answer, has_passage = ~np.isnan(answer), ~np.isnan(passage)
    both = has_answer & has_passage
    weight = np.select([both, has_answer, has_passage], [QUESTION_WEIGHT, 0.75, 0.85], 1.0)
    answer_weight = np.select([both, has_answer], [ANSWER_WEIGHT, 0.25], 0.0)
    passage_weight = np.select([both, has_passage], [PASSAGE_WEIGHT, 0.15], 0.0)

    confidence = np.minimum(1.0, 0.5 + 0.5 * ngrams / INFORMATIVE_NGRAMS)
    lost = np.where(has_answer | has_passage, weight * (1 - confidence), 0.0)
    weight = weight - lost
    answer_weight = answer_weight + np.select([both, has_answer], [lost / 2, lost], 0.0)
    passage_weight = passage_weight + np.select([both, has_passage], [lost / 2, lost], 0.0)

    confidence = np.where(both, np.minimum(1.0, 0.5 + 0.5 * answer_tokens / INFORMATIVE_ANSWER), 1.0)
    lost = answer_weight * (1 - confidence)
    answer_weight, passage_weight = answer_weight - lost, passage_weight + lost

    score = weight * question + answer_weight * np.nan_to_num(answer) + passage_weight * np.nan_to_num(passage)
    return np.minimum(score, 1.0)


def required(tokens: Numbers, target: float, config: DecontaminateStep) -> Numbers:
    """What an eval of this many tokens needs: 1 for short ones, `target` for long ones."""
    width = max(config.threshold_from - config.perfect_until, 1)
    position = np.clip((tokens - config.perfect_until) / width, 0, 1)
    return 1 - (1 - target) * position


def adjusted(score: Numbers, tokens: Numbers, config: DecontaminateStep) -> Numbers:
    """The score, made smaller for short evals unless it is perfect: to be compared with the threshold."""
    factor = config.threshold / required(tokens, config.threshold, config)
    return np.where(score >= 1 - PERFECT, 1.0, score * factor)


def is_contaminated(
    score: Numbers, question: Numbers, tokens: Numbers, question_tokens: Numbers, config: DecontaminateStep
) -> NDArray[np.bool_]:
    """Which matches are contamination."""
    needed = required(question_tokens, config.min_question_share(), config)
    return (question >= needed - PERFECT) & (adjusted(score, tokens, config) >= config.threshold)
