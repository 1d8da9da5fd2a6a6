"""Tests of ingot/tokens."""
