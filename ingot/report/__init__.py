"""Reads a run folder and nothing else, and writes one HTML file that needs no network."""
