"""Text as bytes and offsets: words, lines and hashes, computed by CPU kernels."""
