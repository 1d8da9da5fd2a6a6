"""Tests of ingot/envs/verifiers."""
