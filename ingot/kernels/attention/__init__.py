"""Attention over pages in sampling: which keys a token sees, and how keys and values are written."""
