"""Filters of conversations, one a file (post/conversations/conversation_filter.py)."""
