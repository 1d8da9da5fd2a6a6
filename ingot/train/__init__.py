"""One training loop that knows nothing of algorithms: objectives, checkpoints, and the pre-training stage."""
