"""Verifiers: is an answer right? Each is one file, and total on whatever a model writes."""
