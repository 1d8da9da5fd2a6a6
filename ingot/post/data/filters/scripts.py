"""Drops conversations in which the assistant writes much in another script: the share of its letters that are of none allowed.

Models trained on several languages slip from one into another while they think. Letters are told apart by the first word of their
Unicode name (LATIN SMALL LETTER A, CJK UNIFIED IDEOGRAPH-4E00), so a script is named as Unicode names it. Digits and signs count
for nothing; Greek is allowed, because formulas are full of it. OLMo 3 removes traces by their share of Chinese characters
(open-instruct, filter_chinese.py); 0.05 is our choice, so that a quoted word stays.
"""

from __future__ import annotations

import unicodedata
from collections import Counter
from functools import cache
from typing import TYPE_CHECKING

from pydantic import Field

from ingot.post.data.conversations.conversation_filter import ConversationFilter

if TYPE_CHECKING:
    from ingot.post.data.conversations.conversation import Conversation


class ScriptsFilter(ConversationFilter):
    """Too many letters of scripts that are not allowed."""

    allowed: tuple[str, ...] = Field(
        ("LATIN", "GREEK"), min_length=1, description="scripts, as Unicode names its letters"
    )
    max_share: float = Field(0.05, ge=0, le=1, description="largest share of letters of other scripts, in one message")

    def reason(self, conversation: Conversation) -> str | None:
        allowed = {name.upper() for name in self.allowed}
        for message in conversation.answers:
            scripts = Counter[str]()
            for character, times in Counter(f"{message.thinking or ''}{message.content}").items():
                if script := script_of(character):
                    scripts[script] += times
            others = {name: times for name, times in scripts.items() if name not in allowed}
            if scripts and (share := sum(others.values()) / scripts.total()) > self.max_share:
                return f"{share:.0%} of the letters are {max(others, key=others.__getitem__)}"
        return None


@cache
def script_of(character: str) -> str | None:
    """The script of a letter; None for what is none, or has no script of its own (mathematical letters, ª)."""
    if not character.isalpha():
        return None
    name = unicodedata.name(character, "").split(" ")
    return (
        None if name[0] in ("MATHEMATICAL", "FEMININE", "MASCULINE", "MODIFIER", "DOUBLE-STRUCK", "SCRIPT") else name[0]
    )
