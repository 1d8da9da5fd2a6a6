"""Weight-only quantisation: weights in 8 or 4 bits for models that are only sampled from, activations unchanged."""
