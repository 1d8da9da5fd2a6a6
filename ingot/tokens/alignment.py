"""Groups of tokens of two tokenizers that spell the same bytes.

Both sides are lists of byte ends: token i covers the bytes from ends[i − 1] to ends[i]. The one that ends earlier advances, and a
group closes where both end at the same byte (GOLD, Patiño et al. 2025). So groups are the smallest runs of tokens with equal
bytes on both sides, and by the chain rule

    log p(bytes of the group | all before) = Σ over the group's tokens of log p(token | all before)

is a number that both models have. For "hello": hel|lo and hello are one group; hel|lo and h|el|lo are two. The log-probabilities
of a whole text are conserved: the sum over groups is the sum over tokens.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate

from ingot.tokens.tokenizer import Tokenizer


@dataclass(frozen=True)
class TokenGroup:
    """Tokens start to stop of one side, which spell what tokens other_start to other_stop of the other side spell."""

    start: int
    stop: int
    other_start: int
    other_stop: int

    def moved(self, by: int, other_by: int) -> TokenGroup:
        """The same group where each side has so many tokens before it."""
        return TokenGroup(self.start + by, self.stop + by, self.other_start + other_by, self.other_stop + other_by)


def byte_ends(tokenizer: Tokenizer, tokens: Iterable[int]) -> list[int]:
    """The end of each token in bytes; a special token counts as its name. A number that is no token has no bytes."""
    return list(accumulate(len(tokenizer.bytes_of_id.get(token, b"")) for token in tokens))


def align(ends: Sequence[int], other_ends: Sequence[int]) -> list[TokenGroup]:
    """The smallest groups, in order. What comes after the last byte at which both sides end is in none."""
    groups, begin, other_begin, i, j, done = list[TokenGroup](), 0, 0, 0, 0, 0
    while i < len(ends) and j < len(other_ends):
        end, other_end = ends[i], other_ends[j]
        i += end <= other_end
        j += other_end <= end
        if end == other_end > done:  # tokens without bytes belong to what they begin
            groups.append(TokenGroup(begin, i, other_begin, j))
            begin, other_begin, done = i, j, end
    return groups
