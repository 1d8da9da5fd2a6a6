"""Structured output: masks that hold sampling to a regular expression or a JSON schema."""
