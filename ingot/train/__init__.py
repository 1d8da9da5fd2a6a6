"""One training loop for all algorithms, on one device or many; its checkpoints and guards; the pre-training stage."""
