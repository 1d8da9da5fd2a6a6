"""Drops conversations with a thinking trace that is not whole: a model would learn to break off, or to think of nothing.

    unclosed      <think> without </think>: the writer ran into its limit
    stray         a tag of thinking inside the answer or inside the trace
    empty         a trace without a word, where the conversation has others
    unanswered    a trace behind which neither an answer nor a call follows

OLMo 3 keeps only generations of the form <think>…</think>answer (open-instruct, filter_cots.py; arXiv 2512.13961).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import Field

from ingot.post.data.conversations.conversation_filter import ConversationFilter

if TYPE_CHECKING:
    from ingot.post.data.conversations.conversation import Conversation
    from ingot.tokens.chat import Message

TAGS = ("<think>", "</think>")


class IncompleteThoughtsFilter(ConversationFilter):
    """Thinking traces that are not closed, empty, or without an answer."""

    empty: bool = Field(
        True, description="an empty trace drops the conversation too, unless its row is of the mode without thinking"
    )
    required: bool = Field(False, description="a conversation without any trace is dropped")

    def reason(self, conversation: Conversation) -> str | None:
        traced = any(message.thinking is not None for message in conversation.messages)
        if not traced:
            stray = any(tag in message.content for message in conversation.answers for tag in TAGS)
            return "a stray tag of thinking" if stray else "no thinking trace" if self.required else None
        found = (self._of(message) for message in conversation.answers)
        return next(filter(None, found), None)

    def _of(self, message: Message) -> str | None:
        if message.problems:
            return message.problems[0]
        if any(tag in text for text in (message.thinking or "", message.content) for tag in TAGS):
            return "a stray tag of thinking"
        if self.empty and message.thinking is not None and not message.thinking.strip():
            return "an empty thinking trace"
        if message.thinking is not None and not message.content.strip() and not message.tool_calls:
            return "a thinking trace without an answer"
        return None
