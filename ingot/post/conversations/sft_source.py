"""The steps of `sft`: conversations of a store in an endless mixture, a number of them or of their tokens a step."""

from __future__ import annotations

from collections.abc import Sequence

from ingot.post.conversations.conversation_store import ConversationStore
from ingot.post.conversations.mixed_pool import MixedPool
from ingot.post.conversations.sequences import PoolSource
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

    def draw(self, step: int) -> list[Sequence[TokenSequence]]:
        return [self.groups[index] for index in self.indices(step)]

    def indices(self, step: int) -> list[int]:
        """Which conversations a step has."""
        if self.batch_tokens is None:
            first, last = step * self.count, (step + 1) * self.count
        else:
            while len(self._firsts) <= step + 1:
                self._firsts.append(self._fill(self._firsts[-1], self.batch_tokens))
            first, last = self._firsts[step], self._firsts[step + 1]
        return [self.mixture[item] for item in range(first, last)]

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
        lines = [
            f"a step: {conversations:,.0f} conversations, {tokens:,.0f} tokens of which {learnt:,.0f} are learnt, packed into "
            f"{rows:,.1f} rows of {self.capacity:,} ({tokens / rows / self.capacity:.0%} full)",
            f"a pass: {self.mixture.size:,} conversations, {updates:,.0f} updates; {steps:,} steps are "
            f"{steps / updates:.2g} passes",
        ]
        if updates < FEW_UPDATES:
            option = "batch_conversations" if self.batch_tokens is None else "batch_tokens"
            lines.append(f"few updates a pass: a smaller {option} gives more of them, each from fewer conversations")
        return lines
