"""Finds evals that leaked into the documents: which eval, where, and how much of it."""
