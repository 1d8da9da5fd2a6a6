"""Tests of ingot/evals."""
