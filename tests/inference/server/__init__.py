"""Tests of ingot/inference/server: the official client against a server in this process."""
