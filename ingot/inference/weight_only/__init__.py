"""Weights in 8 or 4 bits for models that are only sampled from; activations stay as they are."""
