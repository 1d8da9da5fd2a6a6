"""Readers: files of any kind to documents, split into pieces that can be read side by side."""
