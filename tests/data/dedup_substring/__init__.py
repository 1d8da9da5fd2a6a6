"""Tests of substring_dedup."""
