"""One training loop that knows nothing of algorithms, on one device or many; checkpoints, guards; the pre-training stage."""
