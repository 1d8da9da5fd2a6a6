"""Proves that every layout of processes trains as one process does: the list of runs, the runs, and their verdicts."""
