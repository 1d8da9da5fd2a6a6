"""Copies: whole documents, paragraphs and lines, near duplicates, repeated substrings."""
