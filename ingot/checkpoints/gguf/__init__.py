"""GGUF files, the format of llama.cpp: their container, quantised blocks, tokenizer and model."""
