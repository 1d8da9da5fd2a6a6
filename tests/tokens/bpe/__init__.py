"""Tests of the fast encoder."""
