"""Tests of ingot/inference/weight_only."""
