"""Tests of ingot/checkpoints/gguf."""
