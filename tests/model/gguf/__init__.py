"""Tests of ingot/model/gguf."""
