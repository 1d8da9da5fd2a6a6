"""Decoding on a GPU with few kernels: norms, activations and residual sums are parts of the products beside them."""
