"""Continues the training of a byte-level BPE tokenizer: more merges, learnt on new text, behind the old ones.

The new text is cut into words and encoded by the old merges. Then the most frequent pair of neighbouring tokens becomes a token,
again and again (Sennrich et al. 2016), ties going to the smaller ids, as `tokenizers` trains. Old merges come first in the list,
so they are made first: old ids keep their meaning, and a model's embedding only gets more rows (`ingot model grow
--tokenizer`). Old text may get fewer tokens than before, since the new merges apply to it as well.
"""

from __future__ import annotations

import heapq
import json
from collections import Counter, defaultdict
from collections.abc import Iterable
from itertools import pairwise
from typing import Any

from ingot.tokens.tokenizer import TOKENIZER_FILE, Tokenizer
from ingot.workspace.errors import ArtifactError

Pair = tuple[int, int]


def extend_tokenizer(
    tokenizer: Tokenizer, texts: Iterable[str], size: int, *, minimum_frequency: int = 2, longest_token: int = 64
) -> Tokenizer:
    """The tokenizer with up to `size` tokens in all; fewer if no pair occurs `minimum_frequency` times any more."""
    from tokenizers import Tokenizer as Backend

    state = json.loads(tokenizer.backend.to_str())
    if not tokenizer.byte_level or state["model"]["type"] != "BPE":
        raise ArtifactError(
            "only byte-level BPE tokenizers can be extended (GPT-2, Llama 3, Qwen, SmolLM, Ingot's own)",
            fix="train a new one with `ingot tokenizer`",
        )
    if size <= tokenizer.vocabulary_size:
        raise ArtifactError(
            f"the tokenizer already has {tokenizer.vocabulary_size:,} tokens",
            fix=f"ask for more than that, not {size:,}",
        )
    # Tokens that were added behind the vocabulary keep their ids only if the vocabulary, which now outgrows them, has them.
    names: dict[str, int] = tokenizer.backend.get_vocab(with_added_tokens=True)
    learner = _Learner(names, _words(tokenizer, texts), minimum_frequency, longest_token)
    learner.learn(size - tokenizer.vocabulary_size, tokenizer.vocabulary_size)
    state["model"]["vocab"] = dict(sorted(learner.names.items(), key=lambda item: item[1]))
    pairs_are_lists = not state["model"]["merges"] or isinstance(state["model"]["merges"][0], list)
    state["model"]["merges"] += [list(pair) if pairs_are_lists else " ".join(pair) for pair in learner.merges]
    text = json.dumps(state, ensure_ascii=False, indent=2)
    return Tokenizer(
        Backend.from_str(text), tokenizer.chat_template, tokenizer.to_files() | {TOKENIZER_FILE: f"{text}\n".encode()}
    )


def _words(tokenizer: Tokenizer, texts: Iterable[str]) -> Counter[tuple[int, ...]]:
    """How often each word occurs, as the ids that the old merges give."""
    backend, spelt = tokenizer.backend, Counter[str]()
    for text in texts:
        normal = text if backend.normalizer is None else backend.normalizer.normalize_str(text)
        spelt.update(word for word, _ in backend.pre_tokenizer.pre_tokenize_str(normal))
    words = Counter[tuple[int, ...]]()
    for word, times in spelt.items():
        words[tuple(token.id for token in backend.model.tokenize(word))] += times
    return words


class _Learner:
    """The words as ids, how often each pair of neighbours occurs, and in which words."""

    def __init__(self, names: dict[str, int], words: Counter[tuple[int, ...]], minimum: int, longest: int) -> None:
        self.names = dict(names)
        self.merges: list[tuple[str, str]] = []
        self._spelt: dict[int, str] = {id: name for name, id in names.items()}
        self._minimum, self._longest = minimum, longest
        self._words = [list(word) for word in words]
        self._times = list(words.values())
        self._counts: Counter[Pair] = Counter()
        self._where: defaultdict[Pair, set[int]] = defaultdict(set)
        for index in range(len(self._words)):
            self._count(index, self._times[index])
        self._heap = [(-count, pair) for pair, count in self._counts.items()]
        heapq.heapify(self._heap)

    def learn(self, tokens: int, next_id: int) -> None:
        """Make so many new tokens, with ids from `next_id` on."""
        last = next_id + tokens
        while next_id < last and self._heap:
            count, pair = heapq.heappop(self._heap)
            now = self._counts[pair]
            if -count != now:  # the count has changed since it was put there
                if now > 0:
                    heapq.heappush(self._heap, (-now, pair))
                continue
            if now < self._minimum:
                return
            left, right = (self._spelt[id] for id in pair)
            if len(left) + len(right) > self._longest:
                continue
            if left + right not in self.names:
                self.names[left + right], self._spelt[next_id] = next_id, left + right
                next_id += 1
            self.merges.append((left, right))
            self._merge(pair, self.names[left + right])

    def _merge(self, pair: Pair, id: int) -> None:
        changed: set[Pair] = set()
        for index in list(self._where[pair]):
            self._count(index, -self._times[index])
            word, merged, place = self._words[index], list[int](), 0
            while place < len(word):
                both = tuple(word[place : place + 2]) == pair
                merged.append(id if both else word[place])
                place += 2 if both else 1
            self._words[index] = merged
            changed |= self._count(index, self._times[index])
        for one in changed:
            heapq.heappush(self._heap, (-self._counts[one], one))

    def _count(self, index: int, times: int) -> set[Pair]:
        """Count the pairs of a word, or take them away again if `times` is negative."""
        pairs = list(pairwise(self._words[index]))
        for pair in pairs:
            self._counts[pair] += times
            (self._where[pair].add if times > 0 else self._where[pair].discard)(index)
        return set(pairs)


def new_tokens(before: Tokenizer, after: Tokenizer) -> dict[int, str]:
    """What tokens `after` has beyond `before`, by id; an error if an old token has another id there."""
    old: dict[str, int] = before.backend.get_vocab(with_added_tokens=True)
    new: dict[str, Any] = after.backend.get_vocab(with_added_tokens=True)
    moved = next((name for name, id in old.items() if new.get(name) != id), None)
    if moved is not None:
        raise ArtifactError(
            f"the token {moved!r} has another id in the other tokenizer, or is missing: it does not extend this one",
            fix="extend the model's own tokenizer: `ingot tokenizer extend`",
        )
    return {id: name for name, id in sorted(new.items(), key=lambda item: item[1]) if name not in old}
