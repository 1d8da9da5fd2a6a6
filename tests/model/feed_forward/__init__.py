"""Tests of the feed-forwards."""
