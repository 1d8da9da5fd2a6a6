"""Drops conversations on topics that should not be learnt, by words, or keeps only those on some.

A word is found as a whole word, whatever its case; `*` at its end stands for any ending. By a classifier instead of by words:

    {filter: curate, steps: [{step: classify, model: TOPICS, label_column: topic, keep: [science, code]}]}
"""

from __future__ import annotations

import re
from functools import cached_property
from typing import TYPE_CHECKING, Literal, Self

from pydantic import Field, model_validator

from ingot.post.data.conversations.conversation_filter import ConversationFilter

if TYPE_CHECKING:
    from ingot.post.data.conversations.conversation import Conversation


class TopicsFilter(ConversationFilter):
    """Topics by words that name them."""

    without: tuple[str, ...] = Field((), description="conversations with one of these words are dropped")
    only: tuple[str, ...] = Field((), description="conversations with none of these words are dropped")
    of: Literal["conversation", "question"] = Field("conversation", description="where the words are looked for")

    @model_validator(mode="after")
    def _something(self) -> Self:
        if not self.without and not self.only:
            raise ValueError("give words in `without` or in `only`")
        return self

    @cached_property
    def _patterns(self) -> tuple[re.Pattern[str] | None, re.Pattern[str] | None]:
        return _words(self.without), _words(self.only)

    def reason(self, conversation: Conversation) -> str | None:
        text = conversation.question if self.of == "question" else conversation.text
        without, only = self._patterns
        if without is not None and (found := without.search(text)):
            return f"on the topic {found[0]!r}"
        return "on none of the topics" if only is not None and not only.search(text) else None


def _words(words: tuple[str, ...]) -> re.Pattern[str] | None:
    spelt = [re.escape(word).replace(r"\*", r"\w*") for word in words]
    return re.compile(rf"\b(?:{'|'.join(spelt)})\b", re.IGNORECASE) if words else None
