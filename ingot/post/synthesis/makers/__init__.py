"""Makers of conversations, one a file (post/synthesis/maker.py)."""
