"""Weights in and out: our own checkpoints, Hugging Face folders, GGUF files, and conversion between them."""
