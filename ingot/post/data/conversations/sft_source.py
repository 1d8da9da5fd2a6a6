"""The steps of `sft`: conversations of a store in an endless mixture, a number of them or of their tokens a step."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ingot.post.data.conversations.conversation_store import ConversationStore
from ingot.post.data.conversations.mixed_pool import MixedPool
from ingot.post.data.conversations.sequences import PoolSource, describe_pass
from ingot.post.sft_config import SftConfig
from ingot.tokens.batch import TokenSequence
from ingot.tokens.packing import best_fit_decreasing

LOOKED_AT = 8  # steps that the first line is an average of
FEW_UPDATES = 50  # a pass, below which a smaller batch is worth a thought


class ConversationSource(PoolSource):
    """Steps of a fixed number of conversations, or of as many as have `batch_tokens` together.

    Batches depend on nothing that training changes, so a thread makes those of coming steps.
    """

    ahead = True

    def __init__(self, store: ConversationStore, pool: MixedPool, config: SftConfig, seed: int) -> None:
        super().__init__(store, config.batch_conversations, config.sequence_length, config.micro_batch_tokens, seed)
        self.store, self.mixture, self.batch_tokens = store, pool, config.batch_tokens
        self._firsts = [0]  # the first item of each step that is known

    @property
    def longest(self) -> int:
        return int(np.diff(self.store.starts).max()) - 1

    def steps_of(self, passes: float) -> int:
        items = math.ceil(passes * self.mixture.size)
        if self.batch_tokens is None:
            return math.ceil(items / self.count)
        steps = 0
        while self._first(steps) < items:
            steps += 1
        return steps

    def draw(self, step: int) -> list[Sequence[TokenSequence]]:
        return [self.groups[index] for index in self.indices(step)]

    def indices(self, step: int) -> list[int]:
        """Which conversations a step has."""
        if self.batch_tokens is None:
            first, last = step * self.count, (step + 1) * self.count
        else:
            first, last = self._first(step), self._first(step + 1)
        return [self.mixture[item] for item in range(first, last)]

    def _first(self, step: int) -> int:
        """The first item of a step whose size is in tokens."""
        assert self.batch_tokens is not None
        while len(self._firsts) <= step:
            self._firsts.append(self._fill(self._firsts[-1], self.batch_tokens))
        return self._firsts[step]

    def _fill(self, first: int, tokens: int) -> int:
        """The first item that does not fit any more; one always does."""
        item, used = first, 0
        while item == first or used + self.store.length(self.mixture[item]) <= tokens:
            used += self.store.length(self.mixture[item])
            item += 1
        return item

    def describe(self, steps: int) -> list[str]:
        """What a step and a pass are, for the screen; with advice where a pass has few updates."""
        looked = range(min(LOOKED_AT, steps))
        drawn = [self.draw(step) for step in looked]
        lengths = [[len(group[0].tokens) - 1 for group in groups] for groups in drawn]
        conversations = sum(map(len, lengths)) / len(looked)
        tokens = sum(map(sum, lengths)) / len(looked)
        learnt = sum(sum(group[0].streams["weight"][1:]) for groups in drawn for group in groups) / len(looked)
        rows = sum(len(best_fit_decreasing(each, self.capacity)) for each in lengths) / len(looked)
        updates = self.mixture.size / conversations
        content = f"{self.mixture.size:,} conversations"
        lines = [
            f"a step: {conversations:,.0f} conversations, {tokens:,.0f} tokens of which {learnt:,.0f} are learnt, packed into "
            f"{rows:,.1f} rows of {self.capacity:,} ({tokens / rows / self.capacity:.0%} full)",
            describe_pass(content, self.mixture.in_a_pass(self.store.tokens_by_source), updates, steps),
        ]
        if updates < FEW_UPDATES:
            option = "batch_conversations" if self.batch_tokens is None else "batch_tokens"
            lines.append(f"few steps a pass: a smaller {option} gives more of them, each from fewer conversations")
        return lines
