"""Compares answers as mathematics."""
