"""Checks a run of RL while it goes on: ratio, age of samples, second score, reward."""
