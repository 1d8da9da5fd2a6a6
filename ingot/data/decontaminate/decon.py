"""Decontamination as Ai2's decon does it, the tool behind Olmo 3: find, weigh, look around, ask more of short evals.

    decon_index.py   evals to tables          decon_scan.py   documents to matches          score.py   matches to a score

What is stored of a match does not depend on the thresholds: the shares of question, answer and passage, the score before
the rule on length, and the lengths. The rules do the rest, so another threshold computes nothing again.

Source: allenai/decon; Olmo 3, arXiv 2512.13961.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ingot.data.decontaminate.counting import ShardItem, load_counts, save_columns, save_counts
from ingot.data.decontaminate.decon_index import DeconIndex, build_index
from ingot.data.decontaminate.decon_scan import (
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
from ingot.data.decontaminate.matches import Found, Span, columns, flat_matches, joined, rule
from ingot.data.decontaminate.ngrams import scan
from ingot.data.decontaminate.score import Numbers, adjusted, combined, is_contaminated
from ingot.data.decontaminate.tokens import Tokens, tokens_of
from ingot.data.decontaminate.words import word_places
from ingot.data.step import Rule
from ingot.data.text.texts import Texts

if TYPE_CHECKING:
    import pyarrow

    from ingot.data.steps.decontaminate import DecontaminateStep

PARTS = ("question", "answer", "passage", "tokens", "question_tokens")


def annotate(index: DeconIndex, config: DecontaminateStep, texts: Texts) -> dict[str, pyarrow.Array]:
    """The columns of the step for these texts."""
    tokens = tokens_of(texts, config.tokens)
    found = clusters(tokens, index, config)
    evals = found.places[:, EVAL]
    question, answer, passage = found.shares.T
    score = combined(question, answer, passage, index.ngrams[evals], index.answer_tokens[evals])
    question_tokens = index.questions.tokens[evals]
    length = question_tokens + index.answer_tokens[evals] + index.passages.tokens[evals]

    order = np.lexsort((found.places[:, LEFT], evals, -score, found.places[:, DOCUMENT]))
    by_document: dict[int, list[int]] = {}
    seen = set()
    for row in order.tolist():
        key = tuple(found.places[row, [DOCUMENT, EVAL, LEFT]].tolist())
        if key not in seen:  # two clusters that reached the same eval at the same place: the better one
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
        best = found.places[rows[0]]
        places = word_places(texts, document, "cleaned")
        ranges = [
            (best[LEFT], best[RIGHT]),
            (best[ANSWER_START], best[ANSWER_END]),
            (best[PASSAGE_START], best[PASSAGE_END]),
        ]
        spans = [characters(tokens, document, places, first, last) for first, last in ranges if first >= 0]
        text = texts[document][slice(*spans[0])]
        result.append(Found(document, text, int(best[MATCHED]), joined(spans), matches))
    return columns(len(texts), result, PARTS)


def characters(tokens: Tokens, document: int, places: Any, first: int, last: int) -> Span:
    """The characters of the tokens first … last of a document: of the words that they belong to."""
    begin, word = tokens.offsets[document], tokens.words.offsets[document]
    start, end = tokens.word_of(begin + first) - word, tokens.word_of(begin + last) - word
    return int(places[start, 0]), int(places[end, 1])


def guilty_matches(config: DecontaminateStep, matches: pyarrow.StructArray) -> tuple[NDArray[np.int64], Numbers]:
    """Which matches reach the threshold for their length, and the final score of all."""
    score, question, tokens, question_tokens = (
        matches.field(name).to_numpy(zero_copy_only=False)
        for name in ("score", "question", "tokens", "question_tokens")
    )
    guilty = np.flatnonzero(is_contaminated(score, question, tokens, question_tokens, config))
    return guilty, adjusted(score, tokens, config)


def decide(config: DecontaminateStep, table: pyarrow.Table) -> list[Rule]:
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
    return [rule(table, broken, reasons)]


def count_shard(folder: Path, item: ShardItem, config: DecontaminateStep) -> dict[str, Any]:
    """In how many documents of a shard each n-gram of a question is."""
    tokens = tokens_of(Texts.of(item.shard.read(["text"]).column("text")), config.tokens)
    hits = scan(tokens.values, tokens.offsets, item.index(build_index, config).grams)
    documents = len(tokens.offsets) - 1
    save_counts(folder, hits.documents, hits.ids, documents)
    return {"documents": documents, "hits": len(hits)}


def match_shard(folder: Path, item: ShardItem, config: DecontaminateStep) -> dict[str, Any]:
    """The columns of a shard, with the weights that the counts of all shards give."""
    index = item.index(build_index, config)
    texts = Texts.of(item.shard.read(["text"]).column("text"))
    save_columns(folder, annotate(index.weighted(load_counts(item.counts, len(index.grams))), config, texts))
    return {"documents": len(texts)}
