"""Quantised weights for models that are only sampled from: 8 or 4 bits, or float8 for weights and activations."""
