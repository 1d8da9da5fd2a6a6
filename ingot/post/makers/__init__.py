"""Makers of conversations, one a file (post/maker.py)."""
