"""Rotary positions, and their extensions to longer texts."""
