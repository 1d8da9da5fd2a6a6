"""Scores on disk, how sure they are, and what follows from them: comparisons, histories, signals, verdicts."""
