"""Verifiers: decide whether an answer is right, and say so as a number."""
