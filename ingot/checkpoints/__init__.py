"""Models on disk: our own checkpoints, Hugging Face folders, GGUF files, and conversion between them."""
