"""decon's index: which evals have which n-gram, how rare it is, and what to look for around a question.

    idf(x) = ln(N / df(x))      N evals; df: evals whose question (answer, passage) has the n-gram x
    hot    = df > max(2000, 2 sqrt(N)): so common that no match starts there

Evals are exact-deduplicated within their set; those with fewer than `min_eval_tokens` tokens or `min_eval_words`
different words (question, answer and passage together) are left out. All arrays are flat, for CPU kernels.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ingot.data.contamination.counting import NgramCounts, corpus_weights
from ingot.data.contamination.evals import Eval, evals
from ingot.data.contamination.ngrams import NgramSet, all_windows, ngram_set, unique_pairs
from ingot.data.steps.decon.options import DeconOptions
from ingot.data.steps.decon.tokens import TokenTable, is_space, tokens_of
from ingot.data.text.texts import Texts
from ingot.workspace.errors import DataError

HOT = 2000

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


class EvalPart(NamedTuple):
    """The n-grams of all answers (or passages): those of eval e are starts[e] … starts[e + 1] - 1, by ascending hash."""

    starts: Ints
    hashes: NDArray[np.uint64]
    idf: Floats
    sums: Floats  # of idf, by eval
    tokens: Ints  # length, by eval


class QuestionIndex(NamedTuple):
    """The n-grams of all questions. A pair is an n-gram in an eval; n-gram g has the pairs starts[g] … starts[g + 1] - 1,
    eval e has eval_pairs[eval_starts[e] : eval_starts[e + 1]], by ascending n-gram."""

    hashes: NDArray[np.uint64]
    slots: NDArray[np.int32]
    bitmap: NDArray[np.uint8]
    starts: Ints
    evals: NDArray[np.int32]  # by pair
    ngrams: Ints  # by pair
    idf: Floats  # by n-gram
    hot: NDArray[np.bool_]  # by n-gram
    eval_starts: Ints
    eval_pairs: Ints
    sums: Floats  # of idf, by eval
    tokens: Ints  # length, by eval


class ShortAnswers(NamedTuple):
    """Answers that must occur exactly; those of eval e are tokens[starts[e] : starts[e + 1]]."""

    starts: Ints
    tokens: NDArray[np.uint64]
    shares: Floats  # by eval: what finding it is worth, 1, or 0 if its tokens are in every eval


@dataclass(frozen=True)
class DeconIndex:
    """Everything that the scan needs."""

    names: list[tuple[str, str]]  # set and id of each eval
    ngrams: NgramSet  # of the questions
    questions: QuestionIndex
    answers: EvalPart
    passages: EvalPart
    short: ShortAnswers
    question_ngrams: Ints  # different n-grams of the question, by eval
    answer_tokens: Ints  # different tokens of the answer, by eval; 0: it has none
    duplicates: int  # evals that were left out because there is an equal one in their set
    too_short: Counter[str]  # and because they are too short, by set
    unreachable: int  # questions shorter than an n-gram: indexed, as decon does, but never found

    def say(self) -> list[str]:
        """What will be searched for, and what cannot be."""
        lines = [f"{len(self.ngrams):,} n-grams of {len(self.names):,} evals; left out {self.duplicates:,}"]
        lines[0] += f" duplicates and {self.too_short.total():,} evals that are too short to be searched for"
        if self.unreachable:
            lines.append(f"{self.unreachable:,} questions are shorter than an n-gram and cannot be found")
        return lines

    def sizes(self) -> dict[str, tuple[int, int]]:
        """By eval set: its evals, and how many of them are searched for."""
        found = Counter(name for name, _ in self.names)
        return {name: (found[name] + self.too_short[name], found[name]) for name in sorted({*found, *self.too_short})}

    def weighted(self, counts: NgramCounts) -> DeconIndex:
        """The index with n-grams of questions weighed by how rare they are among evals and documents together."""
        idf = corpus_weights(len(self.names), self.ngrams.frequencies(), counts)
        return replace(self, questions=with_weights(self.questions, idf))


def build_index(config: DeconOptions) -> DeconIndex:
    """Read the evals, leave out what is not searched for, and index the rest."""
    read = list(evals(config.against, config.texts))
    different = list({(item.set, item.question, item.answer, item.passage): item for item in reversed(read)}.values())
    different.reverse()
    different = [stripped(item, config) for item in different]
    enough = long_enough(different, config)
    chosen = [item for item, wanted in zip(different, enough, strict=True) if wanted]
    if not chosen:
        raise DataError(
            f"none of the {len(read):,} evals has {config.min_eval_tokens} tokens and {config.min_eval_words} different "
            "words: nothing can be found",
            place="decon",
            fix="give longer evals, or lower min_eval_tokens and min_eval_words",
        )
    questions, answers, passages = (
        tokens_of(Texts.of([getattr(item, part) for item in chosen]), config.tokens)
        for part in ("question", "answer", "passage")
    )
    lengths = np.diff(questions.offsets)
    sizes = np.where(lengths >= config.question_ngram, config.question_ngram, lengths)
    values, owners, _ = all_windows(questions.values, questions.offsets, np.maximum(sizes, 1))
    grams = ngram_set(values, owners, sizes[owners])
    answer_lengths = np.diff(answers.offsets)
    return DeconIndex(
        names=[(item.set, item.id) for item in chosen],
        ngrams=grams,
        questions=question_tables(grams, config.question_ngram, lengths),
        answers=part_tables(answers, config.answer_ngram, answer_lengths > config.short_answer),
        passages=part_tables(passages, config.passage_ngram, np.ones(len(chosen), bool)),
        short=short_answers(questions, answers, passages),
        question_ngrams=np.bincount(grams.evals, minlength=len(chosen)),
        answer_tokens=different_values(answers),
        duplicates=len(read) - len(different),
        too_short=Counter(item.set for item, keep in zip(different, enough, strict=True) if not keep),
        unreachable=int((lengths < config.question_ngram).sum()),
    )


def stripped(item: Eval, config: DeconOptions) -> Eval:
    """The eval without the parts that are not asked for."""
    return replace(item, answer=item.answer if config.answers else "", passage=item.passage if config.passages else "")


def long_enough(items: list[Eval], config: DeconOptions) -> NDArray[np.bool_]:
    """Which evals have a question and enough tokens and different words in all parts together."""
    together = tokens_of(Texts.of([f"{e.passage} {e.question} {e.answer}" for e in items]), config.tokens)
    owners = np.repeat(np.arange(len(items)), np.diff(together.offsets))
    counted = owners[~is_space(config.tokens)(together.values)]
    tokens = np.bincount(counted, minlength=len(items))
    has_question = np.diff(tokens_of(Texts.of([item.question for item in items]), "words").offsets) > 0
    words = different_values(TokenTable(together.words.hashes, together.words.offsets, together.words))
    return (tokens >= config.min_eval_tokens) & (words >= config.min_eval_words) & has_question


def question_tables(grams: NgramSet, size: int, lengths: Ints) -> QuestionIndex:
    """The tables of questions, with decon's weights."""
    frequencies = grams.frequencies()
    count = len(lengths)
    owners = np.argsort(grams.evals, kind="stable").astype(np.int64)
    bitmap = grams.bitmaps.get(size, np.zeros(1, np.uint8))  # no question is long enough: nothing is found
    tables = QuestionIndex(
        hashes=grams.hashes,
        slots=grams.slots,
        bitmap=bitmap,
        starts=grams.starts,
        evals=grams.evals,
        ngrams=np.repeat(np.arange(len(grams)), frequencies),
        idf=np.zeros(len(grams)),
        hot=frequencies > max(HOT, 2 * int(np.sqrt(count))),
        eval_starts=offsets_of(np.bincount(grams.evals, minlength=count)),
        eval_pairs=owners,
        sums=np.zeros(count),
        tokens=lengths,
    )
    return with_weights(tables, np.log(count / frequencies))


def with_weights(questions: QuestionIndex, idf: Floats) -> QuestionIndex:
    """The tables with these weights of n-grams."""
    # added up one after the other in the order of eval_pairs, as the scan does: a whole match is exactly 1
    return questions._replace(idf=idf, sums=added_up(questions.evals, idf[questions.ngrams], len(questions.sums)))


def part_tables(tokens: TokenTable, size: int, wanted: NDArray[np.bool_]) -> EvalPart:
    """The n-grams of answers or passages, for the evals that are wanted."""
    lengths = np.diff(tokens.offsets)
    values, owners, _ = all_windows(tokens.values, tokens.offsets, np.full(len(lengths), size))
    values, owners = values[wanted[owners]], owners[wanted[owners]]
    owners, values = unique_pairs(owners, values)
    _, kind, frequencies = np.unique(values, return_inverse=True, return_counts=True)
    idf = np.log(len(lengths) / frequencies)[kind]
    return EvalPart(
        starts=offsets_of(np.bincount(owners, minlength=len(lengths))),
        hashes=values,
        idf=idf,
        sums=added_up(owners, idf, len(lengths)),
        tokens=lengths,
    )


def short_answers(questions: TokenTable, answers: TokenTable, passages: TokenTable) -> ShortAnswers:
    """The answers as sequences, and what each is worth: 1 if the idf of its different tokens adds up to something.

    A token's frequency counts the questions, answers and passages that have it, as in decon.
    """
    count = len(answers.offsets) - 1
    by_part = [different_pairs(tokens) for tokens in (questions, answers, passages)]
    every = np.concatenate([values for _, values in by_part])
    kinds, frequencies = np.unique(every, return_counts=True)
    owners, values = by_part[1]
    idf = np.log(count / frequencies)[np.searchsorted(kinds, values)]
    shares = (added_up(owners, idf, count) > 0).astype(np.float64)
    return ShortAnswers(answers.offsets, answers.values, shares)


def different_pairs(tokens: TokenTable) -> tuple[Ints, NDArray[np.uint64]]:
    """Every different token of each text: the text and the token."""
    return unique_pairs(np.repeat(np.arange(len(tokens.offsets) - 1), np.diff(tokens.offsets)), tokens.values)


def different_values(tokens: TokenTable) -> Ints:
    """How many different tokens each text has."""
    return np.bincount(different_pairs(tokens)[0], minlength=len(tokens.offsets) - 1)


def added_up(owners: NDArray[np.integer[Any]], values: Floats, count: int) -> Floats:
    """The sum of the values of each owner (numpy makes integers of no values at all)."""
    return np.bincount(owners, values, minlength=count).astype(np.float64)


def offsets_of(counts: Ints) -> Ints:
    """Where each group begins, and the end of the last."""
    return np.concatenate([[0], np.cumsum(counts)])
