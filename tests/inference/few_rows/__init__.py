"""Tests of ingot/inference/few_rows."""
