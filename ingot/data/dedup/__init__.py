"""Finds and removes copies: whole documents, paragraphs and lines, near duplicates, repeated substrings."""
