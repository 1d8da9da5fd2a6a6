"""GGUF files, the format of llama.cpp: the reader, its quantised blocks, the tokenizer, and the model in it."""
