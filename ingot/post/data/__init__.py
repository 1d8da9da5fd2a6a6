"""Data of post-training: conversations, preference pairs, filters."""
