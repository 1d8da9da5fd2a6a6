"""Checkpoints of a run in progress: written without stopping it, kept by policy, found and loaded again."""
