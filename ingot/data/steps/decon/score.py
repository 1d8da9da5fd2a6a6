"""Scores matches as Ai2's decon does, the tool behind Olmo 3: weigh, look around, ask more of short evals.

    index.py   evals to tables          search.py   documents to matches          here   matches to a score

    Q, A, P     shares of question, answer and passage that were found, weighed by rarity; each in [0, 1]
    score       0.7 Q + 0.2 A + 0.1 P      an eval with answer and passage
                0.75 Q + 0.25 A            with an answer
                0.85 Q + 0.15 P            with a passage
                Q                          otherwise

A question of N < 20 different n-grams has only c = 0.5 + 0.5 N / 20 of its weight; the rest goes to the answer (or
passage; half and half where there are both). With both, an answer of n < 4 tokens has 0.5 + 0.5 n / 4 of its weight,
and the rest goes to the passage.

    required    1 for evals of at most `perfect_until` tokens, `threshold` from `threshold_from` on, linear between
    adjusted    score · threshold / required, or 1 if the score is 1.       A document goes if adjusted >= threshold

Before that the question alone must reach (threshold - 0.3) / 0.7, likewise raised to 1 for short questions.

What is stored of a match does not depend on the thresholds: the shares of question, answer and passage, the score before
the rule on length, and the lengths. The rules do the rest, so another threshold computes nothing again.

Source: the code of allenai/decon (its text has the sign of the length rule reversed); Olmo 3, arXiv 2512.13961. decon
computes in 32 bits, this in 64; "is 1" means within `PERFECT`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow
from numpy.typing import NDArray

from ingot.data.contamination.matches import DocumentMatches, Span, columns, flat_matches, joined, rule
from ingot.data.contamination.words import word_spans
from ingot.data.step import Rule
from ingot.data.steps.decon.index import DeconIndex
from ingot.data.steps.decon.options import ANSWER_WEIGHT, PASSAGE_WEIGHT, QUESTION_WEIGHT, DeconOptions
from ingot.data.steps.decon.search import (
    ANSWER_END,
    ANSWER_START,
    DOCUMENT,
    EVAL,
    LEFT,
    MATCHED,
    PASSAGE_END,
    PASSAGE_START,
    RIGHT,
    clusters,
)
from ingot.data.steps.decon.tokens import TokenTable, tokens_of
from ingot.data.text.texts import Texts

Numbers = NDArray[np.float64]

PERFECT = 1e-6
INFORMATIVE_NGRAMS = 20
INFORMATIVE_ANSWER = 4


def combined(
    question: Numbers, answer: Numbers, passage: Numbers, ngrams: NDArray[np.int64], answer_tokens: NDArray[np.int64]
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


def required(tokens: Numbers, target: float, config: DeconOptions) -> Numbers:
    """What an eval of this many tokens needs: 1 for short ones, `target` for long ones."""
    width = max(config.threshold_from - config.perfect_until, 1)
    position = np.clip((tokens - config.perfect_until) / width, 0, 1)
    return 1 - (1 - target) * position


def adjusted(score: Numbers, tokens: Numbers, config: DeconOptions) -> Numbers:
    """The score, made smaller for short evals unless it is perfect: to be compared with the threshold."""
    factor = config.threshold / required(tokens, config.threshold, config)
    return np.where(score >= 1 - PERFECT, 1.0, score * factor)


def is_contaminated(
    score: Numbers, question: Numbers, tokens: Numbers, question_tokens: Numbers, config: DeconOptions
) -> NDArray[np.bool_]:
    """Which matches are contamination."""
    needed = required(question_tokens, config.min_question_share(), config)
    return (question >= needed - PERFECT) & (adjusted(score, tokens, config) >= config.threshold)


PARTS = ("question", "answer", "passage", "tokens", "question_tokens")


def match_texts(index: DeconIndex, config: DeconOptions, texts: Texts) -> dict[str, pyarrow.Array]:
    """The columns of the step for these texts."""
    tokens = tokens_of(texts, config.tokens)
    found = clusters(tokens, index, config)
    evals = found.matches_at[:, EVAL]
    question, answer, passage = found.shares.T
    score = combined(question, answer, passage, index.question_ngrams[evals], index.answer_tokens[evals])
    question_tokens = index.questions.tokens[evals]
    length = question_tokens + index.answer_tokens[evals] + index.passages.tokens[evals]

    order = np.lexsort((found.matches_at[:, LEFT], evals, -score, found.matches_at[:, DOCUMENT]))
    by_document: dict[int, list[int]] = {}
    seen = set()
    for row in order.tolist():
        key = tuple(found.matches_at[row, [DOCUMENT, EVAL, LEFT]].tolist())
        if key not in seen:  # two clusters that reached the same eval at the same position: the better one
            seen.add(key)
            by_document.setdefault(key[0], []).append(row)
    result = []
    for document, rows in by_document.items():
        matches = [
            {
                "set": index.names[evals[row]][0],
                "eval": index.names[evals[row]][1],
                "score": float(score[row]),
                "question": float(question[row]),
                "answer": None if np.isnan(answer[row]) else float(answer[row]),
                "passage": None if np.isnan(passage[row]) else float(passage[row]),
                "tokens": float(length[row]),
                "question_tokens": float(question_tokens[row]),
            }
            for row in rows
        ]
        best = found.matches_at[rows[0]]
        words = word_spans(texts, document, "cleaned")
        ranges = [
            (best[LEFT], best[RIGHT]),
            (best[ANSWER_START], best[ANSWER_END]),
            (best[PASSAGE_START], best[PASSAGE_END]),
        ]
        spans = [characters(tokens, document, words, first, last) for first, last in ranges if first >= 0]
        text = texts[document][slice(*spans[0])]
        result.append(DocumentMatches(document, text, int(best[MATCHED]), joined(spans), matches))
    return columns(len(texts), result, PARTS)


def characters(tokens: TokenTable, document: int, words: Any, first: int, last: int) -> Span:
    """The characters of the tokens first … last of a document: of the words that they belong to."""
    begin, word = tokens.offsets[document], tokens.words.offsets[document]
    start, end = tokens.word_of(begin + first) - word, tokens.word_of(begin + last) - word
    return int(words[start, 0]), int(words[end, 1])


def guilty_matches(config: DeconOptions, matches: pyarrow.StructArray) -> tuple[NDArray[np.int64], Numbers]:
    """Which matches reach the threshold for their length, and the final score of all."""
    score, question, tokens, question_tokens = (
        matches.field(name).to_numpy(zero_copy_only=False)
        for name in ("score", "question", "tokens", "question_tokens")
    )
    guilty = np.flatnonzero(is_contaminated(score, question, tokens, question_tokens, config))
    return guilty, adjusted(score, tokens, config)


def judge(config: DeconOptions, table: pyarrow.Table) -> Rule:
    """Documents with a match that reaches the threshold for its length."""
    matches, rows = flat_matches(table)
    guilty, final = guilty_matches(config, matches)
    broken = np.zeros(len(table), bool)
    broken[rows[guilty]] = True
    reasons: dict[int, str] = {}
    for match in guilty[np.lexsort((guilty, -final[guilty]))].tolist():  # the best first
        row = int(rows[match])
        if row not in reasons:
            found = matches[match].as_py()
            parts = ", ".join(f"{name} {found[name]:.2f}" for name in PARTS[:3] if found[name] is not None)
            name = f"{found['set']}:{found['eval']}"
            reasons[row] = f"{name}, {final[match]:.4g} >= {config.threshold:g} ({parts})"
    return rule(table, broken, reasons)
