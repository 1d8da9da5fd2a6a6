"""Tests of ingot/inference/quantised."""
