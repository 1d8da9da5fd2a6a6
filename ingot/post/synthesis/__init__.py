"""Conversations made by models: rejection sampling, makers, thoughts that were cut."""
