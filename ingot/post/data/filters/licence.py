"""Drops conversations whose row names a licence that is not allowed.

The licence is a column of the row: an SPDX expression or the hub's spelling of one (`cc-by-4.0`); case does not count. OLMo 3
leaves out data of unclear or non-commercial licences (arXiv 2512.13961).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import Field

from ingot.data.steps.licence import PERMISSIVE, parts_of
from ingot.post.data.conversations.conversation_filter import ConversationFilter

if TYPE_CHECKING:
    from ingot.post.data.conversations.conversation import Conversation


class LicenceFilter(ConversationFilter):
    """Licences that are not allowed, by a column of the row."""

    columns: tuple[str, ...] = Field(
        ("licence", "license"), description="columns that name the licence; the first that is there"
    )
    allowed: tuple[str, ...] = Field((), description="licences that stay")
    permissive: bool = Field(True, description="the usual permissive licences stay too")
    unknown: Literal["keep", "drop"] = Field("drop", description="rows that name none")

    def reason(self, conversation: Conversation) -> str | None:
        named = next((conversation.row[name] for name in self.columns if conversation.row.get(name)), None)
        if not isinstance(named, str):
            return "no licence" if self.unknown == "drop" else None
        allowed = {each.lower() for each in (*self.allowed, *(PERMISSIVE if self.permissive else ()))}
        any_is_enough, parts = parts_of(named)
        fine = (any if any_is_enough else all)(part.lower() in allowed for part in parts)
        return None if fine else f"licence {named}"
