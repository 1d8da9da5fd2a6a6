"""Filters of conversations: why one should not be learnt from. One filter a file of filters/, found by the file's name.

    filters: [incomplete_thoughts, {filter: scripts, max_share: 0.05}, my_filters.py:TooPolite]

A filter looks at one conversation and gives a reason to drop it, or None. `curate` compares conversations with one another and
with eval sets, by the steps of data curation. What each filter dropped is counted in the stage's summary, with examples in
dropped.jsonl of its folder.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, ClassVar

from pydantic import Field

from ingot.workspace.kinds import Kind, Kinds

if TYPE_CHECKING:
    from ingot.post.data.conversations.conversation import Conversation


class ConversationFilter(Kind, ABC):
    """Options of a filter, and its reason to drop a conversation."""

    key: ClassVar[str] = "filter"
    package: ClassVar[str] = "ingot.post.data.filters"

    filter: str = Field(default="", description="name of the filter, or file.py:Name for one of your own")

    @abstractmethod
    def reason(self, conversation: Conversation) -> str | None:
        """Why the conversation is dropped, in a few words with what was found; None if it stays."""

    @property
    def short_name(self) -> str:
        """Its name in counts: of `file.py:Name`, what is behind the colon."""
        return self.filter.rpartition(":")[2]


FILTERS = Kinds(ConversationFilter, "conversation filter")  # type: ignore[type-abstract]
