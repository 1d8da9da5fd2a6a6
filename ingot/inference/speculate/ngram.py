"""Drafts from the text itself: what followed the last few tokens when they occurred before (prompt look-up decoding).

The longest suffix of `longest` … `shortest` tokens that occurred earlier counts, at its latest occurrence; the draft is what
followed there. A copy that reaches the end of the text goes on with itself, so a text of any period is continued as long as
asked. Answers that quote the prompt (code edits, summaries, retrieval) repeat much; free prose does not.

Same idea: `prompt_lookup_num_tokens` of transformers, `ngram` of vLLM. They search the text at every step; here an index grows
with it: (longest − shortest + 1) entries per token, as many look-ups per draft.
"""

from __future__ import annotations

from collections.abc import Iterable
from weakref import WeakKeyDictionary

from ingot.inference.request import Request
from ingot.inference.speculate.config import Speculation


class NgramIndex:
    """A text, and for each n-gram in it the index of the token after its latest occurrence."""

    def __init__(self, longest: int, shortest: int) -> None:
        self.tokens: list[int] = []
        self._lengths = range(longest, shortest - 1, -1)
        self._after: dict[tuple[int, ...], int] = {}

    def extend(self, tokens: Iterable[int]) -> None:
        """The text goes on."""
        for token in tokens:
            after = len(self.tokens)
            for length in self._lengths:
                if length <= after:
                    self._after[tuple(self.tokens[after - length :])] = after
            self.tokens.append(token)

    def propose(self, count: int) -> list[int]:
        """`count` tokens that may come next, or none."""
        size = len(self.tokens)
        for length in self._lengths:
            after = self._after.get(tuple(self.tokens[size - length :])) if length <= size else None
            if after is not None:
                found = self.tokens[after : after + count]
                while len(found) < count:
                    found.append(found[after + len(found) - size])
                return found
        return []


class NgramDrafter:
    """An index for each request, made when the first draft is asked for."""

    def __init__(self, options: Speculation) -> None:
        self._options = options
        self._indices: WeakKeyDictionary[Request, NgramIndex] = WeakKeyDictionary()

    def propose(self, request: Request, count: int) -> list[int]:
        """At most `count` tokens that may follow the request's context."""
        if count == 0:
            return []
        index = self._indices.get(request)
        if index is None:
            index = self._indices[request] = NgramIndex(self._options.longest, self._options.shortest)
        index.extend(request.span(len(index.tokens), request.size))
        return index.propose(count)
