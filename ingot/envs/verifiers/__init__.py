"""Verifiers that need more than a comparison of texts: mathematics, programs."""
