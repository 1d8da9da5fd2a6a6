"""The fast exact encoder: byte-level BPE in compiled loops, with the same ids as the `tokenizers` library and tiktoken."""
