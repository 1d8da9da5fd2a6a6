"""Heuristic rules on words, lines and characters, with the published thresholds."""
