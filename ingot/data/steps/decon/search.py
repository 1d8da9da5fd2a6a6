"""CPU kernels of decon's search for evals in a document.

    i = 0
    while there is an n-gram at i:
        in no eval        i += sample_every
        hot               i += 1
        otherwise         the evals that have it are the active ones; go left, then right, one token at a time:
                            an active eval has the n-gram there and had not matched it yet: its misses become 0
                            … has it, but had matched it before: nothing changes
                            … does not have it: one miss more; at `max_misses` it leaves
                          until none is active or the document ends; i = one behind the last position to the right

A cluster gives, for each eval that was active at its start, the set of matched n-grams and the first and last position of
one. Q is the idf of that set over the idf of the question. Then the answer is looked for behind the question, the
passage before it (A and P).

Invariant: equal to the plain Python of tests/data/decontaminate/oracle.py on every input.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ingot.data.contamination.ngrams import find, window_hash
from ingot.data.native import kernel, loop
from ingot.data.steps.decon.index import DeconIndex, Ints
from ingot.data.steps.decon.options import STORED_QUESTION_SHARE, DeconOptions
from ingot.data.steps.decon.tokens import TokenTable

# columns of what the scan writes for each match
DOCUMENT, EVAL, LEFT, RIGHT, MATCHED, ANSWER_START, ANSWER_END, PASSAGE_START, PASSAGE_END, COLUMNS = range(10)


@loop
def _position(values, first, last, wanted) -> Any:  # type: ignore[no-untyped-def]
    """Where `wanted` is in the ascending values[first:last], or -1."""
    while first < last:
        middle = (first + last) // 2
        if values[middle] < wanted:
            first = middle + 1
        else:
            last = middle
    return first


@loop
def _extend(  # type: ignore[no-untyped-def]
    tokens, begin, total, hit, step, size, most, q, stamp, marks, members, count, order, misses, edges, sums
) -> Any:
    """Go from the n-gram at `hit` in one direction; edges[k] follows the last match of member k. Gives where it ended."""
    alive = count
    for k in range(count):
        order[k] = k
        misses[k] = 0
        edges[k] = hit
    at = hit
    while alive > 0 and 0 <= at + step < total:
        at += step
        ngram = find(window_hash(tokens, begin + at, size), q.slots, q.bitmap, q.hashes)
        slot = 0
        while slot < alive:
            k = order[slot]
            found = False
            if ngram >= 0:
                pair = _position(q.evals, q.starts[ngram], q.starts[ngram + 1], members[k])
                found = pair < q.starts[ngram + 1] and q.evals[pair] == members[k]
                if found:
                    edges[k] = at
                    if marks[pair] != stamp:
                        marks[pair] = stamp
                        misses[k] = 0
                        sums[k] += q.idf[ngram]
            if not found:
                misses[k] += 1
                if misses[k] >= most:
                    alive -= 1
                    order[slot] = order[alive]
                    continue
            slot += 1
    return at


@loop
def _question(number, q, marks, stamp) -> Any:  # type: ignore[no-untyped-def]
    """The idf of the n-grams of an eval that are marked, in the order in which its sum was made, and their number."""
    total = 0.0
    matched = 0
    for index in range(q.eval_starts[number], q.eval_starts[number + 1]):
        pair = q.eval_pairs[index]
        if marks[pair] == stamp:
            total += q.idf[q.ngrams[pair]]
            matched += 1
    return total, matched


@loop
def _share(tokens, first, last, step, size, most, number, part, seen, stamp, outer) -> Any:  # type: ignore[no-untyped-def]
    """Share of a part's n-grams at the positions first, first + step, … before `last`; `outer` gets the outermost matches.

    After a match, more than `most` misses in a row end the search.
    """
    begin, end = part.starts[number], part.starts[number + 1]
    misses = 0
    at = first
    while (at < last) if step > 0 else (at > last):
        value = window_hash(tokens, at, size)
        index = _position(part.hashes, begin, end, value)
        if index < end and part.hashes[index] == value:
            seen[index] = stamp
            misses = 0
            if outer[0] < 0:
                outer[0] = outer[1] = at
            outer[0] = min(outer[0], at)
            outer[1] = max(outer[1], at)
        elif outer[0] >= 0:
            misses += 1
            if misses > most:
                break
        at += step
    total = 0.0
    for index in range(begin, end):
        if seen[index] == stamp:
            total += part.idf[index]
    return total / part.sums[number] if part.sums[number] > 0 else 0.0


@loop
def _exact(tokens, first, last, stop, number, short) -> Any:  # type: ignore[no-untyped-def]
    """Where the answer of an eval begins between `first` and `last`, or -1; it may reach on to `stop`."""
    begin = short.starts[number]
    length = short.starts[number + 1] - begin
    for at in range(first, last):
        if at + length > stop:
            break
        same = True
        for index in range(length):
            if tokens[at + index] != short.tokens[begin + index]:
                same = False
                break
        if same:
            return at
    return -1


@kernel
def _scan(tokens, offsets, q, answers, passages, short, o, capacity, matches_at, shares) -> Any:  # type: ignore[no-untyped-def]
    """Every match of every document; the number of them, also of those beyond `capacity`."""
    most_evals = 1
    for ngram in range(len(q.hashes)):
        if not q.hot[ngram]:
            most_evals = max(most_evals, q.starts[ngram + 1] - q.starts[ngram])
    marks = np.zeros(len(q.evals), np.int32)
    answer_seen = np.zeros(len(answers.hashes), np.int32)
    passage_seen = np.zeros(len(passages.hashes), np.int32)
    members, order = np.empty(most_evals, np.int32), np.empty(most_evals, np.int32)
    misses, sums = np.empty(most_evals, np.int32), np.empty(most_evals)
    lefts, rights = np.empty(most_evals, np.int64), np.empty(most_evals, np.int64)
    outer = np.empty(2, np.int64)
    stamp = np.int32(0)
    tried = np.int32(0)
    matches = 0
    size = o[0]
    for document in range(len(offsets) - 1):
        begin, stop = offsets[document], offsets[document + 1]
        total = stop - begin - size + 1
        if stop - begin < 2 * size:
            continue
        at = 0
        while at < total:
            ngram = find(window_hash(tokens, begin + at, size), q.slots, q.bitmap, q.hashes)
            if ngram < 0:
                at += o[3]
                continue
            if q.hot[ngram]:
                at += 1
                continue
            stamp += np.int32(1)
            count = q.starts[ngram + 1] - q.starts[ngram]
            for k in range(count):
                members[k] = q.evals[q.starts[ngram] + k]
                marks[q.starts[ngram] + k] = stamp
                sums[k] = q.idf[ngram]
            _extend(
                tokens, begin, total, at, -1, size, o[4], q, stamp, marks, members, count, order, misses, lefts, sums
            )
            end = _extend(
                tokens, begin, total, at, 1, size, o[4], q, stamp, marks, members, count, order, misses, rights, sums
            )
            for k in range(count):
                number = members[k]
                if sums[k] < (STORED_QUESTION_SHARE - 1e-9) * q.sums[number] or q.sums[number] <= 0:
                    continue
                total_idf, matched = _question(number, q, marks, stamp)
                if matches < capacity:
                    tried += np.int32(1)
                    left, right = lefts[k], rights[k]
                    row = matches_at[matches]
                    row[DOCUMENT] = document
                    row[EVAL] = number
                    row[LEFT] = left
                    row[RIGHT] = right + size - 1
                    row[MATCHED] = matched
                    row[ANSWER_START] = row[ANSWER_END] = row[PASSAGE_START] = row[PASSAGE_END] = -1
                    shares[matches, 0] = total_idf / q.sums[number]
                    # repeats at its ends make a match longer than the question: the answer may begin before the end
                    excess = max(0, right + size - left - q.tokens[number])
                    after = begin + max(0, right + size - 1 - excess) + 1
                    length = answers.tokens[number]
                    if length == 0:
                        shares[matches, 1] = np.nan
                    elif length <= o[5]:
                        found = _exact(tokens, after, min(after + o[6], stop), stop, number, short)
                        shares[matches, 1] = short.shares[number] if found >= 0 else 0.0
                        if found >= 0:
                            row[ANSWER_START] = found - begin
                            row[ANSWER_END] = found - begin + length - 1
                    else:
                        last = min(after + max(2 * length, o[7]), stop) - o[1] + 1
                        outer[0] = -1
                        shares[matches, 1] = _share(
                            tokens, after, last, 1, o[1], stop, number, answers, answer_seen, tried, outer
                        )
                        if outer[0] >= 0:
                            row[ANSWER_START] = outer[0] - begin
                            row[ANSWER_END] = outer[1] - begin + o[1] - 1
                    length = passages.tokens[number]
                    if length == 0:
                        shares[matches, 2] = np.nan
                    else:
                        window_end = max(0, left - 1)
                        window_start = max(0, window_end - max(2 * length, o[8]))
                        outer[0] = -1
                        shares[matches, 2] = _share(
                            tokens,
                            begin + window_end - o[2],
                            begin + window_start - 1,
                            -1,
                            o[2],
                            o[9],
                            number,
                            passages,
                            passage_seen,
                            tried,
                            outer,
                        )
                        if outer[0] >= 0:
                            row[PASSAGE_START] = outer[0] - begin
                            row[PASSAGE_END] = outer[1] - begin + o[2] - 1
                matches += 1
            at = max(at, end + 1)
    return matches


@dataclass(frozen=True)
class Clusters:
    """Matches of evals in documents: tokens (inclusive, from the start of the document) and shares found."""

    matches_at: Ints  # a row for each match, with the columns named above
    shares: NDArray[np.float64]  # question, answer, passage; nan: the eval has no such part

    def __len__(self) -> int:
        return len(self.matches_at)


def clusters(tokens: TokenTable, index: DeconIndex, config: DeconOptions) -> Clusters:
    """Every match with a question share that is worth storing."""
    options = np.array(
        [
            *(config.question_ngram, config.answer_ngram, config.passage_ngram, config.sample_every, config.max_misses),
            *(config.short_answer, config.answer_window, config.long_answer_window, config.passage_window),
            config.passage_misses,
        ],
        np.int64,
    )
    capacity = 1024
    while True:
        matches_at, shares = np.empty((capacity, COLUMNS), np.int64), np.empty((capacity, 3))
        tables = (index.questions, index.answers, index.passages, index.short)
        count = _scan(tokens.values, tokens.offsets, *tables, options, capacity, matches_at, shares)
        if count <= capacity:
            break
        capacity = count
    return Clusters(matches_at[:count], shares[:count])
