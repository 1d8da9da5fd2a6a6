"""The fast exact encoder: byte-level BPE in CPU kernels, with the same ids as the `tokenizers` library and tiktoken."""
