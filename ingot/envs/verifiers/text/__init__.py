"""Checks the text of an answer: its form, language, words, JSON."""
