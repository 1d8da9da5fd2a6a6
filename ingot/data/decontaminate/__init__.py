"""Evals that leaked into the documents: find them, score the match, say which eval it was and where."""
