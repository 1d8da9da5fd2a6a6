"""Attention to chosen keys: their choice, the attention, the indexer's losses."""
