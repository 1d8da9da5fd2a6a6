"""Tests of ingot/inference."""
