"""Runs programs against tests that they cannot read."""
