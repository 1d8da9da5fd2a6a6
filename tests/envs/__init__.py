"""Tests of ingot/envs."""
