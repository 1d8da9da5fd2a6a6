"""Tests of ingot/serve/openai: the official client against a server in this process."""
