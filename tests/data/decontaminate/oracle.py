"""decon in plain Python: sets, dictionaries and loops, straight from the description. Slow, and only for tests.

Tokens are anything that can be compared. An eval is (question, answer, passage), each a list of tokens.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass

from ingot.data.contamination.words import LETTER, WordRule, character_table

Tokens = list[str]
EvalParts = tuple[Tokens, Tokens, Tokens]


@dataclass(frozen=True)
class Options:
    question: int = 5
    answer: int = 3
    passage: int = 4
    every: int = 10
    misses: int = 11
    short_answer: int = 3
    answer_window: int = 50
    long_answer_window: int = 100
    passage_window: int = 100
    passage_misses: int = 2
    hot: int = 2000
    threshold: float = 0.8
    perfect_until: int = 20
    threshold_from: int = 50


@dataclass(frozen=True)
class Match:
    eval: int
    left: int
    right: int  # the last token
    question: float
    answer: float | None
    passage: float | None
    score: float
    flagged: bool


def word_list(text: str, rule: WordRule) -> list[str]:
    """The words of a text as strings."""
    table = character_table(rule)
    lower = "".join(chr(table[ord(character)] & ~LETTER or 32) for character in text)
    return [word for word in lower.split(" ") if word]


def ngrams(tokens: Tokens, n: int) -> list[tuple[str, ...]]:
    return [tuple(tokens[k : k + n]) for k in range(len(tokens) - n + 1)]


class Oracle:
    def __init__(self, evals: list[EvalParts], options: Options) -> None:
        self.evals, self.options = evals, options
        count = len(evals)
        self.questions = [
            set(ngrams(q, options.question)) if len(q) >= options.question else {tuple(q)} for q, _, _ in evals
        ]
        frequency = Counter(gram for grams in self.questions for gram in grams)
        self.idf = {gram: math.log(count / df) for gram, df in frequency.items()}
        self.hot = {gram for gram, df in frequency.items() if df > max(options.hot, 2 * int(math.sqrt(count)))}
        self.owners: dict[tuple[str, ...], set[int]] = {}
        for number, grams in enumerate(self.questions):
            for gram in grams:
                self.owners.setdefault(gram, set()).add(number)
        long = [a if len(a) > options.short_answer else [] for _, a, _ in evals]
        self.answers = [set(ngrams(a, options.answer)) for a in long]
        self.passages = [set(ngrams(p, options.passage)) for _, _, p in evals]
        self.answer_idf = self._idf(self.answers)
        self.passage_idf = self._idf(self.passages)
        token_frequency = Counter(token for parts in evals for part in parts for token in set(part))
        self.token_idf = {token: math.log(count / df) for token, df in token_frequency.items()}

    def _idf(self, sets: list[set[tuple[str, ...]]]) -> dict[tuple[str, ...], float]:
        frequency = Counter(gram for grams in sets for gram in grams)
        return {gram: math.log(len(sets) / df) for gram, df in frequency.items()}

    def matches(self, document: Tokens) -> list[Match]:
        """Every cluster's evals, without the two early exits; `flagged` has them."""
        o = self.options
        if len(document) < 2 * o.question:
            return []
        grams = ngrams(document, o.question)
        found: list[Match] = []
        at = 0
        while at < len(grams):
            if grams[at] not in self.owners:
                at += o.every
            elif grams[at] in self.hot:
                at += 1
            else:
                start = self.owners[grams[at]]
                matched = {number: {grams[at]} for number in start}
                lefts, _ = self.walk(grams, at, -1, matched)
                rights, end = self.walk(grams, at, 1, matched)
                found += [self.judged(document, n, matched[n], lefts[n], rights[n]) for n in sorted(start)]
                at = max(at, end + 1)
        return found

    def walk(
        self, grams: list[tuple[str, ...]], hit: int, step: int, matched: dict[int, set[tuple[str, ...]]]
    ) -> tuple[dict[int, int], int]:
        active = set(matched)
        misses = dict.fromkeys(active, 0)
        edges = dict.fromkeys(active, hit)
        at = hit
        while active and 0 <= at + step < len(grams):
            at += step
            owners = self.owners.get(grams[at], set())
            for number in sorted(active):
                if number in owners:
                    edges[number] = at
                    if grams[at] not in matched[number]:
                        matched[number].add(grams[at])
                        misses[number] = 0
                else:
                    misses[number] += 1
                    if misses[number] >= self.options.misses:
                        active.discard(number)
        return edges, at

    def judged(self, document: Tokens, number: int, matched: set[tuple[str, ...]], left: int, right: int) -> Match:
        o = self.options
        question, answer, passage = self.evals[number]
        whole = sum(self.idf[gram] for gram in self.questions[number])
        q = sum(self.idf[gram] for gram in matched) / whole if whole > 0 else 0.0
        last = right + o.question - 1
        excess = max(0, last - left + 1 - len(question))
        a = self.answer_share(document, number, max(0, last - excess) + 1) if answer else None
        p = self.passage_share(document, number, left) if passage else None
        score = self.score(q, a, p, len(self.questions[number]), len(set(answer)))
        length = len(question) + len(set(answer)) + len(passage)
        needed = self.needed(length, o.threshold)
        final = 1.0 if score > 1 - 1e-6 else score * o.threshold / needed
        enough = q >= self.needed(len(question), (o.threshold - 0.3) / 0.7) - 1e-6
        return Match(number, left, last, q, a, p, score, enough and final >= o.threshold)

    def answer_share(self, document: Tokens, number: int, after: int) -> float:
        o = self.options
        answer = self.evals[number][1]
        if len(answer) <= o.short_answer:
            for at in range(after, min(after + o.answer_window, len(document))):
                if document[at : at + len(answer)] == answer:
                    return 1.0 if sum(self.token_idf[token] for token in set(answer)) > 0 else 0.0
            return 0.0
        window = document[after : after + max(2 * len(answer), o.long_answer_window)]
        shared = self.answers[number] & set(ngrams(window, o.answer))
        whole = sum(self.answer_idf[gram] for gram in self.answers[number])
        return sum(self.answer_idf[gram] for gram in shared) / whole if whole > 0 else 0.0

    def passage_share(self, document: Tokens, number: int, left: int) -> float:
        o = self.options
        end = max(0, left - 1)
        start = max(0, end - max(2 * len(self.evals[number][2]), o.passage_window))
        shared: set[tuple[str, ...]] = set()
        misses = 0
        for at in range(end - o.passage, start - 1, -1):
            gram = tuple(document[at : at + o.passage])
            if gram in self.passages[number]:
                shared.add(gram)
                misses = 0
            elif shared:
                misses += 1
                if misses > o.passage_misses:
                    break
        whole = sum(self.passage_idf[gram] for gram in self.passages[number])
        return sum(self.passage_idf[gram] for gram in shared) / whole if whole > 0 else 0.0

    @staticmethod
    def score(q: float, a: float | None, p: float | None, grams: int, answer_tokens: int) -> float:
        sure = min(1.0, 0.5 + 0.5 * grams / 20)
        if a is not None and p is not None:
            sure_answer = min(1.0, 0.5 + 0.5 * answer_tokens / 4)
            lost = 0.7 * (1 - sure)
            answer_weight = 0.2 + lost / 2
            passage_weight = 0.1 + lost / 2 + answer_weight * (1 - sure_answer)
            total = 0.7 * sure * q + answer_weight * sure_answer * a + passage_weight * p
        elif a is not None:
            total = 0.75 * sure * q + (0.25 + 0.75 * (1 - sure)) * a
        elif p is not None:
            total = 0.85 * sure * q + (0.15 + 0.85 * (1 - sure)) * p
        else:
            total = q
        return min(total, 1.0)

    def needed(self, tokens: int, target: float) -> float:
        o = self.options
        if tokens <= o.perfect_until:
            return 1.0
        if tokens >= o.threshold_from:
            return target
        return 1 - (1 - target) * (tokens - o.perfect_until) / (o.threshold_from - o.perfect_until)
