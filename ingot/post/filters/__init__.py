"""Filters of conversations, one a file (post/conversation_filter.py)."""
