"""Filters of conversations, one a file (post/data/conversations/conversation_filter.py)."""
